"""Shared by the writes of sessions and workspaces: common arguments, and the result."""

from collections.abc import Awaitable, Sequence
from typing import Any

from sightline.domain.units import MicroUsdc
from sightline.ports.relations import RelationTuple, TupleUpdate
from sightline.ports.store import Committed, IdempotencyRecord, Rejected, RejectedWhy
from sightline.storage.database.sqlstate import StatementRefusedError
from sightline.storage.json import dump

SQLSTATE = "SL001"
"""Raised by the SQL function `reject`."""

IdempotencyColumns = tuple[str | None, str | None, str | None, str | None, str | None, str | None, int | None]


async def decided(result: Awaitable[Any], version: int) -> Committed | Rejected:
    """The result of a write, from the row (why, revision) that its SQL function returns.

    Args:
        version: The version that was read before the write.
    """
    try:
        row = await result
    except StatementRefusedError as error:
        if error.sqlstate != SQLSTATE:
            raise
        why, _, left = error.reason.partition(" ")
        return Rejected(RejectedWhy(why), MicroUsdc(int(left)) if left else None)
    if row["why"] is not None:
        return Rejected(RejectedWhy(row["why"]))
    return Committed(version + 1, row["revision"])


def idempotency_columns(record: IdempotencyRecord | None) -> IdempotencyColumns:
    """The arguments of the SQL function `admit_write`."""
    if record is None:
        return (None, None, None, None, None, None, None)
    key = record.key
    return (key.workspace_id, key.method, key.path, key.key, key.body_hash, dump(record.result), record.at_ms)


def edge_columns(updates: Sequence[TupleUpdate]) -> tuple[list[str], list[str]]:
    """The arguments of the SQL function `write_edges`: edges to add and edges to remove, sorted and flattened.

    Args:
        updates: Each edge at most once.
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


def shard_of(columns: tuple[object, ...]) -> int:
    """The shard of a write: its first argument."""
    shard = columns[0]
    assert isinstance(shard, int)
    return shard


def id_bounds(shard: int | None) -> tuple[str, str]:
    """The least and the greatest id in a shard, which is the first byte of the id; None: of all ids."""
    first, last = ("00", "ff") if shard is None else (f"{shard:02x}", f"{shard:02x}")
    return f"{first}000000-0000-0000-0000-000000000000", f"{last}ffffff-ffff-ffff-ffff-ffffffffffff"
