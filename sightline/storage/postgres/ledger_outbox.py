"""The settlement outbox on Postgres."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sightline.domain.session.codec import from_doc
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.ports.ledger import (
    Attempt,
    BlockRef,
    Inclusion,
    NonceTakenError,
    SessionProof,
    SettlementLane,
    SettlementRecord,
    SettlementState,
)
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.json import load
from sightline.storage.postgres.ledger_sql import compose_settlement, payload_of
from sightline.storage.postgres.role_database import RoleDatabase

_COLUMNS = """
session_id::text, session_id_hash, payload::text, state, reason, tx_hash, block_number, block_hash, confirmed_at_ms,
retry_at_ms, tries, notified, composed_at_ms, updated_at_ms, lane, log_index,
chain_from, chain_to, chain_to_amount, chain_fee_amount, chain_rate, chain_seconds, chain_fee_bps
"""
_ROWS = f"SELECT {_COLUMNS} FROM settlement "  # noqa: S608  # constants
_ONE = _ROWS + "WHERE session_id = $1"
_BY_STATE = _ROWS + "WHERE state = ANY($1::text[]) ORDER BY composed_at_ms, session_id LIMIT $2"
# The states are literals, so that the planner can use the partial indexes.
_IN_FLIGHT = _ROWS + "WHERE state IN ('SIGNED', 'SENT', 'STUCK', 'MINED') ORDER BY composed_at_ms, session_id LIMIT $1"
_DUE = _ROWS + (
    "WHERE state IN ('COMPOSED', 'REVERTED', 'FAILED') AND lane = $1 AND retry_at_ms <= $2 "
    "ORDER BY retry_at_ms, composed_at_ms, session_id LIMIT $3"
)
_SESSIONS_OF_TX = "SELECT session_id::text FROM settlement_attempt WHERE tx_hash = $1 ORDER BY position"
_OF_SESSIONS = _ROWS + "WHERE session_id = ANY($1::uuid[]) ORDER BY array_position($1::uuid[], session_id)"
_PROOFS = """
SELECT s.id::text, s.doc, s.version, h.payer, h.amount FROM session s JOIN hold h ON h.session_id = s.id
WHERE s.id = ANY($1::uuid[]) AND s.state = 'ENDED' AND h.state = 'CHARGE'
"""
_SPENDABLE = """
SELECT address, wallet_spendable(w, $2) AS spendable FROM wallet_state w
WHERE address = ANY($1::text[]) AND NOT needs_reading
"""
_BESIDE_CHARGES = """
SELECT address, wallet_spendable(w, $2)
  - coalesce((SELECT sum(h.amount) FROM hold h WHERE h.payer = w.address AND h.state = 'CHARGE'), 0) AS left_over
FROM wallet_state w WHERE address = ANY($1::text[]) AND NOT needs_reading
"""
_UNTOLD = _ROWS + "WHERE state = 'CONFIRMED' AND NOT notified ORDER BY composed_at_ms LIMIT 1000"
_TO_RECHECK = f"""
{_ROWS} AS s WHERE state IN ('MINED', 'CONFIRMED', 'MISMATCHED')
  AND block_number >= (SELECT min(number) FROM chain_header)
  AND NOT EXISTS (SELECT FROM chain_header h WHERE h.number = s.block_number AND h.block_hash = s.block_hash)
ORDER BY block_number
"""  # noqa: S608  # constants
_ABOVE = _ROWS + "WHERE block_number > $1 AND state IN ('MINED', 'CONFIRMED', 'MISMATCHED') ORDER BY block_number"
_ATTEMPTS_AT = """
SELECT session_id::text, nonce, tx_hash, raw, max_fee_wei, tip_wei, signed_at_ms, sent_at_ms
FROM settlement_attempt WHERE relayer = $1 AND nonce = $2 ORDER BY position
"""
_ATTEMPTS = """
SELECT session_id::text, nonce, tx_hash, raw, max_fee_wei, tip_wei, signed_at_ms, sent_at_ms
FROM settlement_attempt WHERE session_id = ANY($1::uuid[]) ORDER BY position
"""
_LOCK_NONCE = """
INSERT INTO relayer_key (relayer) VALUES ($1) ON CONFLICT (relayer) DO UPDATE SET relayer = $1 RETURNING next_nonce
"""
_ANY_IN_FLIGHT = """
SELECT EXISTS (
  SELECT FROM settlement WHERE session_id = ANY($1::uuid[]) AND state IN ('SIGNED', 'SENT', 'STUCK', 'MINED'))
"""
_ADD_ATTEMPTS = """
INSERT INTO settlement_attempt (session_id, relayer, nonce, tx_hash, raw, max_fee_wei, tip_wei, signed_at_ms)
SELECT s, $1, n, t, r, f, p, $8 FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::bytea[], $6::numeric[],
  $7::numeric[]) AS a(s, n, t, r, f, p)
