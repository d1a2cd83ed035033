"""What `sightline fleet` does: makes one operator workspace, with a key, for each camera of a CSV file.

It may be run again: workspaces and keys that exist are kept, so that an interrupted run is completed and a changed row
is applied. The label of a key is written to the camera's file before the key is made: a key whose plaintext was lost,
because the run was killed or the answer did not arrive, is found by its label and revoked by the next run.
"""

import csv
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from sightline.cli.local import SCOPES
from sightline.ports.ids import Ids
from sightline.system.files import write_durably
from sightline.system.ids import SystemIds
from sightline_client import ApiError, Sightline
from sightline_client.wallet import LocalWallet

REQUIRED: Final = ("slug", "lat", "lng", "source")
OPTIONAL: Final = ("radius", "kind")
KINDS: Final = ("FIXED", "PTZ")
RADIUS_M: Final = 100.0
SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,30}[a-z0-9]")
KEY_LINE: Final = re.compile(r"^SIGHTLINE_API_KEY='([^']+)'$", re.MULTILINE)
LABEL_LINE: Final = re.compile(r"^# Label of the key: (fleet [0-9a-f]+)$", re.MULTILINE)
LABEL_BYTES: Final = 8


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """One row of the file."""

    slug: str
    lat: float
    lng: float
    source: str = field(repr=False)
    """May hold a password."""
    radius_m: float = RADIUS_M
    kind: str = "FIXED"


class FleetFileError(Exception):
    """The file has bad rows; nothing was made. `lines` has one line for each problem."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read_cameras(path: Path) -> list[Camera]:
    """Read the file.

    Raises:
        FleetFileError: A column or a value is missing or wrong.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            columns = reader.fieldnames or []
            rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FleetFileError([f"{path}: not a CSV file in UTF-8: {error}"]) from None
    problems = [f"{path}: the column {name} is missing" for name in REQUIRED if name not in columns]
    known = ", ".join(REQUIRED + OPTIONAL)
    problems += [
        f"{path}: unknown column {name}. Known are {known}" for name in columns if name not in known.split(", ")
    ]
    cameras: list[Camera] = []
    lines_of: dict[str, int] = {}
    for line, row in rows if not problems else []:
        found = list(_problems(row, lines_of))
        problems += [f"{path} line {line}: {problem}" for problem in found]
        if not found:
            lines_of[row["slug"]] = line
            cameras.append(
                Camera(
                    slug=row["slug"],
                    lat=float(row["lat"]),
                    lng=float(row["lng"]),
                    source=row["source"],
                    radius_m=float(row.get("radius") or RADIUS_M),
                    kind=row.get("kind") or "FIXED",
                )
            )
    if not problems and not cameras:
        problems = [f"{path}: no cameras"]
    if problems:
        raise FleetFileError(problems)
    return cameras


def _problems(row: dict[str, str], lines_of: dict[str, int]) -> Iterator[str]:
    """Say what is wrong with a row, without the source, which may hold a password."""
    if None in row or None in row.values():
        yield "it has more or fewer values than the first line has columns"
        return
    slug = row["slug"]
    if not SLUG.fullmatch(slug):
        yield f"slug {slug!r} is not 3 to 32 lower-case letters, digits and hyphens"
    elif slug in lines_of:
        yield f"slug {slug} is also in line {lines_of[slug]}"
    for name, low, high in (("lat", -90.0, 90.0), ("lng", -180.0, 180.0), ("radius", 1.0, 100_000.0)):
        if (text := row.get(name)) or name in REQUIRED:
            value = _number(text or "")
            if not low <= value <= high:
                yield f"{name} {text!r} is not a number from {low:g} to {high:g}"
    if not row["source"] or any(each in row["source"] for each in "'\n\r\0"):
        yield "source is empty, or contains a quote or a line break"
    if row.get("kind") and row["kind"] not in KINDS:
        yield f"kind {row['kind']!r} is not {' or '.join(KINDS)}"


