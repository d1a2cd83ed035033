"""Relayer and watcher on Postgres keep the same guarantees as on the ledger in memory."""

from sightline.ports.ledger import FundsPolicy, SettlementState
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.money.ledger import PostgresLedger
from tests.chain.endpoint import lose_reply, of_method, some_times
from tests.chain.world import Wallet, World, clock, ids, running


async def test_sessions_settle_and_the_books_in_postgres_equal_the_chain(world: World, database: Database) -> None:
    world.ledger, world.database = PostgresLedger(database), database
    await world.ready_parties()
    world.endpoint.fault = of_method("eth_sendRawTransaction", some_times(1, lose_reply))
    async with running(world) as service:
        charges = {await world.end_session(seconds=second): second * 1_000 for second in range(12)}
        service.notify()
        await world.until_told(*charges)
        assert await world.settled_on_chain() == charges
        await world.assert_books_balance()
        view = await world.ledger.wallet(world.payer.workspace_id)
        assert view is not None
        assert view.held_micro == 0
        for session_id in charges:
            record = await world.record(session_id)
            assert (record.state, record.notified) == (SettlementState.CONFIRMED, True)


async def test_an_enforced_hold_in_postgres_follows_the_chain(world: World, database: Database) -> None:
    world.ledger, world.database = PostgresLedger(database), database
    await world.ready_parties(micro=100)
    payer = world.payer.address
    async with running(world):
        await world.until_in_step()
        now_ms = clock.now_ms()
        assert not await world.ledger.take_hold(ids.uuid(), payer, 101, FundsPolicy.ENFORCED, now_ms=now_ms)
        assert await world.ledger.take_hold(ids.uuid(), payer, 100, FundsPolicy.ENFORCED, now_ms=now_ms)
        await world.fund(world.payer, 5)
        await world.until_in_step()
        assert await world.ledger.take_hold(ids.uuid(), payer, 5, FundsPolicy.ENFORCED, now_ms=clock.now_ms())


UNPAYABLE = 100_000
_UNPAYABLE = """
INSERT INTO settlement (session_id, session_id_hash, payload, state, lane, composed_at_ms, updated_at_ms)
SELECT id, md5(id::text), json_build_object('sessionId', id::text, 'from', $2::text, 'to', $2::text, 'toAmount', '5',
  'feeAmount', '0', 'rate', '5', 'seconds', 1, 'consumer', id::text, 'operator', id::text, 'feeBps', 0), 'COMPOSED',
  'RETRY', 0, 0
FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, $1::integer)) AS ids
"""


async def test_a_hundred_thousand_unpayable_settlements_do_not_delay_payable_ones(
    world: World, database: Database
) -> None:
    world.ledger, world.database = PostgresLedger(database), database
    await world.ready_parties()
    poor = Wallet().address
    await database.run(lambda connection: connection.execute(_UNPAYABLE, UNPAYABLE, poor), deadline_ms=280_000)
    async with running(world) as service:
        await world.until_in_step()
        for _ in range(5):
            session_id = await world.end_session()
            service.notify()
            await world.until_told(session_id, patience_s=60)
            record = await world.record(session_id)
            assert record.confirmed_at_ms is not None
            assert record.confirmed_at_ms - record.composed_at_ms < 30_000
