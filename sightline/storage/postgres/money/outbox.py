"""Outboxes of the relayer on Postgres: rows for which it sends transactions, in one table each, with their attempts."""

# ruff: noqa: S608  # statements are built of constants only

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Generic, Self, TypedDict, final

from sightline.domain.value import Value
from sightline.ports.ledger import (
    Attempt,
    BlockRef,
    Inclusion,
    NonceTakenError,
    RecordT,
    SettlementLane,
    SettlementState,
)
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.role_database import RoleDatabase

_ATTEMPT = "session_id::text, nonce, tx_hash, raw, max_fee_wei, tip_wei, signed_at_ms, sent_at_ms"
# Nonces are those of a key, whatever its transactions are for.
_ATTEMPTS_AT = f"""
SELECT {_ATTEMPT}, position FROM settlement_attempt WHERE relayer = $1 AND nonce = $2
UNION ALL SELECT {_ATTEMPT}, position FROM opening_attempt WHERE relayer = $1 AND nonce = $2
UNION ALL SELECT {_ATTEMPT}, position FROM extension_attempt WHERE relayer = $1 AND nonce = $2
UNION ALL SELECT {_ATTEMPT}, position FROM permit_attempt WHERE relayer = $1 AND nonce = $2 ORDER BY position
"""
_LOCK_NONCE = """
INSERT INTO relayer_key (relayer) VALUES ($1) ON CONFLICT (relayer) DO UPDATE SET relayer = $1 RETURNING next_nonce
"""
CURSOR: Final = "SELECT number, block_hash, parent_hash FROM chain_cursor"


