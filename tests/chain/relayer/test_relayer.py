"""Each settlement reaches the chain exactly once while the endpoint loses requests and replies."""

import os
import random

import pytest
import trio

from sightline.chain.contracts.abi import call_data
from sightline.chain.relayer.allowance import settle_call
from sightline.chain.service import open_chain
from sightline.domain.errors import StoreUnavailableError
from sightline.ports.chain import SettlementUpdate
from sightline.ports.ledger import SettlementState
from tests.chain.endpoint import (
    Fault,
    Forward,
    Request,
    Response,
    answering,
    honest,
    lose_reply,
    lose_request,
    of_method,
    some_times,
)
from tests.chain.world import Wallet, World, clock, ids, options_for, running, until

SEND = "eth_sendRawTransaction"
RANDOM_SESSIONS = int(os.environ.get("SIGHTLINE_TEST_SETTLEMENTS", "60"))


async def assert_settled_once(world: World, session_id: str, total: int) -> None:
    record = await world.record(session_id)
    assert record.state is SettlementState.CONFIRMED
    assert (await world.settled_on_chain())[session_id] == total
    receipt = await world.rpc.call("eth_getTransactionReceipt", record.tx_hash)
    assert (receipt["status"], receipt["blockHash"]) == ("0x1", record.block_hash)


async def test_an_ended_session_is_confirmed_and_told_and_the_books_balance(world: World) -> None:
    await world.ready_parties()
    async with running(world) as service:
        session_id = await world.end_session(rate=1_000, seconds=61)
        began = trio.current_time()
        service.notify()
        await world.until_told(session_id)
        took_s = trio.current_time() - began
        await assert_settled_once(world, session_id, 61_000)
        await world.assert_books_balance()
        view = await world.ledger.wallet(world.payer.workspace_id)
        assert view is not None
        assert view.held_micro == 0
    assert took_s < 20


async def test_a_free_session_gets_its_transaction_and_its_ledger_row(world: World) -> None:
    await world.ready_parties()
    async with running(world) as service:
        session_id = await world.end_session(seconds=0)
        service.notify()
        await world.until_told(session_id)
        await assert_settled_once(world, session_id, 0)
        await world.assert_books_balance()


@pytest.mark.parametrize("fault", [lose_reply, lose_request])
async def test_a_lost_broadcast_is_neither_lost_nor_repeated(world: World, fault: Fault) -> None:
    await world.ready_parties()
    world.endpoint.fault = of_method(SEND, some_times(2, fault))
    async with running(world) as service:
        session_id = await world.end_session()
        service.notify()
        await world.until_told(session_id)
        await assert_settled_once(world, session_id, 60_000)
        assert len((await world.record(session_id)).attempts) == 1
        await world.assert_books_balance()


async def test_after_a_stop_between_signing_and_broadcast_the_same_bytes_are_sent(world: World) -> None:
    await world.ready_parties()
    world.endpoint.fault = of_method(SEND, lose_request)
    async with running(world):
        session_id = await world.end_session()
        signed = await world.until_state(session_id, SettlementState.SIGNED)
    world.endpoint.fault = honest
    async with running(world):
        await world.until_told(session_id)
    record = await world.record(session_id)
    assert record.attempts[0].raw == signed.attempts[0].raw
    assert record.tx_hash == signed.attempts[0].tx_hash
    await assert_settled_once(world, session_id, 60_000)


async def test_a_dead_endpoint_is_waited_out(world: World) -> None:
    await world.ready_parties()
    async with running(world) as service:
        world.endpoint.is_down = True
        session_id = await world.end_session()
        service.notify()

        async def noticed() -> bool:
            return (status := service.watcher_status()) is not None and status.failures > 0

        await until("the failure is noticed", noticed)
        assert (await world.record(session_id)).state is SettlementState.COMPOSED
        world.endpoint.is_down = False
        await world.until_told(session_id)
        await assert_settled_once(world, session_id, 60_000)


async def test_a_revoked_allowance_waits_with_its_reason_and_settles_when_restored(world: World) -> None:
    await world.ready_parties()
    await world.approve(world.payer, 0)
    async with running(world) as service:
        session_id = await world.end_session()
        service.notify()
        record = await world.until_state(session_id, SettlementState.FAILED)
        assert record.reason == "TestUSDC: amount exceeds allowance"
        assert record.attempts == ()
        await world.approve(world.payer)
        await world.until_told(session_id)
        await assert_settled_once(world, session_id, 60_000)
        await world.assert_books_balance()


async def test_a_refusal_found_only_on_the_chain_is_shown_and_tried_again(world: World) -> None:
    await world.ready_parties()
    await world.approve(world.payer, 0)

    async def rosy(request: Request, forward: Forward) -> Response | None:
        if request["method"] == "eth_estimateGas":
            return await answering("0x10000")(request, forward)
        is_trial = request["method"] == "eth_call" and "from" in request["params"][0]
        return await (answering("0x") if is_trial else honest)(request, forward)

    world.endpoint.fault = rosy
    async with running(world) as service:
        session_id = await world.end_session()
        service.notify()
        record = await world.until_state(session_id, SettlementState.REVERTED)
        world.endpoint.fault = honest
        await world.approve(world.payer)
        await world.until_told(session_id)
        after = await world.record(session_id)
    assert record.tx_hash is not None
    assert [attempt.nonce for attempt in after.attempts] == sorted({item.nonce for item in after.attempts})
    assert after.tx_hash == after.attempts[-1].tx_hash
    await assert_settled_once(world, session_id, 60_000)


