"""The store with cut connections and a slow or restarted Postgres: a repeated call gets the true result, and no write
is lost, doubled or half done."""

import asyncio
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from sightline.domain.session.model import Session, SessionState
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.relations import TupleUpdate, operator_edge
from sightline.ports.store import (
    Committed,
    HeartbeatWrite,
    HoldRequest,
    Rejected,
    RejectedWhy,
    SessionWrite,
    ShardLease,
)
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.migrate import migrate
from sightline.storage.database.pool import PoolOptions
from sightline.storage.embedded.server import EmbeddedPostgresOptions, run_embedded_postgres
from sightline.storage.postgres.store import PostgresStore
from tests.shards import take_every_shard

from ..contract.builders import (  # noqa: TID252  no package of that name outside the tests
    PAYER,
    T0,
    a_heartbeat,
    a_quote,
    a_session,
    a_settlement,
    an_answer,
    an_id,
    an_operator,
    in_phase,
    record,
    recorded,
)
from .proxy import Fault, open_wire

T = TypeVar("T")


def through(dsn: str, **changes: Any) -> DatabaseOptions:
    pool = PoolOptions(dsn=dsn, connections_min=1, connections_max=4)
    return DatabaseOptions(**{"pool": pool, "deadline_ms": 1_500, **changes})


async def a_full_step(store: PostgresStore, epoch: int, session: Session, key: str) -> Committed | Rejected:
    """The write with the most parts: quote, hold, events, relation, answer."""
    chained, events = recorded(session)
    return await store.write_session(
        SessionWrite(
            lease=ShardLease(3, epoch),
            session=chained,
            at_ms=T0,
            due_at_ms=T0 + 1,
            events=events,
            take_hold=HoldRequest(payer_address=PAYER, amount=MicroUsdc(10), is_enforced=False),
            consume_quote=session.terms.quote_id,
            tuples=(TupleUpdate(operator_edge(session.id, session.terms.consumer_workspace_id)),),
            idempotency=an_answer(key),
        )
    )


async def parts_of(database: Database, session_id: str, quote_id: str, key: str) -> tuple[int, ...]:
    """How many rows of each part of the full step there are."""
    asked = """
        SELECT (SELECT count(*) FROM session WHERE id = $1 AND version = 1),
          (SELECT count(*) FROM session_event WHERE session_id = $1),
          (SELECT count(*) FROM hold WHERE session_id = $1),
          (SELECT count(*) FROM quote WHERE id = $2 AND consumed_by = $1),
          (SELECT count(*) FROM relation_tuple WHERE resource_id = $1::uuid::text),
          (SELECT count(*) FROM idempotency WHERE key = $3 AND revision IS NOT NULL)
    """
    return tuple(await database.read(lambda c: c.fetchrow(asked, session_id, quote_id, key)))


@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.NOT_ANSWERED, Fault.STALLED])
async def test_a_step_that_is_cut_is_whole_or_not_there_and_asking_again_settles_it(
    database: Database, database_dsn: str, fault: Fault
) -> None:
    quote = a_quote()
    session = a_session(quote_id=quote.id)
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn, deadline_ms=3_000)) as cut:
        store = PostgresStore(cut)
        epoch = (await take_every_shard(store, "test", "one"))[3]
        await store.insert_quote(quote)
        wire.plan("write_session", fault)
        with pytest.raises(OutcomeUnknownError):
            await a_full_step(store, epoch, session, "k")
        assert wire.struck == [fault]
        between = await parts_of(database, session.id, quote.id, "k")
        assert between in {(1,) * 6, (0,) * 6}
        second = await a_full_step(store, epoch, session, "k")
    if between == (1,) * 6:
        assert second == Rejected(RejectedWhy.IDEMPOTENT)
    else:
        assert isinstance(second, Committed)
    assert await parts_of(database, session.id, quote.id, "k") == (1,) * 6