def _number(text: str) -> float:
    """Return the number, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


@final
class Fleet:
    """Makes the workspaces of one wallet, and their files, through a client that is signed in with the wallet."""

    def __init__(self, api: Sightline, wallet: LocalWallet, ids: Ids, directory: Path, *, is_online: bool) -> None:
        self._api = api
        self._wallet = wallet
        self._ids = ids
        self._directory = directory
        self._is_online = is_online

    def make(self, cameras: list[Camera]) -> int:
        """Make or complete workspace, key and environment file of each camera, and print a line for each.

        A camera that the server refuses is reported on stderr; the others are made.

        Returns:
            The number of cameras that were refused.

        Raises:
            SightlineError: The server cannot be reached. The printed cameras are complete.
            OSError: A file cannot be written.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ids = {workspace.slug: workspace.id for workspace in self._api.workspaces.list()}
        refused = 0
        for camera in cameras:
            try:
                sys.stdout.write(f"{self._make(camera, ids.get(camera.slug))}\n")
            except ApiError as error:
                refused += 1
                sys.stderr.write(f"{camera.slug}: {' '.join(str(error).split())}\n")
        return refused

    def _make(self, camera: Camera, workspace_id: str | None) -> str:
        """Make what is missing. Returns the line to print."""
        is_new = workspace_id is None
        if workspace_id is None:
            made = self._api.workspaces.create(self._wallet, slug=camera.slug, name=camera.slug, roles=["SUPPLIER"])
            workspace_id = made.id
        self._api.auth.select(workspace_id)
        self._api.workspaces.update(
            workspace_id,
            availability_state="ONLINE" if self._is_online else None,
            coverage_lat=camera.lat,
            coverage_lng=camera.lng,
            coverage_radius_meters=camera.radius_m,
            device_kind=camera.kind,
        )
        path = self._directory / f"{camera.slug}.env"
        is_kept = self._write_file(workspace_id, path, camera)
        return f"{camera.slug}: workspace {'made' if is_new else 'kept'}, key {'kept' if is_kept else 'made'}: {path}"

    def _write_file(self, workspace_id: str, path: Path, camera: Camera) -> bool:
        """Write the camera's environment file, with a new key unless its present one is valid; True if it is."""
        old = path.read_text() if path.exists() else ""
        known, labels = KEY_LINE.search(old), LABEL_LINE.findall(old)
        live = [each for each in self._api.keys.list(workspace_id) if each.revoked_at is None]
        if known is not None and known[1].startswith(tuple(each.prefix for each in live)):
            write_durably(path, _environment(self._api.url, known[1], (labels or [None])[0], camera))
            return True
        for each in live:
            if each.label in labels:
                self._api.keys.revoke(workspace_id, each.key_id)
        label = f"fleet {self._ids.token_bytes(LABEL_BYTES).hex()}"
        write_durably(path, _environment(self._api.url, None, label, camera))
        key = self._api.keys.mint(workspace_id, label=label, scopes=SCOPES["SUPPLIER"]).plaintext
        write_durably(path, _environment(self._api.url, key, label, camera))
        return False


def _environment(url: str, key: str | None, label: str | None, camera: Camera) -> bytes:
    """Return the settings of `sightline device`, quoted for systemd and for a shell.

    Args:
        key: None while the key is being made.
        label: None for a key of a file that was written without one.
    """
    settings = {
        "SIGHTLINE_API": url,
        "SIGHTLINE_API_KEY": key,
        "SIGHTLINE_SOURCE": camera.source,
        "LAT": f"{camera.lat:.7f}",
        "LNG": f"{camera.lng:.7f}",
    }
    lines = [f"# Label of the key: {label}"] if label is not None else []
    lines += [f"{name}='{value}'" for name, value in settings.items() if value is not None]
    return "".join(f"{line}\n" for line in lines).encode()


def run_fleet(api: Sightline, wallet: LocalWallet, file: Path, directory: Path, *, is_online: bool) -> int:
    """Make the fleet of a CSV file. Returns the exit code: 0, or 1 when a row is bad or a camera was refused.

    Raises:
        SightlineError: The server cannot be reached, or refuses the wallet.
        OSError: A file cannot be read or written.
    """
    try:
        cameras = read_cameras(file)
    except FleetFileError as error:
        sys.stderr.write("".join(f"{line}\n" for line in error.lines))
        sys.stderr.write("Nothing was made.\n")
        return 1
    api.auth.sign_in(wallet)
    return 1 if Fleet(api, wallet, SystemIds(), directory, is_online=is_online).make(cameras) else 0
