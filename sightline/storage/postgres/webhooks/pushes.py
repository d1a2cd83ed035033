"""Web Push on Postgres. Migration 0860 has the trigger that queues pushes."""

from collections.abc import Sequence
from typing import Any, Final, final

from sightline.domain.session.codec import from_doc as session_of_doc
from sightline.ports.webhooks import PUSH_LEASE_MS, PUSH_LIFE_MS, PUSHES_AT_ONCE_MAX, PushJob, PushSubscription
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.json import load

LOCK_KEY: Final = 5_300_061
"""Seed of the advisory lock on the subscriptions of a workspace. Any constant number works."""
CLAIM_LOCK_KEY: Final = 5_300_062
"""Advisory lock of claims: one at a time, so that no workspace gets more than its share."""

_COLUMNS: Final = """
p.id::text, p.workspace_id::text, p.endpoint, p.p256dh, p.auth, p.key_id::text, p.wallet, p.renewed_at_ms
"""
_ADD = f"""
INSERT INTO push_subscription AS p (id, workspace_id, endpoint, p256dh, auth, key_id, wallet, renewed_at_ms)
SELECT $1, $2, $3, $4, $5, $6, $7, $8
WHERE (SELECT count(*) FROM push_subscription WHERE workspace_id = $2 AND endpoint <> $3) < $9
ON CONFLICT (workspace_id, endpoint) DO UPDATE SET p256dh = EXCLUDED.p256dh, auth = EXCLUDED.auth,
  key_id = EXCLUDED.key_id, wallet = EXCLUDED.wallet, renewed_at_ms = EXCLUDED.renewed_at_ms
RETURNING {_COLUMNS}
"""  # noqa: S608  constants only
_ALL = f"SELECT {_COLUMNS} FROM push_subscription p WHERE workspace_id = $1 ORDER BY id"  # noqa: S608  constants only
_REMOVE = f"""
WITH messages AS (DELETE FROM push_message WHERE subscription_id = $2)
DELETE FROM push_subscription p WHERE workspace_id = $1 AND id = $2 RETURNING {_COLUMNS}
"""  # noqa: S608  constants only
_WAITS = "SELECT EXISTS (SELECT FROM push_message)"
_DROP_OUTDATED = f"""
DELETE FROM push_message m USING (SELECT database_now_ms() AS now_ms) AS clock
WHERE created_at_ms <= now_ms - {PUSH_LIFE_MS} OR created_at_ms > now_ms + {PUSH_LIFE_MS} OR NOT EXISTS (
  SELECT FROM push_subscription p JOIN session s ON s.operator_workspace_id = p.workspace_id
  WHERE p.id = m.subscription_id AND s.id = m.session_id AND s.state = 'ASSIGNED')
"""  # noqa: S608  constants only
_CLAIM = f"""
WITH waiting AS (
  SELECT m.subscription_id, m.session_id, now_ms, p.workspace_id, m.next_at_ms, m.next_at_ms <= now_ms AS is_due,
    coalesce(m.lease_until_ms > now_ms AND m.lease_until_ms <= now_ms + {PUSH_LEASE_MS}, false) AS is_flying
  FROM push_message m JOIN push_subscription p ON p.id = m.subscription_id
    CROSS JOIN (SELECT database_now_ms() AS now_ms) AS clock
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY workspace_id, is_flying, is_due ORDER BY next_at_ms, session_id) AS turn,
    count(*) FILTER (WHERE is_flying) OVER (PARTITION BY workspace_id) AS flying
  FROM waiting
), chosen AS (
  SELECT * FROM ranked WHERE is_due AND NOT is_flying AND turn <= {PUSHES_AT_ONCE_MAX} - flying
  ORDER BY turn, next_at_ms LIMIT $1
), claimed AS (
  UPDATE push_message m SET lease_until_ms = now_ms + {PUSH_LEASE_MS} FROM chosen c
  WHERE m.subscription_id = c.subscription_id AND m.session_id = c.session_id
  RETURNING m.subscription_id, m.session_id, m.attempts, m.created_at_ms + {PUSH_LIFE_MS} - now_ms AS left_ms
)
SELECT {_COLUMNS}, c.attempts, c.left_ms, s.doc, s.version
FROM claimed c JOIN push_subscription p ON p.id = c.subscription_id JOIN session s ON s.id = c.session_id
"""  # noqa: S608  constants only
_MINE = "subscription_id = $1 AND session_id = $2 AND attempts = $3 AND lease_until_ms IS NOT NULL"
_FINISH = f"DELETE FROM push_message WHERE {_MINE}"  # noqa: S608  constants only
_RETRY = f"""
UPDATE push_message SET attempts = attempts + 1, lease_until_ms = NULL, next_at_ms = database_now_ms() + $4
WHERE {_MINE}
"""  # noqa: S608  constants only


@final
class PostgresPushes:
    """Implements `PushStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_subscription(self, subscription: PushSubscription, *, limit: int) -> PushSubscription | None:
        """Store or renew a subscription."""

        async def unit(connection: Connection) -> Any:
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", subscription.workspace_id, LOCK_KEY
            )
            return await connection.fetchrow(
                _ADD,
                subscription.id,
                subscription.workspace_id,
                subscription.endpoint,
                subscription.p256dh,
                subscription.auth,
                subscription.key_id,
                subscription.wallet,
                subscription.renewed_at_ms,
                limit,
            )

        row = await self._database.transact(unit)
        return None if row is None else _subscription_of(row)

    async def subscriptions(self, workspace_id: str) -> Sequence[PushSubscription]:
        """The subscriptions of a workspace."""
        rows = await self._database.read(lambda connection: connection.fetch(_ALL, workspace_id))
        return [_subscription_of(row) for row in rows]

    async def remove_subscription(self, workspace_id: str, subscription_id: str) -> PushSubscription | None:
        """Delete a subscription."""
        row = await self._database.run(lambda connection: connection.fetchrow(_REMOVE, workspace_id, subscription_id))
        return None if row is None else _subscription_of(row)

    async def claim_pushes(self, *, limit: int) -> Sequence[PushJob]:
        """Claim due pushes."""
        if not await self._database.read(lambda connection: connection.fetchval(_WAITS)):
            return []

        async def unit(connection: Connection) -> list[Any]:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", CLAIM_LOCK_KEY)
            await connection.execute(_DROP_OUTDATED)
            rows: list[Any] = await connection.fetch(_CLAIM, limit)
            return rows

        return [
            PushJob(
                subscription=_subscription_of(row),
                session=session_of_doc(load(row["doc"]), row["version"]),
                attempts=row["attempts"],
                left_ms=row["left_ms"],
            )
            for row in await self._database.transact(unit)
        ]

    async def finish_push(self, job: PushJob) -> None:
        """Delete a push."""
        mine = (job.subscription.id, job.session.id, job.attempts)
        await self._database.run(lambda connection: connection.execute(_FINISH, *mine))

    async def retry_push(self, job: PushJob, *, after_ms: int) -> None:
        """Make a push due again."""
        mine = (job.subscription.id, job.session.id, job.attempts)
        await self._database.run(lambda connection: connection.execute(_RETRY, *mine, after_ms))


def _subscription_of(row: Any) -> PushSubscription:
    return PushSubscription(
        id=row["id"],
        workspace_id=row["workspace_id"],
        endpoint=row["endpoint"],
        p256dh=bytes(row["p256dh"]),
        auth=bytes(row["auth"]),
        key_id=row["key_id"],
        wallet=row["wallet"],
        renewed_at_ms=row["renewed_at_ms"],
    )