CLOSING = ["BEGIN", "write_session", "UPDATE hold SET state", "INSERT INTO settlement", "COMMIT"]


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        *((statement, fault) for statement in CLOSING for fault in (Fault.NOT_SENT, Fault.NOT_ANSWERED)),
        ("INSERT INTO settlement", Fault.STALLED),
        ("COMMIT", Fault.STALLED),
    ],
)
async def test_an_end_cut_at_any_statement_is_whole_or_not_there_and_asking_again_settles_it(
    database: Database, database_dsn: str, statement: str, fault: Fault
) -> None:
    session = a_session()
    first = PostgresStore(database)
    epoch = (await take_every_shard(first, "test", "one"))[3]
    assert await a_full_step(first, epoch, session, "k-1") == Committed(1, 1)
    ended = in_phase(replace(session, version=1), SessionState.ENDED)
    write = SessionWrite(
        lease=ShardLease(3, epoch),
        session=ended,
        at_ms=T0,
        due_at_ms=None,
        charge_hold=MicroUsdc(4),
        settle=a_settlement(ended),
        idempotency=an_answer("k-2"),
    )
    asked = """
        SELECT (SELECT version FROM session), (SELECT amount::int FROM hold),
          (SELECT count(*) FROM settlement), (SELECT count(*) FROM idempotency)
    """
    before, after = (1, 10, 0, 1), (2, 4, 1, 2)
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn, deadline_ms=3_000)) as cut:
        wire.plan(statement, fault)
        try:
            assert await PostgresStore(cut).write_session(write) == Committed(2)
            expected = {after}
        except OutcomeUnknownError:
            assert statement == "COMMIT"
            expected = {before, after}
        except StoreUnavailableError:
            assert statement != "COMMIT"
            expected = {before}
        assert wire.struck == [fault]
        between = tuple(await database.read(lambda c: c.fetchrow(asked)))
        assert between in expected
        again = await PostgresStore(cut).write_session(write)
    assert again == (Rejected(RejectedWhy.IDEMPOTENT) if between == after else Committed(2))
    assert tuple(await database.read(lambda c: c.fetchrow(asked))) == after


async def until_known(call: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """Ask again until there is an answer; the answer, and how often it was unknown."""
    unknown = 0
    while True:
        try:
            return await call(), unknown
        except OutcomeUnknownError:
            unknown += 1
        except StoreUnavailableError:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("seed", range(3))
async def test_writers_who_ask_again_over_a_bad_wire_count_every_step_once(
    database: Database, database_dsn: str, seed: int
) -> None:
    dice = random.Random(seed)
    steps = 12
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn, deadline_ms=400)) as cut:
        store = PostgresStore(cut)
        epoch = (await take_every_shard(store, "test", "one"))[3]
        for _ in range(40):
            # An UPDATE of the hold is in the closing steps alone, which take a transaction of several statements.
            marker = dice.choice(["BEGIN", "write_session", "UPDATE hold", "COMMIT"])
            wire.plan(marker, dice.choice([Fault.NOT_SENT, Fault.NOT_ANSWERED, Fault.AFTER_ANSWER]))

        async def one_actor(session: Session, closes_money: bool) -> None:
            for number in range(steps):
                key = f"{session.id}-{number}"
                edge = operator_edge(session.id, an_id())
                write = SessionWrite(
                    lease=ShardLease(3, epoch),
                    session=session,
                    at_ms=T0,
                    due_at_ms=None,
                    tuples=(TupleUpdate(edge),),
                    release_hold=closes_money,
                    idempotency=an_answer(key),
                )
                result, _ = await until_known(lambda write=write: store.write_session(write))
                if isinstance(result, Committed):
                    assert result.version == number + 1
                else:
                    assert result.why is RejectedWhy.IDEMPOTENT
                session = replace(session, version=number + 1)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(one_actor, a_session(), number % 2 == 0)
        assert wire.struck
    versions = await database.read(lambda c: c.fetch("SELECT version FROM session"))
    assert [row["version"] for row in versions] == [steps] * 6
    assert await database.read(lambda c: c.fetchval("SELECT count(*) FROM idempotency")) == 6 * steps
    assert await database.read(lambda c: c.fetchval("SELECT count(*) FROM relation_tuple")) == 6 * steps


@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.NOT_ANSWERED])
async def test_a_batch_of_heartbeats_of_unknown_outcome_is_sent_again_without_doubles(
    database: Database, database_dsn: str, fault: Fault
) -> None:
    workspace_id = an_id()
    batch = [a_heartbeat(workspace_id, number) for number in range(50)]
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as cut:
        store = PostgresStore(cut)
        await record(store, *batch[:1])
        wire.plan("INSERT INTO heartbeat", fault)
        _, unknown = await until_known(lambda: record(store, *batch))
        # The first append may have prepared the statement on the same connection: then no text crosses the wire.
        assert unknown == len(wire.struck)
    assert await database.read(lambda c: c.fetchval("SELECT count(*) FROM heartbeat")) == 50


