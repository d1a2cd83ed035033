"""The append-only file of withdrawals. Several processes of one machine may append to it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import orjson
from msgspec.structs import asdict

from sightline.ports.identity import Withdrawal, WithdrawalKind
from sightline.system.files import sync_directory

FILE_NAME: Final = "withdrawals.jsonl"


def append_withdrawals(path: Path, withdrawals: Iterable[Withdrawal]) -> None:
    """Append entries, durably. The file is created with mode 0600.

    Raises:
        OSError: The disk is full, or the directory is not writable.
    """
    is_new = not path.exists()
    # Each entry begins with a line break: an entry that was torn by a crash does not spoil the next one.
    lines = b"".join(b"\n" + orjson.dumps(asdict(each)) for each in withdrawals)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        written = os.write(descriptor, lines)
        if written != len(lines):
            raise OSError(f"{path}: {written} of {len(lines)} bytes were written")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_directory(path.parent)


def read_withdrawals(path: Path) -> Sequence[Withdrawal]:
    """The entries in their order; none if there is no file. Lines that are no entry are left out.

    Raises:
        OSError: The file cannot be read.
    """
    if not path.exists():
        return ()
    entries = (_read(line) for line in path.read_bytes().splitlines())
    return [entry for entry in entries if entry is not None]


def merged(*sources: Sequence[Withdrawal]) -> list[Withdrawal]:
    """The entries of several files, each once, in the order of time."""
    return sorted({entry: None for source in sources for entry in source}, key=lambda entry: entry.at_ms)


def _read(line: bytes) -> Withdrawal | None:
    try:
        fields = orjson.loads(line)
        return Withdrawal(**fields | {"kind": WithdrawalKind(fields["kind"]), "at_ms": int(fields["at_ms"])})
    except (ValueError, TypeError, LookupError):
        return None  # torn, or of a newer version
