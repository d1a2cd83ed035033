"""The mandates under which workspaces pay for their sessions, on Postgres."""

import json
from typing import Final, final

from sightline.domain.escrow import SignedMandate
from sightline.domain.session.codec import mandate_doc, mandate_of
from sightline.storage.database.bridge import Database

_SET: Final = """
INSERT INTO mandate (workspace_id, mandate, signed_at_ms) VALUES ($1, $2, $3)
ON CONFLICT (workspace_id) DO UPDATE SET mandate = $2, signed_at_ms = $3
"""
_GET: Final = "SELECT mandate::text FROM mandate WHERE workspace_id = $1"
_DROP: Final = "DELETE FROM mandate WHERE workspace_id = $1"


@final
class PostgresMandates:
    """Implements `Mandates`: one for each workspace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def mandate(self, workspace_id: str) -> SignedMandate | None:
        """Return the mandate of a workspace."""
        text = await self._database.read(lambda connection: connection.fetchval(_GET, workspace_id))
        return None if text is None else mandate_of(json.loads(text))

    async def keep(self, workspace_id: str, mandate: SignedMandate, *, now_ms: int) -> None:
        """Store the mandate of a workspace in place of an earlier one."""
        document = json.dumps(mandate_doc(mandate))
        await self._database.run(lambda connection: connection.execute(_SET, workspace_id, document, now_ms))

    async def drop(self, workspace_id: str) -> None:
        """Forget the mandate of a workspace."""
        await self._database.run(lambda connection: connection.execute(_DROP, workspace_id))