@final
class OutboxSql(Value, kw_only=True):
    """The statements of one outbox. States are literals, so that the planner can use the partial indexes."""

    rows: str
    has_work: str
    in_flight: str
    due: str
    sessions_of_tx: str
    of_sessions: str
    untold: str
    to_recheck: str
    above: str
    attempts: str
    any_in_flight: str
    add_attempts: str
    signed: str
    sent_attempts: str
    sent: str
    mined: str
    confirmed: str
    unmined: str
    wait: str
    notified: str

    @classmethod
    def of(cls, table: str, attempts: str, columns: str, *, place: str, no_place: str) -> Self:
        """Build the statements.

        Args:
            columns: What a row is read by.
            place: Sets what is known of the event from $5, such as "log_index = $5".
            no_place: Sets the same after a reorganisation.
        """
        rows = f"SELECT {columns} FROM {table} "
        on_chain = "state IN ('MINED', 'CONFIRMED', 'MISMATCHED')"
        final_states = "('CONFIRMED', 'MISMATCHED', 'WRITTEN_OFF')"
        in_flight = "state IN ('SIGNED', 'SENT', 'STUCK', 'MINED')"
        waiting = "state IN ('COMPOSED', 'REVERTED', 'FAILED')"
        lanes = " OR ".join(
            f"EXISTS (SELECT FROM {table} WHERE {waiting} AND lane = '{lane.value}' AND retry_at_ms <= $1)"
            for lane in SettlementLane
        )
        at_block = f"reason = NULL, tx_hash = $2, block_number = $3, block_hash = $4, {place}"
        return cls(
            rows=rows,
            has_work=f"SELECT EXISTS (SELECT FROM {table} WHERE {in_flight}) OR {lanes}",
            in_flight=rows + f"WHERE {in_flight} ORDER BY composed_at_ms, session_id LIMIT $1",
            due=rows + f"WHERE {waiting} AND lane = $1 AND retry_at_ms <= $2 "
            "ORDER BY retry_at_ms, composed_at_ms, session_id LIMIT $3",
            sessions_of_tx=f"SELECT session_id::text FROM {attempts} WHERE tx_hash = $1 ORDER BY position",
            of_sessions=rows + "WHERE session_id = ANY($1::uuid[]) ORDER BY array_position($1::uuid[], session_id)",
            untold=rows + "WHERE state = 'CONFIRMED' AND NOT notified ORDER BY composed_at_ms LIMIT 1000",
            to_recheck=f"""
            {rows} AS s WHERE {on_chain} AND block_number >= (SELECT min(number) FROM chain_header)
              AND NOT EXISTS (
                SELECT FROM chain_header h WHERE h.number = s.block_number AND h.block_hash = s.block_hash)
            ORDER BY block_number""",
            above=rows + f"WHERE block_number > $1 AND {on_chain} ORDER BY block_number",
            attempts=f"""
            SELECT {_ATTEMPT} FROM {attempts} WHERE session_id = ANY($1::uuid[]) ORDER BY position""",
            any_in_flight=f"""
            SELECT EXISTS (SELECT FROM {table} WHERE session_id = ANY($1::uuid[]) AND {in_flight})""",
            add_attempts=f"""
            INSERT INTO {attempts} (session_id, relayer, nonce, tx_hash, raw, max_fee_wei, tip_wei, signed_at_ms)
            SELECT s, $1, n, t, r, f, p, $8 FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::bytea[],
              $6::numeric[], $7::numeric[]) AS a(s, n, t, r, f, p)
            ON CONFLICT (tx_hash, session_id) DO NOTHING""",
            signed=f"""
            UPDATE {table} SET state = 'SIGNED', reason = NULL, tx_hash = a.t, updated_at_ms = $3, retry_at_ms = 0,
              block_number = NULL, block_hash = NULL, {no_place}
            FROM unnest($1::uuid[], $2::text[]) AS a(s, t)
            WHERE session_id = a.s AND state NOT IN ('MINED', 'CONFIRMED', 'MISMATCHED', 'WRITTEN_OFF')""",
            sent_attempts=f"""
            UPDATE {attempts} SET sent_at_ms = coalesce(sent_at_ms, $2) WHERE tx_hash = ANY($1::text[])""",
            sent=f"""
            UPDATE {table} SET state = CASE state WHEN 'STUCK' THEN state ELSE 'SENT' END,
              reason = CASE state WHEN 'STUCK' THEN reason END, updated_at_ms = $2
            WHERE state IN ('SIGNED', 'SENT', 'STUCK') AND session_id IN (
              SELECT session_id FROM {attempts} WHERE tx_hash = ANY($1::text[]))""",
            mined=f"""
            UPDATE {table} SET state = 'MINED', updated_at_ms = $6, {at_block}
            WHERE session_id = $1 AND state NOT IN {final_states}""",
            confirmed=f"""
            UPDATE {table} SET state = 'CONFIRMED', confirmed_at_ms = coalesce(confirmed_at_ms, $6),
              updated_at_ms = $6, tries = 0, notified = notified AND tx_hash IS NOT DISTINCT FROM $2, {at_block}
            WHERE session_id = $1 AND (state, tx_hash, block_hash) IS DISTINCT FROM ('CONFIRMED', $2, $4)""",
            unmined=f"""
            UPDATE {table} SET state = 'SENT', reason = $2, block_number = NULL, block_hash = NULL, updated_at_ms = $3,
              {no_place} WHERE session_id = $1 AND {on_chain}""",
            wait=f"""
            UPDATE {table} SET state = $2, reason = $3, retry_at_ms = $4, tries = tries + 1, updated_at_ms = $5,
              lane = coalesce($6, lane) WHERE session_id = $1 AND state NOT IN {final_states}""",
            notified=f"UPDATE {table} SET notified = true WHERE session_id = $1",
        )


