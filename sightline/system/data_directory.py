"""Refuse to start when a part of the data directory is missing that existed before.

The usual cause is a volume that is not mounted, or an incomplete restore. Creating the part again would hide the
loss: an empty database looks healthy, and new secrets invalidate every API key.
"""

import json
import os
import pwd
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from sightline.domain.value import Value
from sightline.system.files import write_durably

FILE_NAME: Final = "parts.json"
"""File that lists the parts that existed when a server was last ready on this directory."""
UNFINISHED_RESTORE: Final = "restore.unfinished"
"""Directory in which `sightline restore` makes the parts, beside their places."""
RESTORE: Final = (
    "restore a whole backup into a new directory with `sightline restore FILE --data-dir NEW`: "
    "its parts belong together"
)
"""What to do about a part that is lost. One part alone, from a backup, would not match the newer parts beside it."""


def directory_of_server(directory: Path) -> Path:
    """Return the data directory of a server, also if `directory` is that of `sightline dev`, which holds it as `data`.

    A directory that is itself that of a server, or that holds none, is returned as it is.
    """
    kept = directory / "data"
    return kept if _is_of_server(kept) and not _is_of_server(directory) else directory


def _is_of_server(directory: Path) -> bool:
    try:
        return any((directory / name).exists() for name in _OF_SERVERS)
    except PermissionError:
        return False  # what this account needs of it fails with the name of the file


_OF_SERVERS: Final = (FILE_NAME, "server.json", "secrets.json", "chain", "postgres")


class OtherAccountError(Exception):
    """The directory is of another account; the message is one line that names it."""


def require_own_account(data_dir: Path) -> None:
    """Refuse the directory of a server that ran as another account.

    What this account cannot read of it fails anyway. What root writes there, the server's account cannot read.

    Raises:
        OtherAccountError: It is.
    """
    for name in ("server.json", "secrets.json"):
        path = data_dir / name
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            raise OtherAccountError(f"{path} cannot be read. Run this as the account of the server.") from None
        if os.geteuid() == 0 and status.st_uid != 0:
            who = account_name(status.st_uid)
            as_it = f"setpriv --reuid={status.st_uid} --regid={status.st_gid} --clear-groups COMMAND"
            raise OtherAccountError(
                f"{data_dir} is of the account {who}, which could not read what root writes there. Run this as {who}: "
                f"`{as_it}`."
            )


def account_name(uid: int) -> str:
    """The name of an account, or its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


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
    header: bytes = b""
    """Bytes that the file begins with, e.g. those of the SQLite file format, section 1.3."""
    alone: str = ""
    """What to do in place of a whole restore, for a part that fits whatever is newer beside it."""


SECRETS: Final = DataPart(
    "secrets.json",
    "every API key, sign-in and media URL",
    ("server.json",),
    is_json=True,
    alone="take it alone from the newest backup: `tar -xzf FILE -C DIRECTORY secrets.json`. It changes only when "
    "somebody replaces it",
)
CLUSTER: Final = DataPart("postgres/cluster/PG_VERSION", "all workspaces, sessions and balances", ("log/postgres.log",))
CHAIN_KEYS: Final = DataPart(
    "chain/keys.json", "the keys that own the embedded chain's contracts", ("chain/endpoint.json",), is_json=True
)
FRAME_ROOT: Final = DataPart("evidence/root.pem", "the root certificate of signed frames", ())
CHAIN_DATABASE: Final = DataPart(
    "chain/chain.sqlite", "every block of the embedded chain", ("chain/endpoint.json",), header=b"SQLite format 3\0"
)


def check_parts(data_dir: Path, wanted: Iterable[DataPart]) -> None:
    """Check that no part is missing or damaged that existed when a server was last ready.

    If the first start was interrupted, no server was ever ready, so missing parts are created.

    Raises:
        PartMissingError: A part is missing or damaged, or a restore did not finish; the message names the first one.
    """
    if (data_dir / UNFINISHED_RESTORE).exists():
        raise PartMissingError(
            f"{data_dir} holds a restore that failed or did not finish. Remove the directory, and restore again with "
            f"`sightline restore FILE --data-dir {data_dir}`. Without the restore, a server starts empty"
        )
    known = _read_list(data_dir)
    for part in wanted:
        path = data_dir / part.path
        existed = _was_there(data_dir, part) if known is None else part.path in known
        if path.exists():
            _check_content(path, part, existed=existed)
        elif existed:
            remedy = part.alone or f"{RESTORE}. To start empty, move the whole directory {data_dir} away"
            raise PartMissingError(f"{path} is missing, which held {part.loss}. Mount its volume, or {remedy}")


def was_used(data_dir: Path) -> bool:
    """Return whether a server was ever ready on this directory, or a backup was restored into it.

    Raises:
        PermissionError: This account may not look into it.
    """
    return any((data_dir / name).exists() for name in (FILE_NAME, "server.json"))


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
            f"{path} is damaged: it lists the parts of this data directory. If every other file is in place, "
            f"remove it; otherwise {RESTORE}"
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
    is_lost = existed and (path.stat().st_size == 0 or not _begins_with(path, part.header))
    if is_lost or (part.is_json and not _holds_object(path)):
        raise PartMissingError(f"{path} is damaged, which held {part.loss}. To get it back, {part.alone or RESTORE}")


def _begins_with(path: Path, header: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(header)) == header


def _holds_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text()), dict)
    except ValueError:
        return False
