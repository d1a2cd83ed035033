"""Many random sessions on anvil while blocks are reorganised and the endpoint loses and falsifies answers."""

import os
import random

import pytest
import trio

from sightline.ports.ledger import SettlementState
from tests.chain.endpoint import Forward, Request, Response, answering, honest
from tests.chain.interop.anvil import Anvil
from tests.chain.interop.conftest import mining
from tests.chain.world import World, running, until

pytestmark = pytest.mark.interop
SESSIONS = int(os.environ.get("SIGHTLINE_TEST_SETTLEMENTS", "60"))


@pytest.mark.parametrize("depth", [0, 2])
async def test_random_sessions_add_up_through_reorganisations(world: World, anvil: Anvil, depth: int) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    async with mining(anvil):
        await world.fund(world.payer, 10**15)
    await anvil.mine(5)
    start = await world.balance(world.payer)

    async def unlucky(request: Request, forward: Forward) -> Response | None:
        roll = dice.random()
        if roll < 0.05 and request["method"] == "eth_getLogs":
            return await answering([])(request, forward)
        if roll < 0.05 and request["method"] == "eth_getTransactionReceipt":
            return await answering(None)(request, forward)
        return await forward(request)

    async def storm() -> None:
        while True:
            await trio.sleep(dice.uniform(0.05, 0.4))
            await anvil.mine(dice.randint(1, 2))
            if dice.random() < 0.4:
                await anvil.reorganise(dice.randint(1, 3))

    charges: dict[str, int] = {}
    world.endpoint.fault = unlucky
    world.endpoint.weather = lambda: dice.choice(["fine"] * 12 + ["lose_request", "lose_reply"])
    async with running(world, depth=depth, replace_ms=5_000) as service, trio.open_nursery() as nursery:
        nursery.start_soon(storm)
        for _ in range(SESSIONS):
            rate, seconds, fee_bps = dice.randint(1, 9_999), dice.randint(0, 14_400), dice.randint(0, 3_000)
            charges[await world.end_session(rate=rate, seconds=seconds, fee_bps=fee_bps)] = rate * seconds
            service.notify()
            await trio.sleep(0.02)
        await world.until_told(*charges, patience_s=60 + SESSIONS)
        nursery.cancel_scope.cancel()
        world.endpoint.fault = honest
        world.endpoint.weather = lambda: "fine"
        async with mining(anvil):

            async def all_confirmed() -> bool:
                records = [await world.record(session_id) for session_id in charges]
                return all(record.state is SettlementState.CONFIRMED for record in records)

            await until(f"everything is confirmed in the quiet after the storm, seed {seed}", all_confirmed, 60)
            await until("the rows name blocks of the chain", lambda: rows_are_canonical(world, list(charges)), 30)
        await anvil.mine(3)
        assert await world.settled_on_chain() == charges, f"seed {seed}"
        await world.assert_books_balance()
        assert await world.balance(world.payer) == start - sum(charges.values()), f"seed {seed}"
        view = await world.ledger.wallet(world.payer.workspace_id)
        assert view is not None
        assert view.held_micro == 0


async def rows_are_canonical(world: World, sessions: list[str]) -> bool:
    for session_id in sessions:
        record = await world.record(session_id)
        receipt = await world.rpc.call("eth_getTransactionReceipt", record.tx_hash)
        if receipt is None or receipt["blockHash"].lower() != record.block_hash:
            return False
    return True