async def test_a_session_that_is_settled_already_is_adopted_not_settled_again(world: World) -> None:
    await world.ready_parties()
    session_id = await world.end_session()
    data = settle_call(await world.record(session_id)).data()
    tx_hash = await world.send("0x" + world.relayer_key.hex(), world.settlement, data)
    async with running(world):
        await world.until_told(session_id)
    record = await world.record(session_id)
    assert (record.tx_hash, record.attempts) == (tx_hash, ())
    await assert_settled_once(world, session_id, 60_000)


async def test_a_paused_contract_fails_nothing_for_good(world: World) -> None:
    await world.ready_parties()
    await world.send(world.treasury_key, world.settlement, call_data("setPaused(bool)", [True]))
    async with running(world) as service:
        session_id = await world.end_session()
        service.notify()
        record = await world.until_state(session_id, SettlementState.FAILED)
        await world.send(world.treasury_key, world.settlement, call_data("setPaused(bool)", [False]))
        assert record.reason == "SessionSettlement: paused"
        await world.until_told(session_id)
        await assert_settled_once(world, session_id, 60_000)


async def test_one_refused_settlement_does_not_hold_up_the_others(world: World) -> None:
    await world.ready_parties()
    poor = Wallet()
    async with running(world) as service:
        refused = await world.end_session(payer=poor)
        good = [await world.end_session() for _ in range(5)]
        service.notify()
        await world.until_told(*good)
        assert (await world.record(refused)).state is SettlementState.FAILED


async def test_news_is_told_again_until_it_was_taken(world: World) -> None:
    await world.ready_parties()
    session_id = await world.end_session()
    heard: list[SettlementUpdate] = []

    async def busy_at_first(update: SettlementUpdate) -> None:
        heard.append(update)
        if len(heard) < 3:
            raise StoreUnavailableError("busy")

    options = options_for(world)
    async with (
        open_chain(options, ledger=world.ledger, clock=clock, ids=ids) as service,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(service.run_watcher)
        nursery.start_soon(service.run_relayer, busy_at_first)

        async def taken() -> bool:
            return len(heard) >= 3 and await world.ledger.unnotified() == []

        await until("the news is taken", taken)
        nursery.cancel_scope.cancel()
    assert {update.session_id for update in heard} == {session_id}
    assert len(heard) == 3


async def test_after_a_change_of_keys_what_the_old_key_signed_and_never_mined_is_signed_anew(world: World) -> None:
    await world.ready_parties()
    world.endpoint.fault = of_method(SEND, lose_request)
    async with running(world):
        session_id = await world.end_session()
        old = await world.until_state(session_id, SettlementState.SIGNED)
    successor = Wallet()
    await world.give_coin(successor)
    for step in ("proposeRelayer(address)", "allowRelayer(address)"):
        await world.send(world.treasury_key, world.settlement, call_data(step, [successor.address]))

    async def swallow_the_old(request: Request, forward: Forward) -> Response | None:
        is_old = request["params"] == ["0x" + old.attempts[0].raw.hex()]
        return await (answering(old.tx_hash) if is_old else honest)(request, forward)

    world.endpoint.fault = of_method(SEND, swallow_the_old)
    key = bytes.fromhex(successor.key[2:])
    async with running(world, relayer_key=key, replace_ms=300):
        await world.until_told(session_id)
    record = await world.record(session_id)
    assert record.tx_hash != old.tx_hash
    assert record.attempts[-1].nonce == 0
    assert await world.ledger.next_nonce(successor.address) == 1
    await assert_settled_once(world, session_id, 60_000)


async def test_two_servers_over_one_ledger_settle_each_session_once(world: World) -> None:
    await world.ready_parties()
    async with running(world) as one, running(world) as two:
        sessions = [await world.end_session(seconds=second) for second in range(1, 21)]
        one.notify()
        two.notify()
        await world.until_told(*sessions)
        assert len(await world.settled_on_chain()) == 20
        nonces = [attempt.nonce for item in sessions for attempt in (await world.record(item)).attempts]
        assert len(nonces) == len(set(nonces)) == 20


async def test_random_sessions_through_random_faults_add_up_to_the_last_micro(world: World) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    await world.ready_parties(micro=10**15)

    async def unlucky(request: Request, forward: Forward) -> Response | None:
        roll = dice.random()
        if roll < 0.05 and request["method"] == "eth_getLogs":
            return await answering([])(request, forward)
        if roll < 0.05 and request["method"] == "eth_getTransactionReceipt":
            return await answering(None)(request, forward)
        return await forward(request)

    charges: dict[str, int] = {}
    world.endpoint.fault = unlucky
    world.endpoint.weather = lambda: dice.choice(["fine"] * 8 + ["lose_request", "lose_reply"])
    async with running(world) as service:
        for _ in range(RANDOM_SESSIONS):
            rate, seconds, fee_bps = dice.randint(1, 9_999), dice.randint(0, 14_400), dice.randint(0, 3_000)
            charges[await world.end_session(rate=rate, seconds=seconds, fee_bps=fee_bps)] = rate * seconds
            service.notify()
        await world.until_told(*charges, patience_s=30 + RANDOM_SESSIONS)
        world.endpoint.fault = honest
        world.endpoint.weather = lambda: "fine"
        assert await world.settled_on_chain() == charges, f"seed {seed}"
        await world.assert_books_balance()
        assert await world.balance(world.payer) == 10**15 - sum(charges.values()), f"seed {seed}"
        view = await world.ledger.wallet(world.payer.workspace_id)
        assert view is not None
        assert view.held_micro == 0
