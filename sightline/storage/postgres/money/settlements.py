"""The settlement outbox on Postgres."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from sightline.domain.session.codec import from_doc
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import (
    Attempt,
    Inclusion,
    SessionProof,
    SettlementRecord,
    SettlementState,
)
from sightline.storage.database.pool import Connection
from sightline.storage.json import load
from sightline.storage.postgres.money.holds import compose_settlement, payload_of
from sightline.storage.postgres.money.journal import write_off_in_journal
from sightline.storage.postgres.money.outbox import OutboxSql, PostgresTransactions, outbox_fields

_COLUMNS = """
session_id::text, session_id_hash, payload::text, state, reason, tx_hash, block_number, block_hash, confirmed_at_ms,
retry_at_ms, tries, notified, composed_at_ms, updated_at_ms, lane, log_index,
chain_from, chain_to, chain_to_amount, chain_fee_amount, chain_rate, chain_seconds, chain_fee_bps
"""
_SQL = OutboxSql.of(
    "settlement", "settlement_attempt", _COLUMNS, place="log_index = $5",
    no_place="""log_index = NULL, chain_from = NULL, chain_to = NULL, chain_to_amount = NULL, chain_fee_amount = NULL,
      chain_rate = NULL, chain_seconds = NULL, chain_fee_bps = NULL""",
)  # fmt: skip
_ROWS = _SQL.rows
_ONE = _ROWS + "WHERE session_id = $1"
_BY_STATE = _ROWS + "WHERE state = ANY($1::text[]) ORDER BY composed_at_ms, session_id LIMIT $2"
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


class PostgresOutbox(PostgresTransactions[SettlementRecord]):
    """Implements `SettlementOutbox` with three tables."""

    SQL = _SQL

    @override
    def _record(self, row: Any, attempts: tuple[Attempt, ...]) -> SettlementRecord:
        return settlement_of(row, attempts)

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

    async def free_batch_at_ms(self, relayer: str) -> int:
        """Return when this key last signed a batch of free sessions."""
        value = await self._database.read(
            lambda connection: connection.fetchval(
                "SELECT free_batch_at_ms FROM relayer_key WHERE relayer = $1", relayer.lower()
            )
        )
        return int(value or 0)

    async def mark_mismatched(
        self, session_id: str, inclusion: Inclusion, on_chain: SettlementPayload, *, now_ms: int
    ) -> None:
        """Mark the settlement as settled on the chain with other parties or numbers."""
        settled = (
            on_chain.from_address, on_chain.to_address, on_chain.to_amount, on_chain.fee_amount, on_chain.rate,
            on_chain.chargeable_seconds, on_chain.platform_fee_bps,
        )  # fmt: skip
        await self._execute(_MISMATCHED, session_id, *self._at_block(inclusion), now_ms, *settled)

    async def write_off(self, session_id: str, *, reason: str, now_ms: int) -> SettlementRecord | None:
        """Write off a waiting settlement permanently and release its hold."""

        async def unit(connection: Connection) -> None:
            await connection.execute(_LOCK_HOLD, session_id)
            if await connection.fetchval(_IS_PAID, session_id):
                return
            if await connection.fetchval(_WRITE_OFF, session_id, reason, now_ms):
                await connection.execute(_GIVE_UP_HOLD, session_id, now_ms)
                await write_off_in_journal(connection, session_id, now_ms)

        await self._database.transact(unit)
        return await self.settlement(session_id)


def settlement_of(row: Any, attempts: tuple[Attempt, ...]) -> SettlementRecord:
    """The settlement in a stored row."""
    payload = payload_of(row["payload"])
    return SettlementRecord(
        **outbox_fields(row, attempts),
        payload=payload,
        on_chain=_on_chain(row, payload),
        log_index=row["log_index"],
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