class PostgresTransactions(Generic[RecordT]):
    """Implements `TransactionOutbox` with one table of rows and one of attempts.

    On a `RoleDatabase` it writes only while the role is held.
    """

    SQL: OutboxSql

    def __init__(self, database: Database | RoleDatabase) -> None:
        self._database = database

    @abstractmethod
    def _record(self, row: Any, attempts: tuple[Attempt, ...]) -> RecordT:
        """Return the record in a row of the table."""

    def _place(self, inclusion: Inclusion) -> Any:
        """Return what the table keeps of the contract's event."""
        return inclusion.log_index

    async def has_work(self, *, now_ms: int) -> bool:
        """Return whether a row is in flight, or due in any lane."""
        return bool(await self._database.read(lambda connection: connection.fetchval(self.SQL.has_work, now_ms)))

    async def in_flight(self, *, limit: int) -> list[RecordT]:
        """Return rows whose transaction may still be mined or is not deep enough, oldest first."""
        return await self._records(self.SQL.in_flight, limit)

    async def due(self, lane: SettlementLane, *, now_ms: int, limit: int) -> list[RecordT]:
        """Return rows of a lane whose retry time has passed, longest due first."""
        return await self._records(self.SQL.due, lane.value, now_ms, limit)

    async def of_transaction(self, tx_hash: str) -> list[RecordT]:
        """Return the rows of one transaction."""
        rows = await self._database.read(lambda connection: connection.fetch(self.SQL.sessions_of_tx, tx_hash))
        return await self._records(self.SQL.of_sessions, [row["session_id"] for row in rows])

    async def unnotified(self) -> list[RecordT]:
        """Return CONFIRMED rows that were not reported yet."""
        return await self._records(self.SQL.untold)

    async def chain_head(self) -> BlockRef | None:
        """Return the last applied block."""
        row = await self._database.read(lambda connection: connection.fetchrow(CURSOR))
        return None if row is None else block_of(row)

    async def to_recheck(self) -> list[RecordT]:
        """Return mined rows whose block is not the one that the watcher applied."""
        return await self._records(self.SQL.to_recheck)

    async def above_block(self, block_number: int) -> list[RecordT]:
        """Return MINED, CONFIRMED and MISMATCHED rows in blocks above this one."""
        return await self._records(self.SQL.above, block_number)

    async def attempts_at(self, relayer: str, nonce: int) -> list[Attempt]:
        """Return every transaction signed with this nonce, oldest first."""
        rows = await self._database.read(lambda connection: connection.fetch(_ATTEMPTS_AT, relayer.lower(), nonce))
        return [_attempt(row) for row in rows]

    async def _records(self, query: str, *arguments: Any) -> list[RecordT]:
        async def unit(connection: Connection) -> list[RecordT]:
            rows = await connection.fetch(query, *arguments)
            attempts = await connection.fetch(self.SQL.attempts, [row["session_id"] for row in rows]) if rows else []
            by_session: dict[str, list[Attempt]] = {}
            for row in attempts:
                by_session.setdefault(row["session_id"], []).append(_attempt(row))
            return [self._record(row, tuple(by_session.get(row["session_id"], ()))) for row in rows]

        return await self._database.read(unit)

    async def next_nonce(self, relayer: str) -> int:
        """Return the nonce after the last stored transaction of this key."""
        value = await self._database.read(
            lambda connection: connection.fetchval(
                "SELECT next_nonce FROM relayer_key WHERE relayer = $1", relayer.lower()
            )
        )
        return int(value or 0)

    async def store_signed(
        self, relayer: str, attempts: Sequence[Attempt], *, now_ms: int, is_free_batch: bool = False
    ) -> None:
        """Store signed transactions and use up their nonces."""

        async def unit(connection: Connection) -> None:
            stored = int(await connection.fetchval(_LOCK_NONCE, relayer.lower()))
            known = {
                (row["session_id"], row["nonce"])
                for row in await connection.fetch(
                    self.SQL.attempts, sorted({attempt.session_id for attempt in attempts})
                )
            }
            fresh = [item for item in attempts if (item.session_id, item.nonce) not in known]
            if any(attempt.nonce < stored for attempt in fresh):
                raise NonceTakenError(f"the next nonce is {stored}")
            if fresh and await connection.fetchval(self.SQL.any_in_flight, [item.session_id for item in fresh]):
                raise NonceTakenError("the session is in flight under another nonce")
            columns = (
                [item.session_id for item in attempts], [item.nonce for item in attempts],
                [item.tx_hash for item in attempts], [item.raw for item in attempts],
                [item.max_fee_wei for item in attempts], [item.tip_wei for item in attempts],
            )  # fmt: skip
            await connection.execute(self.SQL.add_attempts, relayer.lower(), *columns, now_ms)
            await connection.execute(self.SQL.signed, columns[0], columns[2], now_ms)
            following = max((item.nonce + 1 for item in attempts), default=0)
            await connection.execute(
                "UPDATE relayer_key SET next_nonce = greatest(next_nonce, $2), "
                "free_batch_at_ms = coalesce($3, free_batch_at_ms) WHERE relayer = $1",
                relayer.lower(),
                following,
                now_ms if is_free_batch else None,
            )

        await self._database.transact(unit)

    async def mark_sent(self, tx_hashes: Sequence[str], *, now_ms: int) -> None:
        """Record that the node accepted these transactions into its pool."""

        async def unit(connection: Connection) -> None:
            await connection.execute(self.SQL.sent_attempts, list(tx_hashes), now_ms)
            await connection.execute(self.SQL.sent, list(tx_hashes), now_ms)

        await self._database.transact(unit)

    async def mark_mined(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Mark the row as included in a block that is not deep enough yet."""
        await self._execute(self.SQL.mined, session_id, *self._at_block(inclusion), now_ms)

    async def mark_confirmed(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Mark the row as included at the configured depth."""
        await self._execute(self.SQL.confirmed, session_id, *self._at_block(inclusion), now_ms)

    async def mark_unmined(self, session_id: str, *, reason: str, now_ms: int) -> None:
        """Mark the row as in no block after a reorganisation."""
        await self._execute(self.SQL.unmined, session_id, reason, now_ms)

    async def mark_waiting(
        self, session_id: str, state: SettlementState, *, reason: str, retry_at_ms: int, now_ms: int,
        lane: SettlementLane | None = None,
    ) -> None:  # fmt: skip
        """Put the row into a waiting state with the reason."""
        lane_name = None if lane is None else lane.value
        await self._execute(self.SQL.wait, session_id, state.value, reason, retry_at_ms, now_ms, lane_name)

    async def mark_notified(self, session_id: str) -> None:
        """Mark the row as reported."""
        await self._execute(self.SQL.notified, session_id)

    async def _execute(self, query: str, *arguments: Any) -> None:
        await self._database.run(lambda connection: connection.execute(query, *arguments))

    def _at_block(self, inclusion: Inclusion) -> tuple[Any, ...]:
        return inclusion.tx_hash, inclusion.block_number, inclusion.block_hash, self._place(inclusion)


class OutboxFields(TypedDict):
    """What a row of each outbox has, as arguments of its record."""

    session_id: str
    session_id_hash: str
    state: SettlementState
    lane: SettlementLane
    reason: str | None
    tx_hash: str | None
    block_number: int | None
    block_hash: str | None
    confirmed_at_ms: int | None
    retry_at_ms: int
    tries: int
    notified: bool
    composed_at_ms: int
    updated_at_ms: int
    attempts: tuple[Attempt, ...]


def outbox_fields(row: Any, attempts: tuple[Attempt, ...]) -> OutboxFields:
    """Read what a row of each outbox has."""
    return OutboxFields(
        session_id=row["session_id"],
        session_id_hash=row["session_id_hash"],
        state=SettlementState(row["state"]),
        lane=SettlementLane(row["lane"]),
        reason=row["reason"],
        tx_hash=row["tx_hash"],
        block_number=row["block_number"],
        block_hash=row["block_hash"],
        confirmed_at_ms=row["confirmed_at_ms"],
        retry_at_ms=row["retry_at_ms"],
        tries=row["tries"],
        notified=row["notified"],
        composed_at_ms=row["composed_at_ms"],
        updated_at_ms=row["updated_at_ms"],
        attempts=attempts,
    )


def block_of(row: Any) -> BlockRef:
    """Return the block in a stored row."""
    return BlockRef(number=row["number"], block_hash=row["block_hash"], parent_hash=row["parent_hash"])


def _attempt(row: Any) -> Attempt:
    return Attempt(
        session_id=row["session_id"],
        nonce=row["nonce"],
        tx_hash=row["tx_hash"],
        raw=bytes(row["raw"]),
        max_fee_wei=int(row["max_fee_wei"]),
        tip_wei=int(row["tip_wei"]),
        signed_at_ms=row["signed_at_ms"],
        sent_at_ms=row["sent_at_ms"],
    )