ON CONFLICT (tx_hash, session_id) DO NOTHING
"""
_SIGNED = """
UPDATE settlement SET state = 'SIGNED', reason = NULL, tx_hash = a.t, updated_at_ms = $3,
  retry_at_ms = 0, block_number = NULL, block_hash = NULL, log_index = NULL
FROM unnest($1::uuid[], $2::text[]) AS a(s, t)
WHERE session_id = a.s AND state NOT IN ('MINED', 'CONFIRMED', 'MISMATCHED', 'WRITTEN_OFF')
"""
_SENT_ATTEMPTS = "UPDATE settlement_attempt SET sent_at_ms = coalesce(sent_at_ms, $2) WHERE tx_hash = ANY($1::text[])"
_SENT = """
UPDATE settlement SET state = CASE state WHEN 'STUCK' THEN state ELSE 'SENT' END,
  reason = CASE state WHEN 'STUCK' THEN reason END, updated_at_ms = $2
WHERE state IN ('SIGNED', 'SENT', 'STUCK') AND session_id IN (
  SELECT session_id FROM settlement_attempt WHERE tx_hash = ANY($1::text[]))
"""
_MINED = """
UPDATE settlement SET state = 'MINED', reason = NULL, tx_hash = $2, block_number = $3, block_hash = $4,
  log_index = $5, updated_at_ms = $6 WHERE session_id = $1 AND state NOT IN ('CONFIRMED', 'MISMATCHED', 'WRITTEN_OFF')
"""
_CONFIRMED = """
UPDATE settlement SET state = 'CONFIRMED', reason = NULL, tx_hash = $2, block_number = $3, block_hash = $4,
  log_index = $5, confirmed_at_ms = coalesce(confirmed_at_ms, $6), updated_at_ms = $6, tries = 0,
  notified = notified AND tx_hash = $2
WHERE session_id = $1 AND (state, tx_hash, block_hash) IS DISTINCT FROM ('CONFIRMED', $2, $4)
"""
_UNMINED = """
UPDATE settlement SET state = 'SENT', reason = $2, block_number = NULL, block_hash = NULL, log_index = NULL,
  updated_at_ms = $3, chain_from = NULL, chain_to = NULL, chain_to_amount = NULL, chain_fee_amount = NULL,
  chain_rate = NULL, chain_seconds = NULL, chain_fee_bps = NULL
WHERE session_id = $1 AND state IN ('MINED', 'CONFIRMED', 'MISMATCHED')
"""
_WAIT = """
UPDATE settlement SET state = $2, reason = $3, retry_at_ms = $4, tries = tries + 1, updated_at_ms = $5,
  lane = coalesce($6, lane)
WHERE session_id = $1 AND state NOT IN ('CONFIRMED', 'MISMATCHED', 'WRITTEN_OFF')
"""
_MISMATCHED = """
UPDATE settlement SET state = 'MISMATCHED', reason = 'the contract settled other amounts', tx_hash = $2,
  block_number = $3, block_hash = $4, log_index = $5, updated_at_ms = $6, tries = 0, confirmed_at_ms = $6,
  chain_from = $7, chain_to = $8, chain_to_amount = $9, chain_fee_amount = $10, chain_rate = $11, chain_seconds = $12,
  chain_fee_bps = $13
WHERE session_id = $1
"""
_WRITE_OFF = """
UPDATE settlement SET state = 'WRITTEN_OFF', reason = $2, updated_at_ms = $3
WHERE session_id = $1 AND state IN ('COMPOSED', 'REVERTED', 'FAILED') RETURNING true
"""
# The hold is locked before the look: the watcher that applies a block with the payment changes it.
_LOCK_HOLD = "SELECT FROM hold WHERE session_id = $1 FOR UPDATE"
_IS_PAID = """
SELECT EXISTS (SELECT FROM hold WHERE session_id = $1 AND released_block IS NOT NULL)
  OR EXISTS (SELECT FROM unknown_payment p JOIN settlement t USING (session_id_hash) WHERE t.session_id = $1)
  OR EXISTS (SELECT FROM adopted_payment p JOIN settlement t USING (session_id_hash) WHERE t.session_id = $1)
