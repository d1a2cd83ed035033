"""Copy the embedded chain's file while the chain runs, at an instant that the caller shares with the database."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, final

LOCK_TIMEOUT_S: Final = 30.0


@final
class ChainSnapshot:
    """The chain's file as it was when the snapshot was opened."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        (self.head,) = connection.execute("SELECT coalesce(max(number), -1) FROM block").fetchone()
        """Number of the newest block."""

    def write(self, target: Path) -> None:
        """Write the snapshot as a chain file."""
        with closing(sqlite3.connect(target)) as copy:
            self._connection.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")


@contextmanager
def hold_mining(path: Path) -> Iterator[sqlite3.Connection]:
    """Keep the chain from mining while the block runs; it waits for at most five seconds before a block fails.

    Raises:
        sqlite3.Error: The file cannot be read or locked.
    """
    with closing(
        sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=LOCK_TIMEOUT_S)
    ) as held:
        held.execute("BEGIN IMMEDIATE")
        yield held
        held.execute("ROLLBACK")


@contextmanager
def open_chain_snapshot(path: Path) -> Iterator[ChainSnapshot]:
    """Open a read transaction on the file; blocks mined later are not in it."""
    with closing(
        sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=LOCK_TIMEOUT_S)
    ) as reader:
        reader.execute("BEGIN")
        yield ChainSnapshot(reader)
