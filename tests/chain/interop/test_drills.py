"""Relayer and watcher on anvil, automine off: after each fault nothing is lost, nothing settles twice, and the
ledger equals the chain, which the test reads independently.
"""

import signal
import subprocess
import sys

import pytest
import trio

from sightline.chain.service import open_chain
from sightline.ports.chain import ChainChangedError
from sightline.ports.ledger import SettlementState
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.money.ledger import PostgresLedger
from tests.chain.endpoint import answering, honest, lose_reply, of_method, some_times
from tests.chain.interop.anvil import Anvil, open_anvil
from tests.chain.interop.conftest import a_world_on, mining
from tests.chain.world import World, clock, ids, options_for, running, until

pytestmark = pytest.mark.interop
SEND = "eth_sendRawTransaction"


async def assert_settled(world: World, session_id: str, total: int) -> None:
    record = await world.record(session_id)
    assert record.state is SettlementState.CONFIRMED
    assert (await world.settled_on_chain())[session_id] == total
    receipt = await world.rpc.call("eth_getTransactionReceipt", record.tx_hash)
    assert (receipt["status"], receipt["blockHash"].lower()) == ("0x1", record.block_hash)
    await world.assert_books_balance()


async def test_confirmed_means_the_configured_depth(world: World, anvil: Anvil) -> None:
    async with running(world, depth=2) as service:
        session_id = await world.end_session()
        service.notify()
        await anvil.until_pending()
        await anvil.mine()
        await world.until_state(session_id, SettlementState.MINED)
        await anvil.mine()
        assert world.updates == []
        await anvil.mine()
        await world.until_told(session_id)
        await assert_settled(world, session_id, 60_000)


async def test_a_lost_broadcast_reply(world: World, anvil: Anvil) -> None:
    world.endpoint.fault = of_method(SEND, some_times(3, lose_reply))
    async with running(world) as service, mining(anvil):
        session_id = await world.end_session()
        service.notify()
        await world.until_told(session_id)
        assert len((await world.record(session_id)).attempts) == 1
        await assert_settled(world, session_id, 60_000)


async def test_a_fee_spike_where_the_old_transaction_mines(world: World, anvil: Anvil) -> None:
    async with running(world, replace_ms=400) as service:
        session_id = await world.end_session()
        service.notify()
        await anvil.until_pending()
        await anvil.rpc.call("anvil_setNextBlockBaseFeePerGas", hex(10**11))
        await anvil.mine()

        async def replaced() -> bool:
            return len((await world.record(session_id)).attempts) >= 2

        await until("a replacement is signed", replaced)
        record = await world.record(session_id)
        old, new = record.attempts[:2]
        assert new.nonce == old.nonce
        assert new.max_fee_wei * 10 >= old.max_fee_wei * 11
        assert new.tip_wei * 10 >= old.tip_wei * 11
        # The fee spike ends, and a miner that never received the replacement mines the original transaction.
        for attempt in record.attempts:
            await anvil.rpc.call("anvil_dropTransaction", attempt.tx_hash)
        world.endpoint.fault = of_method(SEND, answering("0x"))
        await anvil.rpc.call("anvil_setNextBlockBaseFeePerGas", hex(10**9))
        await anvil.mine()
        await anvil.rpc.call(SEND, "0x" + old.raw.hex())
        await anvil.mine()
        await world.until_told(session_id)
        assert (await world.record(session_id)).tx_hash == old.tx_hash
        world.endpoint.fault = honest
        await assert_settled(world, session_id, 60_000)


async def test_a_fee_spike_where_the_replacement_mines(world: World, anvil: Anvil) -> None:
    async with running(world, replace_ms=400) as service:
        session_id = await world.end_session()
        service.notify()
        await anvil.until_pending()
        await anvil.rpc.call("anvil_setNextBlockBaseFeePerGas", hex(10**11))
        async with mining(anvil):
            await world.until_told(session_id)
        record = await world.record(session_id)
        assert len(record.attempts) >= 2
        assert {attempt.nonce for attempt in record.attempts} == {record.attempts[0].nonce}
        await assert_settled(world, session_id, 60_000)


async def test_a_receipt_then_a_reorganisation(world: World, anvil: Anvil) -> None:
    async with running(world) as service:
        session_id = await world.end_session()
        service.notify()
        await anvil.until_pending()
        await anvil.mine()
        await world.until_told(session_id)
        await world.until_in_step()
        first = await world.record(session_id)
        await anvil.reorganise(1)

        async def noticed() -> bool:
            return (await world.record(session_id)).state is not SettlementState.CONFIRMED

        await until("the reorganisation is noticed", noticed)
        view = await world.ledger.wallet(world.payer.workspace_id)
        assert view is not None
        assert view.held_micro == 60_000
        assert (await world.record(session_id)).confirmed_at_ms == first.confirmed_at_ms
        await anvil.until_pending()
        await anvil.mine()
        record = await world.until_state(session_id, SettlementState.CONFIRMED)
        assert record.tx_hash == first.tx_hash
        assert record.block_hash != first.block_hash
        await assert_settled(world, session_id, 60_000)
        view = await world.ledger.wallet(world.payer.workspace_id)
        assert view is not None
        assert view.held_micro == 0