"""
_GIVE_UP_HOLD = "UPDATE hold SET state = 'RELEASED', updated_at_ms = $2 WHERE session_id = $1"


class PostgresOutbox:
    """Implements `SettlementOutbox` with three tables. On a `RoleDatabase` it writes only while the role is held."""

    def __init__(self, database: Database | RoleDatabase) -> None:
        self._database = database

    async def compose(self, payload: SettlementPayload, *, now_ms: int) -> None:
        """Add the settlement of an ended session."""
        await self._database.run(lambda connection: compose_settlement(connection, payload, now_ms=now_ms))

    async def settlement(self, session_id: str) -> SettlementRecord | None:
        """Return the settlement of one session."""
        records = await self._records(_ONE, session_id)
        return records[0] if records else None

    async def settlements(self, states: Sequence[SettlementState], *, limit: int) -> list[SettlementRecord]:
        """Return settlements in these states, oldest first."""
        return await self._records(_BY_STATE, [state.value for state in states], limit)

    async def settlements_in_flight(self, *, limit: int) -> list[SettlementRecord]:
        """Return settlements whose transaction may still be mined or is not deep enough, oldest first."""
        return await self._records(_IN_FLIGHT, limit)

    async def settlements_due(self, lane: SettlementLane, *, now_ms: int, limit: int) -> list[SettlementRecord]:
        """Return settlements of a lane whose retry time has passed, longest due first."""
        return await self._records(_DUE, lane.value, now_ms, limit)

    async def settlements_in(self, tx_hash: str) -> list[SettlementRecord]:
        """Return the settlements of one transaction."""
        rows = await self._database.read(lambda connection: connection.fetch(_SESSIONS_OF_TX, tx_hash))
        return await self._records(_OF_SESSIONS, [row["session_id"] for row in rows])

    async def proofs(self, session_ids: Sequence[str]) -> dict[str, SessionProof]:
        """Return the recorded ends and holds of sessions."""
        rows = await self._database.read(lambda connection: connection.fetch(_PROOFS, list(session_ids)))
        found: dict[str, SessionProof] = {}
        for row in rows:
            session = from_doc(load(row["doc"]), row["version"])
            proof = SessionProof.of(session, held_of=row["payer"], held_micro=int(row["amount"]))
            if proof is not None:
                found[row["id"]] = proof
        return found

    async def spendable(self, payers: Sequence[str], *, now_ms: int) -> dict[str, int]:
        """Return the amount that could be charged to each wallet now, by its last reading."""
        by_address = {payer.lower(): payer for payer in payers}
        rows = await self._database.read(lambda connection: connection.fetch(_SPENDABLE, list(by_address), now_ms))
        return {by_address[row["address"]]: int(row["spendable"]) for row in rows}

    async def funds_beside_charges(self, payers: Sequence[str], *, now_ms: int) -> dict[str, int]:
        """Return what each payer could pay besides its charges that are not settled yet."""
        by_address = {payer.lower(): payer for payer in payers}
        rows = await self._database.read(lambda connection: connection.fetch(_BESIDE_CHARGES, list(by_address), now_ms))
        return {by_address[row["address"]]: int(row["left_over"]) for row in rows}

    async def unnotified(self) -> list[SettlementRecord]:
        """Return CONFIRMED settlements that were not reported yet."""
        return await self._records(_UNTOLD)

    async def chain_head(self) -> BlockRef | None:
        """Return the last applied block."""
        row = await self._database.read(
            lambda connection: connection.fetchrow("SELECT number, block_hash, parent_hash FROM chain_cursor")
        )
        return None if row is None else block_of(row)

    async def settlements_to_recheck(self) -> list[SettlementRecord]:
        """Return mined settlements whose block is not the one that the watcher applied."""
        return await self._records(_TO_RECHECK)

    async def settlements_above(self, block_number: int) -> list[SettlementRecord]:
        """Return MINED, CONFIRMED and MISMATCHED settlements in blocks above this one."""
        return await self._records(_ABOVE, block_number)

    async def attempts_at(self, relayer: str, nonce: int) -> list[Attempt]:
        """Return every transaction signed with this nonce, oldest first."""
        rows = await self._database.read(lambda connection: connection.fetch(_ATTEMPTS_AT, relayer.lower(), nonce))
        return [_attempt(row) for row in rows]

    async def _records(self, query: str, *arguments: Any) -> list[SettlementRecord]:
        async def unit(connection: Connection) -> list[SettlementRecord]:
            rows = await connection.fetch(query, *arguments)
            attempts = await connection.fetch(_ATTEMPTS, [row["session_id"] for row in rows]) if rows else []
            by_session: dict[str, list[Attempt]] = {}
            for row in attempts:
                by_session.setdefault(row["session_id"], []).append(_attempt(row))
            return [settlement_of(row, tuple(by_session.get(row["session_id"], ()))) for row in rows]

        return await self._database.read(unit)

    async def free_batch_at_ms(self, relayer: str) -> int:
        """Return when this key last signed a batch of free sessions."""
        value = await self._database.read(
            lambda connection: connection.fetchval(
                "SELECT free_batch_at_ms FROM relayer_key WHERE relayer = $1", relayer.lower()
            )
        )
        return int(value or 0)

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
                for row in await connection.fetch(_ATTEMPTS, sorted({attempt.session_id for attempt in attempts}))
            }
            fresh = [item for item in attempts if (item.session_id, item.nonce) not in known]
            if any(attempt.nonce < stored for attempt in fresh):
                raise NonceTakenError(f"the next nonce is {stored}")
            if fresh and await connection.fetchval(_ANY_IN_FLIGHT, [item.session_id for item in fresh]):
                raise NonceTakenError("a settlement is in flight under another nonce")
            columns = (
                [item.session_id for item in attempts], [item.nonce for item in attempts],
                [item.tx_hash for item in attempts], [item.raw for item in attempts],
                [item.max_fee_wei for item in attempts], [item.tip_wei for item in attempts],
            )  # fmt: skip
            await connection.execute(_ADD_ATTEMPTS, relayer.lower(), *columns, now_ms)
            await connection.execute(_SIGNED, columns[0], columns[2], now_ms)
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
        """Mark these transactions as accepted by the node."""

        async def unit(connection: Connection) -> None:
            await connection.execute(_SENT_ATTEMPTS, list(tx_hashes), now_ms)
            await connection.execute(_SENT, list(tx_hashes), now_ms)

        await self._database.transact(unit)

    async def mark_mined(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Mark the settlement as included in a block that is not deep enough yet."""
        await self._execute(_MINED, session_id, *_place(inclusion), now_ms)

    async def mark_confirmed(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Mark the settlement as included at the configured depth."""
        await self._execute(_CONFIRMED, session_id, *_place(inclusion), now_ms)

    async def mark_unmined(self, session_id: str, *, reason: str, now_ms: int) -> None:
        """Mark the settlement as in no block after a reorganisation."""
        await self._execute(_UNMINED, session_id, reason, now_ms)

    async def mark_waiting(
        self, session_id: str, state: SettlementState, *, reason: str, retry_at_ms: int, now_ms: int,
        lane: SettlementLane | None = None,
    ) -> None:  # fmt: skip
        """Put the settlement into a waiting state with the reason."""
        lane_name = None if lane is None else lane.value
        await self._execute(_WAIT, session_id, state.value, reason, retry_at_ms, now_ms, lane_name)

    async def mark_mismatched(
        self, session_id: str, inclusion: Inclusion, on_chain: SettlementPayload, *, now_ms: int
    ) -> None:
        """Mark the settlement as settled on the chain with other parties or numbers."""
        settled = (
            on_chain.from_address, on_chain.to_address, on_chain.to_amount, on_chain.fee_amount, on_chain.rate,
            on_chain.chargeable_seconds, on_chain.platform_fee_bps,
        )  # fmt: skip
        await self._execute(_MISMATCHED, session_id, *_place(inclusion), now_ms, *settled)

    async def write_off(self, session_id: str, *, reason: str, now_ms: int) -> SettlementRecord | None:
        """Write off a waiting settlement permanently and release its hold."""

        async def unit(connection: Connection) -> None:
            await connection.execute(_LOCK_HOLD, session_id)
            if await connection.fetchval(_IS_PAID, session_id):
                return
            if await connection.fetchval(_WRITE_OFF, session_id, reason, now_ms):
                await connection.execute(_GIVE_UP_HOLD, session_id, now_ms)

        await self._database.transact(unit)
        return await self.settlement(session_id)

    async def mark_notified(self, session_id: str) -> None:
        """Mark the settlement as reported."""
        await self._execute("UPDATE settlement SET notified = true WHERE session_id = $1", session_id)

    async def _execute(self, query: str, *arguments: Any) -> None:
        await self._database.run(lambda connection: connection.execute(query, *arguments))


def _place(inclusion: Inclusion) -> tuple[str, int, str, int | None]:
    return inclusion.tx_hash, inclusion.block_number, inclusion.block_hash, inclusion.log_index


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


def settlement_of(row: Any, attempts: tuple[Attempt, ...]) -> SettlementRecord:
    """The settlement in a stored row."""
    payload = payload_of(row["payload"])
    return SettlementRecord(
        session_id=row["session_id"],
        session_id_hash=row["session_id_hash"],
        payload=payload,
        state=SettlementState(row["state"]),
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
        lane=SettlementLane(row["lane"]),
        on_chain=_on_chain(row, payload),
        log_index=row["log_index"],
        attempts=attempts,
    )


def _on_chain(row: Any, payload: SettlementPayload) -> SettlementPayload | None:
    if row.get("chain_from") is None:  # webhooks that earlier versions stored have no such column
        return None
    return replace(
        payload,
        from_address=row["chain_from"],
        to_address=row["chain_to"],
        to_amount=MicroUsdc(int(row["chain_to_amount"])),
        fee_amount=MicroUsdc(int(row["chain_fee_amount"])),
        rate=MicroUsdc(int(row["chain_rate"])),
        chargeable_seconds=int(row["chain_seconds"]),
        platform_fee_bps=int(row["chain_fee_bps"]),
    )
