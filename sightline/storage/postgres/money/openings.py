"""The holds that the relayer opens on the escrow contract, on Postgres."""

import json
from collections.abc import Sequence
from typing import Any, final

from typing_extensions import override

from sightline.domain.escrow import PayerConsent
from sightline.domain.session.codec import consent_doc, consent_of, from_doc
from sightline.domain.session.model import Session
from sightline.domain.units import MicroUsdc
from sightline.ports.escrow import HoldOpening
from sightline.ports.ledger import Attempt, Inclusion
from sightline.storage.json import load
from sightline.storage.postgres.money.outbox import OutboxSql, PostgresTransactions, outbox_fields

_COLUMNS = """
session_id::text, session_id_hash, payer, payee, max_amount, rate, fee_bps, consent::text, state, lane, reason, tx_hash,
block_number, block_hash, opened_at_s, confirmed_at_ms, retry_at_ms, tries, notified, composed_at_ms, updated_at_ms,
extended_amount(session_id) AS extended
"""
_SQL = OutboxSql.of(
    "hold_opening", "opening_attempt", _COLUMNS, place="opened_at_s = $5", no_place="opened_at_s = NULL"
)
_SESSIONS = "SELECT id::text, doc, version FROM session WHERE id = ANY($1::uuid[])"
# A refused hold is asked for again by the next start. One whose transaction may be mined is left alone.
_REQUEST = """
INSERT INTO hold_opening AS o (session_id, session_id_hash, payer, payee, max_amount, rate, fee_bps, consent, state,
  retry_at_ms, composed_at_ms, updated_at_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'COMPOSED', $9, $9, $9)
ON CONFLICT (session_id) DO UPDATE SET state = 'COMPOSED', lane = 'PAYABLE', reason = NULL, retry_at_ms = $9,
  updated_at_ms = $9 WHERE o.state IN ('REVERTED', 'FAILED')
"""
_WITHDRAW = """
UPDATE hold_opening SET state = 'WRITTEN_OFF', updated_at_ms = $2
WHERE session_id = $1 AND state IN ('COMPOSED', 'REVERTED', 'FAILED')
"""
_IS_WITHDRAWN = """
SELECT NOT EXISTS (SELECT FROM hold_opening WHERE session_id = $1 AND state <> 'WRITTEN_OFF')
"""

# Holds that were signed, so that a transaction may have cost gas, and whose session was charged nothing.
_UNPAID = """
SELECT o.composed_at_ms FROM hold_opening o JOIN settlement t USING (session_id)
WHERE o.payer = $1 AND o.composed_at_ms >= $2 AND (t.payload ->> 'toAmount')::numeric = 0
  AND (t.payload ->> 'feeAmount')::numeric = 0
  AND EXISTS (SELECT FROM opening_attempt a WHERE a.session_id = o.session_id)
ORDER BY o.composed_at_ms DESC LIMIT $3
"""
# A reorganisation has removed the hold or a confirmed extension, and the contract refuses to take the amount again.
_LOST = """
SELECT o.session_id::text FROM hold_opening o JOIN session s ON s.id = o.session_id
WHERE o.state IN ('REVERTED', 'FAILED') AND s.state = 'LIVE'
UNION SELECT e.of_session::text FROM hold_extension e JOIN session s ON s.id = e.of_session
WHERE e.state IN ('REVERTED', 'FAILED') AND e.confirmed_at_ms IS NOT NULL AND s.state = 'LIVE'
"""


@final
class PostgresOpenings(PostgresTransactions[HoldOpening]):
    """Implements `OpeningOutbox` with two tables."""

    SQL = _SQL

    @override
    def _record(self, row: Any, attempts: tuple[Attempt, ...]) -> HoldOpening:
        return HoldOpening(
            **outbox_fields(row, attempts),
            payer=row["payer"],
            payee=row["payee"],
            max_amount=MicroUsdc(int(row["max_amount"])),
            rate=MicroUsdc(int(row["rate"])),
            fee_bps=row["fee_bps"],
            consent=_consent(row["consent"]),
            opened_at_s=row["opened_at_s"],
            extended=MicroUsdc(int(row["extended"])),
        )

    @override
    def _place(self, inclusion: Inclusion) -> int | None:
        return inclusion.opened_at_s

    async def opening(self, session_id: str) -> HoldOpening | None:
        """Return the hold of one session."""
        return (await self.openings([session_id])).get(session_id)

    async def openings(self, session_ids: Sequence[str]) -> dict[str, HoldOpening]:
        """Return the holds of these sessions."""
        return {row.session_id: row for row in await self._records(_SQL.of_sessions, list(session_ids))}

    async def request(self, opening: HoldOpening, *, now_ms: int) -> None:
        """Ask for a hold."""
        await self._execute(
            _REQUEST, opening.session_id, opening.session_id_hash, opening.payer, opening.payee, opening.max_amount,
            opening.rate, opening.fee_bps, json.dumps(consent_doc(opening.consent)), now_ms,
        )  # fmt: skip

    async def withdraw(self, session_id: str, *, now_ms: int) -> bool:
        """Give up a hold that was not sent, and return whether the session has none."""

        await self._execute(_WITHDRAW, session_id, now_ms)
        return bool(await self._database.read(lambda connection: connection.fetchval(_IS_WITHDRAWN, session_id)))

    async def unpaid(self, payer: str, *, since_ms: int, limit: int) -> list[int]:
        """Return when the newest unpaid holds of a payer were asked for."""
        rows = await self._database.read(lambda connection: connection.fetch(_UNPAID, payer, since_ms, limit))
        return [row["composed_at_ms"] for row in rows]

    async def lost(self) -> list[str]:
        """Return the LIVE sessions whose hold, or a part of it, is no more."""
        rows = await self._database.read(lambda connection: connection.fetch(_LOST))
        return [row["session_id"] for row in rows]

    async def sessions(self, session_ids: Sequence[str]) -> dict[str, Session]:
        """Return the recorded sessions."""
        rows = await self._database.read(lambda connection: connection.fetch(_SESSIONS, list(session_ids)))
        return {row["id"]: from_doc(load(row["doc"]), row["version"]) for row in rows}


def _consent(text: str) -> PayerConsent:
    consent = consent_of(json.loads(text))
    assert consent is not None
    return consent
