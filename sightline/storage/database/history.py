"""Recognises a database that is older than what was seen, or another one. Used on the asyncio thread only.

Postgres accepts writes on a former primary that was started without `standby.signal`, and on a copy of yesterday. Both
look healthy. What gives them away:

- The system identifier: each initdb, and so each dump that is restored into a new cluster, makes a new one.
- The timeline: each promotion raises it, and a former primary stays on the one before.
- The end of the write-ahead log, on one timeline: it never moves back, also not in a crash.
- What is committed and only grows: how often shards were taken, and how many transactions the relayer has signed.
  This tells a promoted standby that lacks acknowledged commits.

An ordinary role may read all of this. A service that looks like Postgres and lacks the functions is told by the last.
"""

from typing import Any, Final, TypeAlias, final

import asyncpg
import structlog

from sightline.domain.value import Value

Connection: TypeAlias = asyncpg.Connection
"""Untyped: asyncpg ships no types."""

_CLUSTER: Final = """
SELECT (SELECT system_identifier::text FROM pg_control_system()) AS system_identifier,
  CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_flush_lsn()) END AS wal_file,
  CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_flush_lsn() - '0/0')::bigint END AS wal_bytes,
  to_regclass('relayer_key') IS NOT NULL AS has_tables
"""
_PROGRESS: Final = """
SELECT (SELECT coalesce(sum(epoch), 0)::bigint FROM shard) AS take_overs,
  (SELECT coalesce(sum(next_nonce), 0)::bigint FROM relayer_key) AS signed
"""
_LACKS = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedFunctionError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)
"""Errors of a server that does not say which cluster it is."""
log = structlog.get_logger("sightline.database")

TIMELINE_DIGITS: Final = 8
"""The name of a file of the write-ahead log begins with its timeline, in hex."""


@final
class DatabasePosition(Value, kw_only=True):
    """Which database this is and how far it is. None: the server does not say."""

    system_identifier: str | None
    timeline: int | None
    wal_bytes: int | None
    """Where the flushed part of the write-ahead log ends."""
    take_overs: int
    """Sum of the epochs of all shards."""
    signed: int
    """Transactions that relayers have signed."""

    @property
    def is_used(self) -> bool:
        """Whether a server has ever used the database: the first thing that one writes is that it takes its shards."""
        return self.take_overs > 0 or self.signed > 0

    def difference(self, found: "DatabasePosition") -> str | None:
        """Say why a database cannot be the one that was at this position before; None if it can."""
        if not found.is_used and self.is_used:
            return (
                "it is empty: no server has ever used it, and everything that was stored before is missing: shards "
                f"were taken {self.take_overs} times and {self.signed} transactions were signed"
            )
        known, named = self.system_identifier, found.system_identifier
        if known is not None and named is not None and named != known:
            return f"its system identifier is {named}, and {known} was used before"
        if self.timeline is not None and found.timeline is not None and found.timeline < self.timeline:
            return f"it is on timeline {found.timeline}, a former primary: timeline {self.timeline} was used before"
        if found.take_overs < self.take_overs:
            return f"it is older: its shards were taken {found.take_overs} times, and {self.take_overs} were seen"
        if found.signed < self.signed:
            return f"it is older: it has {found.signed} signed transactions, and {self.signed} were seen"
        if self.timeline is not None and found.timeline == self.timeline:
            end, seen = found.wal_bytes or 0, self.wal_bytes or 0
            if end < seen:
                return f"it is older: its log ends at byte {end}, and {seen} was seen"
        return None

    def advanced_by(self, found: "DatabasePosition") -> "DatabasePosition":
        """Return the newest of two positions of one database, of which either may be the later one."""
        timeline, wal_bytes = max((each.timeline or 0, each.wal_bytes or 0) for each in (self, found))
        return DatabasePosition(
            system_identifier=self.system_identifier or found.system_identifier,
            timeline=timeline or None,
            wal_bytes=wal_bytes or None,
            take_overs=max(self.take_overs, found.take_overs),
            signed=max(self.signed, found.signed),
        )


class StaleDatabaseError(ConnectionError):
    """The host leads to a database that is older than what was seen, or to another one; the message says why."""


async def read_position(connection: Connection) -> DatabasePosition:
    """Read which database a connection leads to. Tables that do not exist yet count as empty.

    Raises:
        OSError, asyncpg.PostgresError: The connection is lost.
    """
    try:
        cluster: Any = await connection.fetchrow(_CLUSTER)
    except _LACKS:
        has_tables = await connection.fetchval("SELECT to_regclass('relayer_key') IS NOT NULL")
        cluster = {"system_identifier": None, "wal_file": None, "wal_bytes": None, "has_tables": has_tables}
    progress: Any = {"take_overs": 0, "signed": 0}
    if cluster["has_tables"]:
        progress = await connection.fetchrow(_PROGRESS)
    wal_file = cluster["wal_file"]
    return DatabasePosition(
        system_identifier=cluster["system_identifier"],
        timeline=None if wal_file is None else int(wal_file[:TIMELINE_DIGITS], 16),
        wal_bytes=cluster["wal_bytes"],
        take_overs=progress["take_overs"],
        signed=progress["signed"],
    )


@final
class HistoryGuard:
    """Admits connections to the database that was seen, and remembers how far it was."""

    def __init__(self, seen: DatabasePosition | None) -> None:
        """Begin with what was seen before; None: the first connection says which database it is."""
        self.seen = seen
        self.primaries = 1
        """Hosts of the database that accepted writes when they were last asked; whoever asks them sets it."""
        self._is_refusing = False
        """The last connection was refused, and that is logged."""

    async def admit(self, connection: Connection) -> None:
        """Check a new connection.

        Raises:
            StaleDatabaseError: It leads to an older database, or to another one.
        """
        expected = self.seen  # read before: what other connections see meanwhile may be later than this one's answer
        found = await read_position(connection)
        difference = None if expected is None else expected.difference(found)
        if difference is not None:
            if not self._is_refusing:
                log.error("database_refused", reason=difference)
            self._is_refusing = True
            raise StaleDatabaseError(difference)
        self._is_refusing = False
        self.note(found)

    def note(self, found: DatabasePosition) -> None:
        """Remember a position of the database that was admitted."""
        self.seen = found if self.seen is None else self.seen.advanced_by(found)
