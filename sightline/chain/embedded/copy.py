"""Copy the embedded chain's file while the chain runs, at an instant that the caller shares with the database."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, final

from sightline.chain.contracts.abi import selector
from sightline.domain.value import Value
from sightline.system.data_directory import RESTORE

LOCK_TIMEOUT_S: Final = 30.0
DAMAGES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR})
"""Primary result codes of a file that is damaged or cannot be read. Others, such as a lock, are over by themselves."""
_DEPLOYED: Final = """
SELECT json_extract(body, '$.input') FROM tx
WHERE json_extract(receipt, '$.contractAddress') = (SELECT value FROM meta WHERE name = 'settlementAddress')
ORDER BY block_number, position LIMIT 1
"""


@final
class FirstStart(Value, kw_only=True):
    """Terms of the embedded chain that its first start wrote into the file, and that no later start changes."""

    chain_id: int
    is_escrow: bool | None
    """Whether SessionEscrow was deployed, in place of SessionSettlement; None: the file has no contract yet."""


@final
class ChainSnapshot:
    """The chain's file as it was when the snapshot was opened."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        (self.head,) = connection.execute("SELECT coalesce(max(number), -1) FROM block").fetchone()
        """Number of the newest block."""

    def problem(self) -> str | None:
        """Read the whole file; return the first thing that is wrong with it. About a second for each GB."""
        (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        return None if found == "ok" else " ".join(str(found).split())

    def first_start(self) -> FirstStart | None:
        """Read what the first start fixed; None if that start was interrupted before it made the chain."""
        chain_id = self._connection.execute("SELECT value FROM meta WHERE name = 'chainId'").fetchone()
        deployed = self._connection.execute(_DEPLOYED).fetchone()
        if chain_id is None:
            return None
        is_escrow = None if deployed is None else selector("isMeter(address)").hex() in deployed[0]
        return FirstStart(chain_id=int(chain_id[0]), is_escrow=is_escrow)

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


def damage_line(path: Path, error: sqlite3.Error) -> str | None:
    """Say in one line that the chain's file is damaged, and the way back; None for another error."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)  # errors of the module itself have none
    if code & 0xFF not in DAMAGES:
        return None
    return f"The file of the embedded chain is damaged, {path}: {error}. To get it back, {RESTORE}"


def find_problem(path: Path) -> str | None:
    """Read a whole chain file; return the first thing that is wrong with it."""
    try:
        with open_chain_snapshot(path) as chain:
            return chain.problem()
    except sqlite3.Error as error:
        return str(error)


def find_damage(path: Path) -> str | None:
    """Read the newest block; return `damage_line` if that fails for a damage."""
    try:
        with open_chain_snapshot(path):
            return None
    except sqlite3.Error as error:
        return damage_line(path, error)
