"""Stores the embedded chain in one SQLite file: py-evm's key-value data and the JSON responses built from it.

Each block's trie nodes and JSON responses are written in one SQLite transaction with synchronous=FULL. After a
kill -9, a power failure or a failed write the file holds complete blocks only.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from eth.db.backends.base import BaseDB

Json: TypeAlias = dict[str, Any]

CACHE_ENTRIES_MAX: Final = 200_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS block (number INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tx (
  hash TEXT PRIMARY KEY, block_number INTEGER NOT NULL, position INTEGER NOT NULL,
  body TEXT NOT NULL, receipt TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tx_by_block ON tx (block_number, position);
CREATE TABLE IF NOT EXISTS log (
  block_number INTEGER NOT NULL, log_index INTEGER NOT NULL, address TEXT NOT NULL, topic0 TEXT, topic1 TEXT,
  topic2 TEXT, topic3 TEXT, body TEXT NOT NULL, PRIMARY KEY (block_number, log_index)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS log_by_address ON log (address, block_number);
"""


class DamagedChainError(Exception):
    """A block up to the head is missing from the file; the message says which."""


@final
class KeyValues(BaseDB):
    """py-evm's database. Reads go to SQLite; writes stay in memory until a transaction of the store commits.

    The cache holds committed values only. `_pending` is emptied after COMMIT or on discard, never earlier.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._pending: dict[bytes, bytes | None] = {}
        self._cache: dict[bytes, bytes] = {}

    def __getitem__(self, key: bytes) -> bytes:
        if key in self._pending:
            value = self._pending[key]
            if value is None:
                raise KeyError(key)
            return value
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        row = self._connection.execute("SELECT v FROM kv WHERE k = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        self._remember(key, row[0])
        return bytes(row[0])

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._pending[bytes(key)] = bytes(value)

    def __delitem__(self, key: bytes) -> None:
        self._pending[bytes(key)] = None

    def _exists(self, key: bytes) -> bool:
        try:
            self[key]
        except KeyError:
            return False
        return True

    def _remember(self, key: bytes, value: bytes) -> None:
        if len(self._cache) >= CACHE_ENTRIES_MAX:
            self._cache.clear()
        self._cache[key] = value

    def write_pending(self) -> None:
        """Write the pending values in the open SQLite transaction. They stay pending until `committed` is called."""
        for key, value in self._pending.items():
            if value is None:
                self._connection.execute("DELETE FROM kv WHERE k = ?", (key,))
            else:
                self._connection.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (key, value))

    def committed(self) -> None:
        """Move the pending values to the cache, after the transaction that wrote them has committed."""
        for key, value in self._pending.items():
            if value is None:
                self._cache.pop(key, None)
            else:
                self._remember(key, value)
        self._pending.clear()

    def discard(self) -> None:
        """Discard the pending values."""
        self._pending.clear()


@final
class ChainStore:
    """Stores blocks, transactions, receipts and logs as JSON-RPC responses, next to py-evm's own data."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            DamagedChainError: A block below the head is missing.
        """
        self.path = path
        # The threads of the HTTP server share this connection; the machine's lock allows one at a time.
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)
        self.key_values = KeyValues(self._connection)
        self._require_every_block()

    def _require_every_block(self) -> None:
        count, head = self._connection.execute("SELECT count(*), max(number) FROM block").fetchone()
        if head is not None and count != head + 1:
            missing = self._connection.execute(
                "SELECT min(number) + 1 FROM block WHERE number + 1 NOT IN (SELECT number FROM block)"
            ).fetchone()[0]
            raise DamagedChainError(
                f"block {missing} of {head} is missing; restore the data directory and its database from a backup"
            )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def meta(self, name: str) -> str | None:
        """Return a stored value about the chain, such as a contract address."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the body in one transaction. On any error, including one from COMMIT, roll back."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self.key_values.discard()
            # After some errors, such as a full disk, SQLite has already rolled back.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self.key_values.committed()

    def commit_genesis(self, block: Json, facts: dict[str, str]) -> None:
        """Write the genesis block and the values about the chain."""
        with self._transaction():
            self.key_values.write_pending()
            self._insert_facts(facts)
            self._insert_block(block)

    def commit_facts(self, facts: dict[str, str]) -> None:
        """Store values about the chain."""
        with self._transaction():
            self._insert_facts(facts)

    def _insert_facts(self, facts: dict[str, str]) -> None:
        for name, value in facts.items():
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def commit_block(self, block: Json, transactions: Iterable[tuple[Json, Json]]) -> None:
        """Write a mined block; `transactions` are pairs of transaction and receipt.

        Raises:
            sqlite3.Error: The disk is full or failed. Nothing was written and nothing is pending.
        """
        number = int(block["number"], 16)
        with self._transaction():
            self.key_values.write_pending()
            self._insert_block(block)
            for position, (body, receipt) in enumerate(transactions):
                self._connection.execute(
                    "INSERT INTO tx VALUES (?, ?, ?, ?, ?)",
                    (body["hash"], number, position, json.dumps(body), json.dumps(receipt)),
                )
                for entry in receipt["logs"]:
                    self._insert_log(number, entry)

    def _insert_block(self, block: Json) -> None:
        self._connection.execute(
            "INSERT INTO block VALUES (?, ?, ?)", (int(block["number"], 16), block["hash"], json.dumps(block))
        )

    def _insert_log(self, number: int, entry: Json) -> None:
        topics = [*entry["topics"], None, None, None, None][:4]
        self._connection.execute(
            "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (number, int(entry["logIndex"], 16), entry["address"], *topics, json.dumps(entry)),
        )

    def block_by_number(self, number: int) -> Json | None:
        """Return the block's JSON response, with transaction hashes."""
        return self._one("SELECT body FROM block WHERE number = ?", number)

    def block_by_hash(self, block_hash: str) -> Json | None:
        """Return the block's JSON response, with transaction hashes."""
        return self._one("SELECT body FROM block WHERE hash = ?", block_hash)

    def transaction(self, tx_hash: str) -> Json | None:
        """Return the transaction's JSON response."""
        return self._one("SELECT body FROM tx WHERE hash = ?", tx_hash)

    def receipt(self, tx_hash: str) -> Json | None:
        """Return the receipt's JSON response."""
        return self._one("SELECT receipt FROM tx WHERE hash = ?", tx_hash)

    def transactions_of(self, number: int) -> list[Json]:
        """Return all transactions of a block in order."""
        rows = self._connection.execute("SELECT body FROM tx WHERE block_number = ? ORDER BY position", (number,))
        return [json.loads(row[0]) for row in rows]

    def logs(self, first: int, last: int, addresses: Sequence[str]) -> Iterator[Json]:
        """Return the logs of these addresses (of all when empty) in a range of blocks, in order."""
        query = "SELECT body FROM log WHERE block_number BETWEEN ? AND ?"
        if addresses:
            query += f" AND address IN ({','.join('?' * len(addresses))})"
        rows = self._connection.execute(query + " ORDER BY block_number, log_index", (first, last, *addresses))
        for row in rows.fetchall():
            yield json.loads(row[0])

    def _one(self, query: str, key: int | str) -> Json | None:
        row = self._connection.execute(query, (key,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))
