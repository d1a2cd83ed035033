"""One server per data directory, held by a lock that the kernel drops with the process."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_NAME = "server.lock"


class DataDirectoryInUseError(Exception):
    """Another server, alive, has this data directory."""


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Hold the directory for this process; create it (mode 0700) if need be.

    Children do not inherit the lock, so it falls with this process alone, kill -9 included.

    Raises:
        DataDirectoryInUseError: Another process holds it; the message names its pid.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise DataDirectoryInUseError(
                f"{directory} is in use by another server (pid {owner}); "
                "stop that one, or give this one another data directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # The file stays: removing it would let two servers lock two files of the same name.
        os.close(descriptor)
