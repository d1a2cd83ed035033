"""The SQL of the authorization graph.

Runs on the asyncio side, inside whatever transaction its caller has open.
"""

from collections.abc import Sequence
from typing import Final

from sightline.ports.relations import ObjectRef, RelationTuple, TupleUpdate
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.commits import edge_columns

_WRITE = "SELECT write_edges($1, $2)"

_READ = """
SELECT resource_type, resource_id, relation, subject_type, subject_id FROM relation_tuple WHERE resource_type = $1
"""
# A statement for each question: "IS NULL OR" may be planned while the table is small, and so without an index for ever.
READ_OF_RESOURCE: Final = f"{_READ} AND resource_id = $2"
READ_OF_SUBJECT: Final = f"{_READ} AND subject_type = $2 AND subject_id = $3"
READ_OF_BOTH: Final = f"{_READ} AND resource_id = $2 AND subject_type = $3 AND subject_id = $4"

_CHECK = """
SELECT EXISTS (
  SELECT FROM relation_tuple
  WHERE resource_type = $1 AND resource_id = $2 AND relation = $3 AND subject_type = $4 AND subject_id = $5
)
"""

_STANDS = """
SELECT 1 FROM relation_tuple
WHERE resource_type = $1 AND resource_id = $2 AND relation = $3 AND subject_type = $4 AND subject_id = $5
FOR SHARE
"""


async def write_tuples(connection: Connection, updates: Sequence[TupleUpdate]) -> int:
    """Write edges in the caller's transaction and return the graph's revision, in one round trip.

    Args:
        updates: No edge twice. Sorted here, so that concurrent writers lock rows in one order.
    """
    revision: int = await connection.fetchval(_WRITE, *edge_columns(updates))
    return revision


async def has_tuple(connection: Connection, edge: RelationTuple) -> bool:
    """Tell whether an edge stands."""
    return bool(await connection.fetchval(_CHECK, *_row(edge)))


async def hold_tuples(connection: Connection, edges: Sequence[RelationTuple]) -> bool:
    """Tell whether all edges stand, and keep it so until the caller's transaction ends.

    Holders of edges of one resource wait for each other: two of them must not take away what the other one
    held.
    """
    for resource in sorted({edge.resource for edge in edges}):
        key = f"relation:{resource.type}:{resource.id}"
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", key)
    for edge in sorted(edges):
        if await connection.fetchval(_STANDS, *_row(edge)) is None:
            return False
    return True


async def read_tuples(
    connection: Connection,
    resource_type: str,
    resource_id: str | None,
    subject: ObjectRef | None,
) -> tuple[RelationTuple, ...]:
    """List edges of a resource, of a subject among resources of a type, or between the two, in ascending order."""
    of_resource = () if resource_id is None else (resource_id,)
    of_subject = () if subject is None else (subject.type, subject.id)
    statements = {(1, 0): READ_OF_RESOURCE, (0, 2): READ_OF_SUBJECT, (1, 2): READ_OF_BOTH, (0, 0): _READ}
    statement = statements[len(of_resource), len(of_subject)]
    rows = await connection.fetch(statement, resource_type, *of_resource, *of_subject)
    edges = (RelationTuple(ObjectRef(row[0], row[1]), row[2], ObjectRef(row[3], row[4])) for row in rows)
    # Sorted here: the order of the database's collation is not ours.
    return tuple(sorted(edges))


async def store_id(connection: Connection) -> str:
    """The name of this graph, made with its tables."""
    return str(await connection.fetchval("SELECT store_id FROM relation_store"))


def _row(edge: RelationTuple) -> tuple[str, str, str, str, str]:
    return edge.resource.type, edge.resource.id, edge.relation, edge.subject.type, edge.subject.id
