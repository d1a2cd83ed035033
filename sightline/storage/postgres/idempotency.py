"""Idempotency records in Postgres: the answers to calls with an Idempotency-Key."""

from collections.abc import Sequence

from sightline.ports.store import CallRecordedError, IdempotencyKey, IdempotencyRecord
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.json import dump, load

_FIND = """
SELECT body_hash, result, at_ms, revision FROM idempotency
WHERE scope = $1 AND key = $2 AND method = $3 AND path = $4
"""
_RECORD = """
INSERT INTO idempotency (scope, key, method, path, body_hash, result, at_ms, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
"""


async def find_idempotent(database: Database, key: IdempotencyKey) -> IdempotencyRecord | None:
    """The record of a call; its key holds the body hash of the recorded call."""
    values = (key.workspace_id, key.key, key.method, key.path)
    row = await database.read(lambda connection: connection.fetchrow(_FIND, *values))
    if row is None:
        return None
    recorded = IdempotencyKey(
        workspace_id=key.workspace_id, method=key.method, path=key.path, key=key.key, body_hash=row["body_hash"]
    )
    return IdempotencyRecord(key=recorded, result=load(row["result"]), at_ms=row["at_ms"], revision=row["revision"])


def record_all(condition: str, source: str, *, first: int) -> str:
    """A statement that inserts the records of `columns_of`; a record that exists already is left unchanged.

    Args:
        condition: Evaluated on a row of `source`; false inserts nothing.
        first: Number of the first of its seven parameters.
    """
    types = ("text", "text", "text", "text", "text", "text", "bigint")
    columns = ", ".join(f"${number}::{type_}[]" for number, type_ in enumerate(types, first))
    return f"""
    INSERT INTO idempotency (scope, key, method, path, body_hash, result, at_ms)
    SELECT scope, key, method, path, body_hash, result::json, at_ms
    FROM {source}, unnest({columns}) AS answer(scope, key, method, path, body_hash, result, at_ms)
    WHERE {condition} ON CONFLICT DO NOTHING
    """  # noqa: S608  constants only


def columns_of(records: Sequence[IdempotencyRecord]) -> list[list[str] | list[int]]:
    """The parameters of `record_all`, sorted, so that concurrent batches lock in the same order."""
    ordered = sorted(records, key=lambda record: (record.key.workspace_id, record.key.key))
    keys = [record.key for record in ordered]
    return [
        [key.workspace_id for key in keys],
        [key.key for key in keys],
        [key.method for key in keys],
        [key.path for key in keys],
        [key.body_hash for key in keys],
        [dump(record.result) for record in ordered],
        [record.at_ms for record in ordered],
    ]


async def record_idempotent(database: Database, record: IdempotencyRecord) -> bool:
    """Insert a record; False if one exists already."""
    return await database.run(lambda connection: _insert(connection, record))


async def require_first_call(connection: Connection, record: IdempotencyRecord | None) -> None:
    """Insert the record of a call in the transaction of its effect. Waits for another call with the same key.

    Raises:
        CallRecordedError: A record exists already.
    """
    if record is not None and not await _insert(connection, record):
        raise CallRecordedError


async def _insert(connection: Connection, record: IdempotencyRecord) -> bool:
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
    status: str = await connection.execute(_RECORD, *values)
    return status == "INSERT 0 1"
