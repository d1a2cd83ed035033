"""The embedded graph changes in the transaction of the row an edge is about, or not at all."""

import pytest

from sightline.ports.relations import TupleUpdate, operator_edge
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.identity import PostgresRelations
from sightline.storage.postgres.identity_sql import write_tuples

EDGE = operator_edge("33333333-3333-4333-8333-333333333333", "22222222-2222-4222-8222-222222222222")


class RowRefusedError(Exception):
    """The row was not written."""


async def test_a_rolled_back_row_leaves_no_edge(database: Database) -> None:
    relations = await PostgresRelations.open(database, token_key=b"k" * 32)

    async def unit(connection: Connection) -> None:
        await write_tuples(connection, [TupleUpdate(EDGE)])
        raise RowRefusedError

    with pytest.raises(RowRefusedError):
        await database.transact(unit)
    assert not await relations.check(EDGE.resource, EDGE.relation, EDGE.subject)


async def test_a_commit_s_revision_makes_a_token_that_is_read_back(database: Database) -> None:
    relations = await PostgresRelations.open(database, token_key=b"k" * 32)
    first = await database.transact(lambda connection: write_tuples(connection, [TupleUpdate(EDGE)]))
    second = await database.transact(lambda connection: write_tuples(connection, [TupleUpdate(EDGE, present=False)]))
    assert second > first
    assert relations.revision_of(relations.token_for(second)) == second
    assert relations.revision_of("p1.Mg.AAAA") is None


async def test_tokens_of_a_rebuilt_database_are_foreign(database: Database) -> None:
    before = await PostgresRelations.open(database, token_key=b"k" * 32)
    await database.run(lambda connection: connection.execute("UPDATE relation_store SET store_id = gen_random_uuid()"))
    after = await PostgresRelations.open(database, token_key=b"k" * 32)
    assert after.revision_of(before.token_for(7)) is None
