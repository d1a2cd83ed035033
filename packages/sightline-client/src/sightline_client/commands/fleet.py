"""What `sightline fleet` does: makes one operator workspace, with a key, for each camera of a CSV file.

It may be run again: workspaces and keys that exist are kept, so that an interrupted run is completed and a changed row
is applied. The label of a key is written to the camera's file before the key is made: a key whose plaintext was lost,
because the run was killed or the answer did not arrive, is found by its label and revoked by the next run.
"""

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, final

from sightline_client import ApiError, Sightline, SightlineError
from sightline_client.commands.access import SCOPES
from sightline_client.commands.options import AREA_RADIUS_M
from sightline_client.commands.printing import print_value, print_warning
from sightline_client.runtime import new_key
from sightline_client.wallet import LocalWallet

REQUIRED: Final = ("slug", "lat", "lng", "source")
OPTIONAL: Final = ("radius", "kind")
KINDS: Final = ("FIXED", "PTZ")
RADIUS_M: Final = 100.0
SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,30}[a-z0-9]")
KEY_LINE: Final = re.compile(r"^SIGHTLINE_API_KEY='([^']+)'$", re.MULTILINE)
LABEL_LINE: Final = re.compile(r"^# Label of the key: (fleet [0-9a-f]+)$", re.MULTILINE)
FILE_BYTES_MAX: Final = 16 << 20
CAMERAS_MAX: Final = 10_000
SOURCE_MAX: Final = 2_000
PROBLEMS_MAX: Final = 50
"""A file that is no list of cameras at all has a problem in each line."""
VALUE_SHOWN: Final = re.compile(r"[\w.,+-]{0,40}", re.ASCII)
"""A value of another form is not shown: in a row that is shifted by a column it may be the source, with a password."""
NUMBER: Final = re.compile(r"[+-]?\d{1,6}(\.\d{1,20})?", re.ASCII)


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
        FleetFileError: It is no list of cameras; each line of the error has a line and a column of the file.
        OSError: It cannot be read.
    """
    columns, rows = _read_rows(path)
    problems = [f"{path}: the column {name} is missing" for name in REQUIRED if name not in columns]
    known = REQUIRED + OPTIONAL
    problems += [
        f"{path} line 1: unknown column {_shown(name)}. Known are {', '.join(known)}"
        for name in columns
        if name not in known
    ]
    problems += [f"{path} line 1: the column {name} is there twice" for name in known if columns.count(name) > 1]
    cameras: list[Camera] = []
    lines_of: dict[str, int] = {}
    for line, values in rows if not problems else []:
        row = dict(zip(columns, values, strict=False))
        found = list(_problems(row, len(values) - len(columns), lines_of))
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
    if len(problems) > PROBLEMS_MAX:
        problems[PROBLEMS_MAX:] = [f"{path}: {len(problems) - PROBLEMS_MAX} more problems"]
    if problems:
        raise FleetFileError(problems)
    return cameras


def _read_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the first line and the others, each with the line of the file where it begins."""
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise FleetFileError([f"{path}: it has more than {FILE_BYTES_MAX >> 20} MB. Split it into several files"])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _place(content, error.start)
        raise FleetFileError([f"{path} line {line}, byte {column}: not in UTF-8. Save the file as UTF-8"]) from None
    if "\0" in text:
        line, column = _place(content, content.index(0))
        raise FleetFileError([f"{path} line {line}, byte {column}: a NUL byte. Save the file as CSV in UTF-8"])
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    rows: list[tuple[int, list[str]]] = []
    begins = 1
    try:
        for values in reader:
            if values:
                rows.append((begins, values))
            if len(rows) > CAMERAS_MAX + 1:
                raise FleetFileError([f"{path} line {begins}: more than {CAMERAS_MAX} cameras. Split the file"])
            begins = reader.line_num + 1
    except csv.Error as error:
        hint = "a quote is not closed" if "end of data" in str(error) else str(error)
        raise FleetFileError([f"{path} line {begins}: {hint}"]) from None
    return (rows[0][1] if rows else []), rows[1:]


def _place(content: bytes, at: int) -> tuple[int, int]:
    """Line, and byte of the line, from 1."""
    return content.count(b"\n", 0, at) + 1, at - content.rfind(b"\n", 0, at)


def _shown(value: str) -> str:
    return repr(value) if VALUE_SHOWN.fullmatch(value) else f"of {len(value)} characters (not shown)"


def _problems(row: dict[str, str], surplus: int, lines_of: dict[str, int]) -> Iterator[str]:
    """Say what is wrong with a row, without a value that may be a source, which may hold a password."""
    if surplus:
        yield f"it has {abs(surplus)} {'more' if surplus > 0 else 'fewer'} values than the first line has columns"
        return
    slug = row["slug"]
    if not SLUG.fullmatch(slug):
        yield f"slug {_shown(slug)} is not 3 to 32 lower-case letters, digits and hyphens"
    elif slug in lines_of:
        yield f"slug {slug} is also in line {lines_of[slug]}"
    for name, low, high in (("lat", -90.0, 90.0), ("lng", -180.0, 180.0), ("radius", *AREA_RADIUS_M)):
        text = row.get(name) or ""
        if (text or name in REQUIRED) and not (NUMBER.fullmatch(text) and low <= float(text) <= high):
            yield f"{name} {_shown(text)} is not a number from {low:g} to {high:g}"
    if not row["source"] or "'" in row["source"] or not row["source"].isprintable():
        yield "source is empty, or contains a quote, a line break or another control character"
    elif len(row["source"]) > SOURCE_MAX:
        yield f"source has more than {SOURCE_MAX} characters"
    if row.get("kind") and row["kind"] not in KINDS:
        yield f"kind {_shown(row['kind'])} is not {' or '.join(KINDS)}"


