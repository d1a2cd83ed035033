"""What the relayer adds to holds on the escrow contract, on Postgres."""

import json
from collections.abc import Sequence
from typing import Any, final

from typing_extensions import override

from sightline.domain.session.codec import consent_doc, consent_of
from sightline.domain.units import MicroUsdc
from sightline.ports.escrow import HoldExtension
from sightline.ports.ledger import Attempt
from sightline.storage.postgres.money.outbox import OutboxSql, PostgresTransactions, outbox_fields

_COLUMNS = """
session_id::text, of_session::text, session_id_hash, amount, consent::text, state, lane, reason, tx_hash, block_number,
block_hash, log_index, confirmed_at_ms, retry_at_ms, tries, notified, composed_at_ms, updated_at_ms
"""
_SQL = OutboxSql.of(
    "hold_extension", "extension_attempt", _COLUMNS, place="log_index = $5", no_place="log_index = NULL"
)
# One that was given up is asked for again by a repeat of its call.
_REQUEST = """
INSERT INTO hold_extension AS e (session_id, of_session, session_id_hash, amount, consent, state, retry_at_ms,
  composed_at_ms, updated_at_ms)
VALUES ($1, $2, $3, $4, $5, 'COMPOSED', $6, $6, $6)
ON CONFLICT (session_id) DO UPDATE SET state = 'COMPOSED', lane = 'PAYABLE', reason = NULL, retry_at_ms = $6,
  updated_at_ms = $6 WHERE e.state = 'WRITTEN_OFF'
"""
_WITHDRAW = """
UPDATE hold_extension SET state = 'WRITTEN_OFF', updated_at_ms = $2
WHERE session_id = $1 AND state IN ('COMPOSED', 'REVERTED', 'FAILED')
"""
_IS_WITHDRAWN = "SELECT EXISTS (SELECT FROM hold_extension WHERE session_id = $1 AND state = 'WRITTEN_OFF')"
_REVIVE = """
UPDATE hold_extension e SET state = 'COMPOSED', lane = 'PAYABLE', reason = NULL, retry_at_ms = 0
WHERE of_session = ANY($1::uuid[]) AND state = 'WRITTEN_OFF'
  AND EXISTS (SELECT FROM extension_attempt a WHERE a.session_id = e.session_id)
"""


@final
class PostgresExtensions(PostgresTransactions[HoldExtension]):
    """Implements `ExtensionOutbox` with two tables."""

    SQL = _SQL

    @override
    def _record(self, row: Any, attempts: tuple[Attempt, ...]) -> HoldExtension:
        consent = consent_of(json.loads(row["consent"]))
        assert consent is not None, "an extension has a consent"
        return HoldExtension(
            **outbox_fields(row, attempts),
            of_session=row["of_session"],
            amount=MicroUsdc(int(row["amount"])),
            consent=consent,
            log_index=row["log_index"],
        )

    async def extension(self, extension_id: str) -> HoldExtension | None:
        """Return one extension."""
        return next(iter(await self._records(_SQL.of_sessions, [extension_id])), None)

    async def request(self, extension: HoldExtension, *, now_ms: int) -> None:
        """Ask for an extension."""
        await self._execute(
            _REQUEST, extension.session_id, extension.of_session, extension.session_id_hash, extension.amount,
            json.dumps(consent_doc(extension.consent)), now_ms,
        )  # fmt: skip

    async def withdraw(self, extension_id: str, *, now_ms: int) -> bool:
        """Give up an extension that was not sent, and return whether it is given up."""
        await self._execute(_WITHDRAW, extension_id, now_ms)
        return bool(await self._database.read(lambda connection: connection.fetchval(_IS_WITHDRAWN, extension_id)))

    async def revive(self, session_ids: Sequence[str]) -> None:
        """Look again for extensions of these sessions that were signed and then given up."""
        await self._execute(_REVIVE, list(session_ids))
