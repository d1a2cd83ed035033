"""Refuse to start when a part of the data directory is missing that existed before.

The usual cause is a volume that is not mounted, or an incomplete restore. Creating the part again would hide the
loss: an empty database looks healthy, and new secrets invalidate every API key.
"""

import json
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from sightline.domain.value import Value
from sightline.system.files import write_durably

FILE_NAME: Final = "parts.json"
"""File that lists the parts that existed when a server was last ready on this directory."""


class PartMissingError(Exception):
    """A part is missing or damaged; the message is one line that names it and says how to restore it."""


@final
class DataPart(Value):
    """A file whose content is lost if it has to be created again."""

    path: str
    """Path relative to the data directory. For the database, a file that every cluster has."""
    loss: str
    """What is lost if the part is missing."""
    traces: tuple[str, ...]
    """If one of these files exists, the part existed. Used for directories that have no list yet."""
    is_json: bool = False


SECRETS: Final = DataPart("secrets.json", "every API key, sign-in and media URL", ("server.json",), is_json=True)
CLUSTER: Final = DataPart("postgres/cluster/PG_VERSION", "all workspaces, sessions and balances", ("log/postgres.log",))
CHAIN_KEYS: Final = DataPart(
    "chain/keys.json", "the keys that own the embedded chain's contracts", ("chain/endpoint.json",), is_json=True
)
FRAME_ROOT: Final = DataPart("evidence/root.pem", "the root certificate of signed frames", ())
CHAIN_DATABASE: Final = DataPart("chain/chain.sqlite", "every block of the embedded chain", ("chain/endpoint.json",))


def check_parts(data_dir: Path, wanted: Iterable[DataPart]) -> None:
    """Check that no part is missing or damaged that existed when a server was last ready.

    If the first start was interrupted, no server was ever ready, so missing parts are created.

    Raises:
        PartMissingError: A part is missing or damaged; the message names the first one.
    """
    known = _read_list(data_dir)
    for part in wanted:
        path = data_dir / part.path
        existed = _was_there(data_dir, part) if known is None else part.path in known
        if path.exists():
            _check_content(path, part, existed=existed)
        elif existed:
            raise PartMissingError(
                f"{path} is missing, which held {part.loss}. Mount its volume or restore it from a backup. "
                f"To start empty, move the whole directory {data_dir} away"
            )


def record_parts(data_dir: Path, wanted: Iterable[DataPart]) -> None:
    """Add the parts that exist to the list. Call it when the server is ready."""
    known = _read_list(data_dir) or set()
    found = known | {part.path for part in wanted if (data_dir / part.path).exists()}
    if found != known:
        write_durably(data_dir / FILE_NAME, _listed(found))


def write_parts(data_dir: Path, wanted: Iterable[DataPart]) -> None:
    """List these parts before they exist. Until all of them do, `check_parts` refuses the directory."""
    write_durably(data_dir / FILE_NAME, _listed({part.path for part in wanted}))


def _listed(paths: set[str]) -> bytes:
    return json.dumps({"parts": sorted(paths)}).encode()


def _read_list(data_dir: Path) -> set[str] | None:
    path = data_dir / FILE_NAME
    try:
        return set(json.loads(path.read_text())["parts"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise PartMissingError(
            f"{path} is damaged: it lists the parts of this data directory. Restore it from a backup, or remove it "
            "if every other file is in place"
        ) from None


def _was_there(data_dir: Path, part: DataPart) -> bool:
    return (data_dir / "server.json").exists() and any((data_dir / trace).exists() for trace in part.traces)


def _check_content(path: Path, part: DataPart, *, existed: bool) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        # Earlier versions made the chain's database readable by others.
        with suppress(PermissionError):
            path.chmod(mode & 0o700)
    # A first start that was killed may leave the file that SQLite has made and not written yet.
    is_lost = existed and path.stat().st_size == 0
    if is_lost or (part.is_json and not _holds_object(path)):
        raise PartMissingError(f"{path} is damaged, which held {part.loss}. Restore it from a backup")


def _holds_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text()), dict)
    except ValueError:
        return False
