"""Webhook endpoints on Postgres."""

from collections.abc import Sequence
from typing import Any, Final

from sightline.domain.webhooks import DisabledReason, WebhookEventType
from sightline.ports.store import IdempotencyRecord
from sightline.ports.webhooks import EndpointChange, WebhookEndpoint
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.idempotency import require_first_call

ENDPOINTS_LOCK_KEY: Final = 5_300_045
"""Seed of the advisory lock on the endpoints of a workspace. Any constant number works."""

COLUMNS: Final = """
e.id::text, e.workspace_id::text, e.url, e.description, e.event_types, e.generation, e.rotations_ms,
e.failing_since_ms, e.is_slow, e.disabled_reason, e.disabled_at_ms, e.created_at_ms
"""
_ADD = """
INSERT INTO webhook_endpoint (id, workspace_id, url, description, event_types, created_at_ms)
SELECT $1, $2, $3, $4, $5, $6 WHERE (SELECT count(*) FROM webhook_endpoint WHERE workspace_id = $2) < $7
RETURNING true
"""
_ALL = f"SELECT {COLUMNS} FROM webhook_endpoint e WHERE workspace_id = $1 ORDER BY created_at_ms, id"  # noqa: S608  constants only
_ONE = f"SELECT {COLUMNS} FROM webhook_endpoint e WHERE workspace_id = $1 AND id = $2"  # noqa: S608  constants only
_CHANGE = f"""
UPDATE webhook_endpoint e SET url = coalesce($3, url), description = coalesce($4, description),
  event_types = coalesce($5::text[], event_types),
  failing_since_ms = CASE WHEN $6 THEN NULL ELSE failing_since_ms END,
  disabled_reason = CASE WHEN $6 THEN NULL WHEN NOT $6 THEN 'OWNER' ELSE disabled_reason END,
  disabled_at_ms = CASE WHEN $6 THEN NULL WHEN NOT $6 THEN coalesce(disabled_at_ms, $7) ELSE disabled_at_ms END
WHERE workspace_id = $1 AND id = $2 RETURNING {COLUMNS}
"""  # noqa: S608  constants only
# The trigger of migration 0890 keeps the instants of earlier rotations.
_ROTATE = """
UPDATE webhook_endpoint SET generation = generation + 1, rotated_at_ms = $4
WHERE workspace_id = $1 AND id = $2 AND generation = $3
"""
_REMOVE = f"DELETE FROM webhook_endpoint e WHERE workspace_id = $1 AND id = $2 RETURNING {COLUMNS}"  # noqa: S608  constants only


class WebhookEndpointTable:
    """The endpoints of all workspaces."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_endpoint(
        self, endpoint: WebhookEndpoint, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Store a new endpoint unless its workspace already has `limit`."""

        async def unit(connection: Connection) -> bool:
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", endpoint.workspace_id, ENDPOINTS_LOCK_KEY
            )
            added = await connection.fetchval(
                _ADD,
                endpoint.id,
                endpoint.workspace_id,
                endpoint.url,
                endpoint.description,
                sorted(endpoint.event_types),
                endpoint.created_at_ms,
                limit,
            )
            if not added:
                return False
            await require_first_call(connection, call)
            return True

        return await self._database.transact(unit)

    async def endpoints(self, workspace_id: str) -> Sequence[WebhookEndpoint]:
        """The endpoints of a workspace, oldest first."""
        rows = await self._database.read(lambda connection: connection.fetch(_ALL, workspace_id))
        return [endpoint_of(row) for row in rows]

    async def endpoint(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint | None:
        """Read one endpoint of a workspace."""
        return _found(
            await self._database.read(lambda connection: connection.fetchrow(_ONE, workspace_id, endpoint_id))
        )

    async def change_endpoint(
        self, workspace_id: str, endpoint_id: str, change: EndpointChange, *, now_ms: int
    ) -> WebhookEndpoint | None:
        """Change an endpoint and return it."""
        types = None if change.event_types is None else sorted(change.event_types)
        columns = (change.url, change.description, types, change.is_enabled, now_ms)
        return _found(
            await self._database.run(
                lambda connection: connection.fetchrow(_CHANGE, workspace_id, endpoint_id, *columns)
            )
        )

    async def rotate_endpoint(
        self, workspace_id: str, endpoint_id: str, *, from_generation: int, now_ms: int,
        call: IdempotencyRecord | None = None,
    ) -> WebhookEndpoint | None:  # fmt: skip
        """Give the endpoint the next signing secret unless it has another generation already."""

        async def unit(connection: Connection) -> Any:
            await connection.execute(_ROTATE, workspace_id, endpoint_id, from_generation, now_ms)
            row = await connection.fetchrow(_ONE, workspace_id, endpoint_id)
            if row is not None:
                await require_first_call(connection, call)
            return row

        return _found(await self._database.transact(unit))

    async def remove_endpoint(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint | None:
        """Delete an endpoint. Its deliveries stay until retention deletes them; they are never sent."""
        return _found(
            await self._database.run(lambda connection: connection.fetchrow(_REMOVE, workspace_id, endpoint_id))
        )


def _found(row: Any) -> WebhookEndpoint | None:
    return None if row is None else endpoint_of(row)


def endpoint_of(row: Any) -> WebhookEndpoint:
    """The endpoint in a row with `COLUMNS`."""
    reason = row["disabled_reason"]
    return WebhookEndpoint(
        id=row["id"],
        workspace_id=row["workspace_id"],
        url=row["url"],
        description=row["description"],
        event_types=frozenset(WebhookEventType(name) for name in row["event_types"]),
        created_at_ms=row["created_at_ms"],
        generation=row["generation"],
        rotations_ms=tuple(row["rotations_ms"]),
        failing_since_ms=row["failing_since_ms"],
        is_slow=row["is_slow"],
        disabled_reason=None if reason is None else DisabledReason(reason),
        disabled_at_ms=row["disabled_at_ms"],
    )
