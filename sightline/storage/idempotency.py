"""Answers given to calls that carried an Idempotency-Key, in Postgres."""

from sightline.ports.store import IdempotencyKey, IdempotencyRecord
from sightline.storage.bridge import Database
from sightline.storage.json import dump, load

_FIND = """
SELECT body_hash, result, at_ms, revision FROM idempotency
WHERE scope = $1 AND key = $2 AND method = $3 AND path = $4
"""
_RECORD = """
INSERT INTO idempotency (scope, key, method, path, body_hash, result, at_ms, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
"""
_FORGET = "DELETE FROM idempotency WHERE at_ms < $1"


async def find_idempotent(database: Database, key: IdempotencyKey) -> IdempotencyRecord | None:
    """The record of a call; its own body hash is in the record's key."""
    values = (key.workspace_id, key.key, key.method, key.path)
    row = await database.read(lambda connection: connection.fetchrow(_FIND, *values))
    if row is None:
        return None
    recorded = IdempotencyKey(
        workspace_id=key.workspace_id, method=key.method, path=key.path, key=key.key, body_hash=row["body_hash"]
    )
    return IdempotencyRecord(key=recorded, result=load(row["result"]), at_ms=row["at_ms"], revision=row["revision"])


async def record_idempotent(database: Database, record: IdempotencyRecord) -> bool:
    """Keep an answer; False if one is kept already."""
    key = record.key
    values = (
        key.workspace_id,
        key.key,
        key.method,
        key.path,
        key.body_hash,
        dump(record.result),
        record.at_ms,
        record.revision,
    )
    status: str = await database.run(lambda connection: connection.execute(_RECORD, *values))
    return status == "INSERT 0 1"


async def forget_answers(database: Database, before_ms: int) -> None:
    """Drop records made before an instant."""
    await database.run(lambda connection: connection.execute(_FORGET, before_ms), deadline_ms=30_000)
