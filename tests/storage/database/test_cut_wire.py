"""Connections are cut at chosen messages: an unknown outcome is reported as neither failure nor success."""

from typing import Any

import pytest

from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from tests.storage.proxy import Fault, open_wire


def through(dsn: str) -> DatabaseOptions:
    return DatabaseOptions(pool=PoolOptions(dsn=dsn, connections_min=1, connections_max=2), deadline_ms=2_000)


async def add_note(connection: Any) -> None:
    await connection.execute("INSERT INTO note VALUES (1)")


@pytest.fixture
async def notes(database: Database) -> Database:
    await database.run(lambda c: c.execute("CREATE TABLE note (a int)"))
    return database


async def count(database: Database) -> int:
    return int(await database.read(lambda c: c.fetchval("SELECT count(*) FROM note")))


@pytest.mark.parametrize(
    ("marker", "fault"),
    [
        ("BEGIN", Fault.NOT_SENT),
        ("BEGIN", Fault.NOT_ANSWERED),
        ("BEGIN", Fault.AFTER_ANSWER),
        ("INSERT", Fault.NOT_SENT),
        ("INSERT", Fault.NOT_ANSWERED),
    ],
)
async def test_a_transaction_cut_before_its_commit_is_made_again_once(
    notes: Database, database_dsn: str, marker: str, fault: Fault
) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        wire.plan(marker, fault)
        await cut.transact(add_note)
        assert wire.struck == [fault]
    assert await count(notes) == 1


async def test_a_commit_that_never_left_is_unknown_and_was_not_applied(notes: Database, database_dsn: str) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        wire.plan("COMMIT", Fault.NOT_SENT)
        with pytest.raises(OutcomeUnknownError):
            await cut.transact(add_note)
    assert await count(notes) == 0


async def test_a_commit_whose_answer_is_lost_is_unknown_and_was_applied(notes: Database, database_dsn: str) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        wire.plan("COMMIT", Fault.NOT_ANSWERED)
        with pytest.raises(OutcomeUnknownError):
            await cut.transact(add_note)
    assert await count(notes) == 1


async def test_a_commit_whose_answer_never_comes_is_unknown_within_the_deadline(
    notes: Database, database_dsn: str
) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        wire.plan("COMMIT", Fault.STALLED)
        with pytest.raises(OutcomeUnknownError, match="deadline"):
            await cut.transact(add_note, deadline_ms=2_000)
    assert await count(notes) == 1


@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.NOT_ANSWERED, Fault.STALLED])
async def test_a_statement_that_commits_itself_is_unknown_when_cut(
    notes: Database, database_dsn: str, fault: Fault
) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        wire.plan("INSERT", fault)
        with pytest.raises(OutcomeUnknownError):
            await cut.run(add_note, deadline_ms=2_000)


async def test_a_read_that_is_cut_is_asked_again_on_another_connection(database_dsn: str) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        wire.plan("SELECT 42", Fault.NOT_ANSWERED)
        assert await cut.read(lambda c: c.fetchval("SELECT 42")) == 42
        assert wire.struck == [Fault.NOT_ANSWERED]


async def test_a_transaction_that_is_always_cut_is_unavailable(notes: Database, database_dsn: str) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        for _ in range(10):
            wire.plan("BEGIN", Fault.NOT_SENT)
        with pytest.raises(StoreUnavailableError):
            await cut.transact(add_note)
    assert await count(notes) == 0


async def test_a_rollback_into_a_dead_wire_does_not_hold_the_caller(notes: Database, database_dsn: str) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        wire.plan("ROLLBACK", Fault.STALLED)

        async def unit(connection: Any) -> None:
            await add_note(connection)
            raise LookupError("mine")

        with pytest.raises(LookupError):
            await cut.transact(unit)
        await cut.ping()
    assert await count(notes) == 0
