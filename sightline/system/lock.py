"""Lock of the data directory: one server at a time. The kernel releases the lock when the process ends."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sightline.ports.ids import Ids

LOCK_NAME = "server.lock"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DataDirectoryInUseError(Exception):
    """Another running server uses this data directory."""


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lock the directory for this process; create it with mode 0700 if it is missing.

    Read and write permission of other accounts on an existing directory is removed. Execute permission is kept,
    because the account of the embedded Postgres needs it when the server runs as root.

    Children do not inherit the lock, so it is released when this process ends, also by kill -9.

    Raises:
        DataDirectoryInUseError: Another process holds the lock; the message names its pid.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):  # the directory belongs to another account, which sets its permissions
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
        # The file is not removed: otherwise two servers could lock two files of the same name.
        os.close(descriptor)


def directory_id_of(directory: Path, ids: Ids) -> str:
    """Identify the lock of a directory: equal for two processes if they lock the same file under the same kernel.

    A process that holds the lock knows that every earlier process of this place has ended. Where the kernel has no
    identity of its boot, the result is unique, so that nothing is concluded.
    """
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        boot = ids.uuid()
    status = (directory / LOCK_NAME).stat()
    return f"{boot} {status.st_dev} {status.st_ino}"


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of the directory. Creates nothing."""
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