async def test_a_takeover_waits_for_a_write_under_way_and_fences_the_next(database: Database) -> None:
    store = PostgresStore(database)
    epoch = (await take_every_shard(store, "old", "one"))[3]
    session, order = a_session(), []

    async def slow_write(connection: Any) -> None:
        assert await connection.fetchval("SELECT hold_shards(ARRAY[3], ARRAY[$1::bigint])", epoch)
        order.append("holding")
        await connection.execute("SELECT pg_sleep(0.3)")
        order.append("written")

    async def take_over() -> None:
        await take_every_shard(store, "new", "two")
        order.append("taken over")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(database.transact, slow_write)
        while not order:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(take_over)
    assert order == ["holding", "written", "taken over"]
    write = SessionWrite(lease=ShardLease(3, epoch), session=session, at_ms=T0, due_at_ms=None)
    assert await store.write_session(write) == Rejected(RejectedWhy.FENCED)


async def test_a_slow_postgres_is_unknown_at_the_deadline_and_nothing_hangs(
    database: Database, database_dsn: str
) -> None:
    """A step that is one statement waits for a lock that another session holds."""
    store = PostgresStore(database)
    epoch = (await take_every_shard(store, "test", "one"))[3]
    session = a_session()
    await store.write_session(SessionWrite(lease=ShardLease(3, epoch), session=session, at_ms=T0, due_at_ms=None))
    moved = in_phase(replace(session, version=1), SessionState.ASSIGNED, an_operator())
    write = SessionWrite(lease=ShardLease(3, epoch), session=moved, at_ms=T0, due_at_ms=None)
    release = trio.Event()
    async with open_database(through(database_dsn, deadline_ms=2_000)) as impatient, trio.open_nursery() as nursery:
        await nursery.start(hold_row, database_dsn, session.id, release)
        with pytest.raises(OutcomeUnknownError):
            await PostgresStore(impatient).write_session(write)
        release.set()
    # It was cancelled on the server: it is not applied later, behind our back.
    found = await store.load_session(session.id)
    assert found is not None
    assert found.session.version == 1
    assert await store.write_session(write) == Committed(2)