@final
class Fleet:
    """Makes the workspaces of one wallet, and their files, through a client that is signed in with the wallet."""

    def __init__(
        self, api: Sightline, wallet: LocalWallet, directory: Path, *, is_online: bool, as_json: bool = False
    ) -> None:
        self._api = api
        self._wallet = wallet
        self._directory = directory
        self._is_online = is_online
        self._as_json = as_json

    def make(self, cameras: list[Camera]) -> int:
        """Make or complete workspace, key and environment file of each camera, and print a line for each.

        A camera that the server refuses is reported on stderr; the others are made.

        Returns:
            The number of cameras that were refused.

        Raises:
            SightlineError: The server cannot be reached. stderr has how many cameras are complete.
            OSError: A file cannot be written. As above.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ids = {workspace.slug: workspace.id for workspace in self._api.workspaces.list()}
        made = refused = 0
        for camera in cameras:
            try:
                self._make(camera, ids.get(camera.slug))
                made += 1
            except ApiError as error:
                refused += 1
                text = " ".join(str(error).split())
                said = {"slug": camera.slug, "code": error.code, "message": text}
                sys.stderr.write(f"{json.dumps(said) if self._as_json else f'{camera.slug}: {text}'}\n")
            except (SightlineError, OSError):
                text = (
                    f"Stopped at {camera.slug}: {made} of {len(cameras)} cameras are complete. Run the command again."
                )
                print_warning(text, self._as_json)
                raise
        return refused

    def _make(self, camera: Camera, workspace_id: str | None) -> None:
        """Make what is missing, and print what was done."""
        is_new = workspace_id is None
        if workspace_id is None:
            made = self._api.workspaces.create(self._wallet, slug=camera.slug, name=camera.slug, roles=["SUPPLIER"])
            workspace_id = made.id
        self._api.auth.select(workspace_id)
        workspace = self._api.workspaces.update(
            workspace_id,
            availability_state="ONLINE" if self._is_online else None,
            coverage_lat=camera.lat,
            coverage_lng=camera.lng,
            coverage_radius_meters=camera.radius_m,
            device_kind=camera.kind,
        )
        path = self._directory / f"{camera.slug}.env"
        is_kept = self._write_file(workspace_id, path, camera)
        is_online = f", {workspace.availability_state}" if self._is_online else ""
        done, key = "made" if is_new else "kept", "kept" if is_kept else "made"
        said: dict[str, object] = {
            "slug": camera.slug,
            "workspaceId": workspace_id,
            "workspace": done,
            "availabilityState": str(workspace.availability_state),
            "key": key,
            "file": str(path),
        }
        print_value(said, self._as_json, f"{camera.slug}: workspace {done}{is_online}, key {key}: {path}")

    def _write_file(self, workspace_id: str, path: Path, camera: Camera) -> bool:
        """Write the camera's environment file, with a new key unless its present one is valid; True if it is."""
        old = path.read_text() if path.exists() else ""
        known, labels = KEY_LINE.search(old), LABEL_LINE.findall(old)
        live = [each for each in self._api.keys.list(workspace_id) if each.revoked_at is None]
        if known is not None and known[1].startswith(tuple(each.prefix for each in live)):
            _write_durably(path, _environment(self._api.url, known[1], (labels or [None])[0], camera))
            return True
        for each in live:
            if each.label in labels:
                self._api.keys.revoke(workspace_id, each.key_id)
        label = f"fleet {new_key()}"
        _write_durably(path, _environment(self._api.url, None, label, camera))
        key = self._api.keys.mint(workspace_id, label=label, scopes=SCOPES["SUPPLIER"]).plaintext
        _write_durably(path, _environment(self._api.url, key, label, camera))
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


def _write_durably(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, readable by its owner only, and wait until it is on the disk.

    Raises:
        OSError: The file cannot be written. The old one, if any, is unchanged.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    with open(draft, "xb", opener=partial(os.open, mode=0o600)) as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def run_fleet(
    api: Sightline, wallet: LocalWallet, file: Path, directory: Path, *, is_online: bool, as_json: bool
) -> int:
    """Make the fleet of a CSV file. Returns the exit code: 0, or 1 when a row is bad or a camera was refused.

    With `as_json`, each line of stdout and of stderr is a JSON object.

    Raises:
        SightlineError: The server cannot be reached, or refuses the wallet.
        OSError: A file cannot be read or written.
    """
    try:
        cameras = read_cameras(file)
    except FleetFileError as error:
        for line in (*error.lines, "Nothing was made."):
            print_warning(line, as_json)
        return 1
    api.auth.sign_in(wallet)
    return 1 if Fleet(api, wallet, directory, is_online=is_online, as_json=as_json).make(cameras) else 0
