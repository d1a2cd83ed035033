"""What the writes of sessions and workspaces share: their common arguments, and how a refusal leaves a transaction."""

from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from sightline.ports.relations import RelationTuple, TupleUpdate
from sightline.ports.store import Committed, IdempotencyRecord, Rejected, RejectedWhy
from sightline.storage.bridge import Database
from sightline.storage.json import dump
from sightline.storage.pool import Connection

SQLSTATE = "SL001"
"""Raised by the SQL function `reject`."""

IdempotencyColumns = tuple[str | None, str | None, str | None, str | None, str | None, str | None, int | None]


class RejectedError(Exception):
    """The write is refused; unwinding it rolls its transaction back."""

    def __init__(self, why: RejectedWhy) -> None:
        super().__init__(why.value)
        self.why = why


async def commit(
    database: Database, unit: Callable[[Connection], Awaitable[Committed]], *, is_one_statement: bool
) -> Committed | Rejected:
    """Run a write; `is_one_statement` saves the round trips of BEGIN and COMMIT."""
    try:
        return await (database.run(unit) if is_one_statement else database.transact(unit))
    except RejectedError as error:
        return Rejected(error.why)
    except asyncpg.PostgresError as error:
        if error.sqlstate != SQLSTATE:
            raise
        return Rejected(RejectedWhy(str(error.args[0])))


def idempotency_columns(record: IdempotencyRecord | None) -> IdempotencyColumns:
    """The arguments that `admit_write` wants."""
    if record is None:
        return (None, None, None, None, None, None, None)
    key = record.key
    return (key.workspace_id, key.method, key.path, key.key, key.body_hash, dump(record.result), record.at_ms)


def edge_columns(updates: Sequence[TupleUpdate]) -> tuple[list[str], list[str]]:
    """The arguments that `write_edges` wants: edges put and edges gone, sorted, flat.

    Args:
        updates: No edge twice.
    """
    assert len({update.edge for update in updates}) == len(updates)
    return (
        _flat(sorted(update.edge for update in updates if update.present)),
        _flat(sorted(update.edge for update in updates if not update.present)),
    )


def _flat(edges: Sequence[RelationTuple]) -> list[str]:
    return [
        text
        for edge in edges
        for text in (edge.resource.type, edge.resource.id, edge.relation, edge.subject.type, edge.subject.id)
    ]
