"""Files that are written whole or not at all, and survive a power loss once they are written."""

import os
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only.

    Raises:
        OSError: The disk is full, or the directory is not writable. The old file, if any, is unchanged.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make creations and renames in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