async def hold_row(dsn: str, session_id: str, release: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
    """Lock a session's row until told, on a connection of its own."""
    async with open_database(through(dsn, deadline_ms=60_000)) as other, trio.open_nursery() as nursery:

        async def locked(connection: Any) -> None:
            await connection.execute("SELECT FROM session WHERE id = $1 FOR UPDATE", session_id)
            await connection.execute("SELECT pg_sleep(60)")

        nursery.start_soon(other.transact, locked)
        asked = (
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND datname = current_database()"
        )
        while not await other.read(lambda c: c.fetchval(asked)):
            await trio.lowlevel.checkpoint()
        task_status.started()
        await release.wait()
        nursery.cancel_scope.cancel()


def is_signalled(pid_file: Path, number: signal.Signals) -> bool:
    try:
        os.kill(int(pid_file.read_text().split()[0]), number)
    except (FileNotFoundError, IndexError, ProcessLookupError):
        return False
    return True


async def signal_postmaster(pid_file: Path, number: signal.Signals) -> None:
    """Signal the one that runs: backends of a killed one may answer a moment longer, while its file still stands."""
    with trio.fail_after(30):
        while True:
            if is_signalled(pid_file, number):
                return
            await trio.sleep(0.02)


async def test_steps_go_on_over_a_restart_of_postgres(data_directory: Path) -> None:
    options = EmbeddedPostgresOptions(
        directory=data_directory / "postgres", log_path=data_directory / "log", durable=False
    )
    async with trio.open_nursery() as nursery:
        dsn = await nursery.start(run_embedded_postgres, options)
        async with open_database(through(dsn, deadline_ms=2_000)) as database:
            await migrate(database)
            store = PostgresStore(database)
            epoch = (await take_every_shard(store, "test", "one"))[3]
            session = a_session()
            for number in range(60):
                if number in {20, 40}:
                    how = signal.SIGKILL if number == 20 else signal.SIGINT
                    await signal_postmaster(data_directory / "postgres/cluster/postmaster.pid", how)
                write = SessionWrite(
                    lease=ShardLease(3, epoch),
                    session=session,
                    at_ms=T0,
                    due_at_ms=None,
                    idempotency=an_answer(f"k-{number}"),
                )
                with trio.fail_after(30):
                    result, _ = await until_known(lambda write=write: store.write_session(write))
                assert result in {Committed(number + 1), Rejected(RejectedWhy.IDEMPOTENT)}
                session = replace(session, version=number + 1)
            found = await store.load_session(session.id)
            assert found is not None
            assert found.session.version == 60
        nursery.cancel_scope.cancel()


async def test_a_write_that_waited_for_a_takeover_sees_the_new_epoch(database: Database) -> None:
    store = PostgresStore(database)
    epoch = (await take_every_shard(store, "old", "one"))[3]
    await record(store, a_heartbeat(an_id(), 1), lease=ShardLease(3, epoch))
    taken = trio.Event()
    token = trio.lowlevel.current_trio_token()

    async def slow_take_over(connection: Any) -> None:
        await connection.execute("SELECT FROM take_shards('new', 'two')")
        token.run_sync_soon(taken.set)
        await connection.execute("SELECT pg_sleep(0.4)")

    results: list[Committed | Rejected] = []
    lost: list[frozenset[ShardLease]] = []

    async def late_step() -> None:
        write = SessionWrite(lease=ShardLease(3, epoch), session=a_session(), at_ms=T0, due_at_ms=None)
        results.append(await store.write_session(write))

    async def late_heartbeats() -> None:
        batch = [HeartbeatWrite(ShardLease(3, epoch), (a_heartbeat(an_id(), 1),))]
        lost.append(await store.append_heartbeats(batch))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(database.transact, slow_take_over)
        await taken.wait()
        nursery.start_soon(late_step)
        nursery.start_soon(late_heartbeats)
    assert results == [Rejected(RejectedWhy.FENCED)]
    assert lost == [{ShardLease(3, epoch)}]
    assert await database.read(lambda c: c.fetchval("SELECT count(*) FROM heartbeat")) == 1


async def test_a_batch_and_a_takeover_never_wait_for_each_other_in_a_circle(database: Database) -> None:
    """A takeover locks shards in ascending order; a batch that locked 200 before 3 would meet it head on."""
    store = PostgresStore(database)
    epoch = (await take_every_shard(store, "test", "one"))[3]
    locked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted"

    async def hold_writers(connection: Any) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock(5300043, 50), pg_sleep(2)")

    async def take_over_slowly(connection: Any) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock(5300043, 3), pg_sleep(2.5)")
        await connection.execute("SELECT pg_advisory_xact_lock(5300043, 200)")

    async def step(shard: int) -> None:
        write = SessionWrite(lease=ShardLease(shard, epoch), session=a_session(), at_ms=T0, due_at_ms=None)
        assert await store.write_session(write) == Committed(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(database.transact, hold_writers, deadline_ms=60_000))
        nursery.start_soon(partial(database.transact, take_over_slowly, deadline_ms=60_000))
        while await database.read(lambda c: c.fetchval(locked)) < 2:
            await trio.lowlevel.checkpoint()
        for shard in (50, 50, 200, 3):
            nursery.start_soon(step, shard)
            await trio.testing.wait_all_tasks_blocked()
    await database.run(lambda c: c.execute("SELECT pg_stat_force_next_flush()"))
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await database.read(lambda c: c.fetchval(deadlocks)) == 0


async def test_a_row_that_is_read_after_a_write_in_doubt_does_not_change_later(
    database: Database, database_dsn: str
) -> None:
    """A backend that waits for a lock when its connection is lost must not commit after the row was loaded."""
    released = threading.Event()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%write_session%' AND wait_event_type = 'Lock'"
    running = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FROM write_session(%' AND state = 'active' "
        "AND pid <> pg_backend_pid()"
    )

    async def hold_quote(connection: Any) -> None:
        await connection.execute("SELECT 1 FROM quote WHERE id = $1 FOR UPDATE", quote.id)
        while not released.is_set():  # noqa: ASYNC110  another thread sets it
            await asyncio.sleep(0.01)

    async def until(question: str, count: int) -> None:
        with trio.fail_after(60):
            while await database.read(lambda connection: connection.fetchval(question)) != count:
                await trio.testing.wait_all_tasks_blocked(0.02)

    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn, deadline_ms=20_000)) as cut:
        store = PostgresStore(cut)
        epoch = (await take_every_shard(store, "a", an_id()))[3]
        quote = a_quote()
        await store.insert_quote(quote)
        session = a_session(quote_id=quote.id)

        async def write() -> None:
            with pytest.raises(OutcomeUnknownError):
                await a_full_step(store, epoch, session, "k")
            written.set()

        written = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(database.transact, hold_quote, deadline_ms=20_000))
            await until("SELECT count(*) FROM pg_locks WHERE relation = 'quote'::regclass AND mode = 'RowShareLock'", 1)
            nursery.start_soon(write)
            await until(waiting, 1)
            wire.cut()
            await written.wait()
            loaded = await store.load_session(session.id)
            released.set()
        await until(running, 0)
        assert (await store.load_session(session.id) is None) == (loaded is None)