async def test_a_chain_wiped_under_the_database_is_refused() -> None:
    treasury = "0x" + ids.token_bytes(32).hex()
    async with open_anvil(treasury_key=treasury) as anvil, a_world_on(anvil) as world:
        async with open_chain(options_for(world), ledger=world.ledger, clock=clock, ids=ids):
            pass
        ledger = world.ledger
    async with open_anvil(genesis_s=1_000, treasury_key=treasury) as anvil, a_world_on(anvil) as world:
        options = options_for(world)
        with pytest.raises(ChainChangedError):
            async with open_chain(options, ledger=ledger, clock=clock, ids=ids):
                raise AssertionError("it opened")


async def test_a_lagging_endpoint_with_empty_logs(world: World, anvil: Anvil) -> None:
    async with running(world) as service:
        await world.until_in_step()
        world.endpoint.fault = of_method("eth_getLogs", answering([]))
        session_id = await world.end_session()
        service.notify()
        await anvil.until_pending()
        await anvil.mine()
        await world.until_told(session_id)
        await world.assert_books_balance()
        world.endpoint.fault = honest
        await assert_settled(world, session_id, 60_000)


async def test_an_allowance_revoked_in_the_middle(world: World, anvil: Anvil) -> None:
    async with running(world) as service:
        session_id = await world.end_session()
        async with mining(anvil):
            await world.approve(world.payer, 0)
            service.notify()
            record = await world.until_state(session_id, SettlementState.FAILED)
            assert record.reason == "TestUSDC: amount exceeds allowance"
            await world.approve(world.payer)
            await world.until_told(session_id)
        await assert_settled(world, session_id, 60_000)


async def test_an_allowance_revoked_while_the_transaction_waits(world: World, anvil: Anvil) -> None:
    async with running(world) as service:
        session_id = await world.end_session()
        service.notify()
        await anvil.until_pending()
        revoked = await world.approve_above(world.payer, 0)
        await anvil.mine()
        assert (await anvil.rpc.call("eth_getTransactionReceipt", revoked))["status"] == "0x1"
        record = await world.until_state(session_id, SettlementState.REVERTED)
        assert record.reason is not None
        await world.approve_above(world.payer, 2**256 - 1)
        async with mining(anvil):
            await world.until_told(session_id)
        assert len({attempt.nonce for attempt in (await world.record(session_id)).attempts}) == 2
        await assert_settled(world, session_id, 60_000)


CHILD = """
import sys, trio
from pathlib import Path
from sightline.chain.service import ChainOptions, open_chain
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.database.pool import PoolOptions
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds

dsn, url, token, settlement, key = sys.argv[1:]

async def told(update):
    print("told", update.session_id, flush=True)

async def main():
    options = ChainOptions(
        rpc_url=url, usdc_address=token, settlement_address=settlement,
        relayer_key=bytes.fromhex(key), depth=0, poll_ms=50,
    )
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=dsn))) as database:
        async with open_chain(options, ledger=PostgresLedger(database), clock=SystemClock(), ids=SystemIds()) as chain:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(chain.run_watcher)
                nursery.start_soon(chain.run_relayer, told)

trio.run(main)
"""


async def test_kill_9_between_signing_and_broadcast(world: World, anvil: Anvil, database_dsn: str) -> None:
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=database_dsn))) as database:
        world.ledger, world.database = PostgresLedger(database), database
        for wallet in (world.payer, world.payee):
            await world.ledger.track(wallet.workspace_id, wallet.address, now_ms=clock.now_ms())
        session_id = await world.end_session()
        broadcast = trio.Event()

        async def hang(request: object, forward: object) -> None:
            broadcast.set()
            await trio.sleep_forever()

        world.endpoint.fault = of_method(SEND, hang)  # type: ignore[arg-type]
        command = [
            sys.executable, "-c", CHILD, database_dsn, world.endpoint.url, world.token, world.settlement,
            world.relayer_key.hex(),
        ]  # fmt: skip
        server = await trio.lowlevel.open_process(command, stdout=subprocess.DEVNULL)
        with trio.fail_after(90):
            await broadcast.wait()
        server.send_signal(signal.SIGKILL)
        await server.wait()
        signed = await world.record(session_id)
        assert signed.state is SettlementState.SIGNED
        assert await anvil.pending() == {}
        world.endpoint.fault = honest
        async with running(world), mining(anvil):
            await world.until_told(session_id, patience_s=30)
            record = await world.record(session_id)
            assert [attempt.tx_hash for attempt in record.attempts] == [signed.tx_hash]
            await assert_settled(world, session_id, 60_000)
