"""What waits to be sent on Postgres, of webhooks and of Web Push."""

from typing import Final, final

from sightline.ports.webhooks import Unsent
from sightline.storage.database.bridge import Database

_UNSENT: Final = """
SELECT EXISTS (SELECT FROM webhook_outbox WHERE retry_at_ms <= database_now_ms())
    OR EXISTS (SELECT FROM webhook_delivery WHERE state = 'PENDING') AS webhooks,
  EXISTS (SELECT FROM push_message) AS pushes
"""


@final
class PostgresSendQueues:
    """Implements `SendQueues`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unsent(self) -> Unsent:
        """Ask for both in one query."""
        row = await self._database.read(lambda connection: connection.fetchrow(_UNSENT))
        return Unsent(webhooks=row["webhooks"], pushes=row["pushes"])
