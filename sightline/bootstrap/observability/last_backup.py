"""When a data directory was last backed up: the backup command writes it, the metrics of the server read it."""

from contextlib import suppress
from pathlib import Path
from typing import Final

LAST_BACKUP: Final = "last_backup"
"""A file in the data directory, with Unix milliseconds as text."""


def note_backup(directory: Path, at_ms: int) -> None:
    """Record in the data directory that a backup was written. The backup is complete also if that fails."""
    with suppress(OSError):
        (directory / LAST_BACKUP).write_text(f"{at_ms}\n")


def last_backup_ms(directory: Path) -> int | None:
    """When the data directory was last backed up, in Unix milliseconds; None if that is not known."""
    try:
        return int((directory / LAST_BACKUP).read_text())
    except (OSError, ValueError):
        return None
