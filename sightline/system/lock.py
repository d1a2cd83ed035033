"""One server per data directory: a lock that the kernel releases when the process ends."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK_NAME = "server.lock"


class DataDirectoryInUseError(Exception):
    """A running server uses this data directory."""


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Hold the directory for this process; create it with mode 0700 if it is missing.

    An existing directory loses the rights of other accounts to read and write in it. Their right to pass through stays:
    as root, the account of the embedded Postgres needs it.

    Children do not inherit the lock, so it is released when this process ends, by kill -9 too.

    Raises:
        DataDirectoryInUseError: Another process holds it; the message names its pid.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):  # it belongs to another account, which decides
        directory.chmod(stat.S_IMODE(directory.stat().st_mode) & 0o711)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise DataDirectoryInUseError(
                f"{directory} is in use by another server (pid {owner}); stop it, or choose another data directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # The file is kept: if it were removed, two servers could lock two files of the same name.
        os.close(descriptor)
