"""Limit the size of the log files of child processes: one older file is kept, the one before it is deleted."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import trio

from sightline.system.loops import run_forever

BYTES_MAX: Final = 16 * 1024 * 1024
"""Size from which a log file is rotated. With its one older file it takes at most about twice this."""

EVERY_S: Final = 60.0


async def rotate_logs(data_dir: Path) -> NoReturn:
    """Rotate the log files of all child processes every minute, until cancelled."""
    directories = [data_dir / "log", data_dir / "chain"]
    await run_forever("log_rotation", partial(rotate_log_files, directories), every_s=EVERY_S)


async def rotate_log_files(directories: Sequence[Path]) -> None:
    """Rotate the log files in these directories that are too large.

    Raises:
        OSError: A file cannot be copied or truncated.
    """
    for directory in directories:
        for path in sorted(directory.glob("*.log")):
            await trio.to_thread.run_sync(rotate, path)


def rotate(path: Path, *, bytes_max: int = BYTES_MAX) -> bool:
    """Copy a file that is too large to NAME.1 and truncate it. Returns whether it was rotated.

    The file is copied, not renamed, because the child keeps it open for appending and continues in it. Lines written
    between copy and truncation are lost.
    """
    if path.stat().st_size <= bytes_max:
        return False
    shutil.copyfile(path, path.with_name(path.name + ".1"))
    with path.open("r+b") as opened:
        opened.truncate(0)
    return True
