"""Endpoints in front of anvil fail in mid-session: it is settled once, and the faulty endpoint is named."""

from collections.abc import AsyncIterator

import pytest
import structlog.testing

from sightline.chain.rpc.health import EndpointFault
from sightline.ports.ledger import SettlementState
from tests.chain.endpoint import Endpoint, Fault, behind, failed_receipt, hang, honest, of_method, open_endpoint
from tests.chain.interop.anvil import Anvil
from tests.chain.interop.conftest import mining
from tests.chain.world import World, running, until

pytestmark = pytest.mark.interop
DEPTH = 2


@pytest.fixture
async def second(anvil: Anvil) -> AsyncIterator[Endpoint]:
    async with open_endpoint(anvil.url) as endpoint:
        yield endpoint


async def test_the_first_of_two_endpoints_is_killed_in_mid_session(
    world: World, second: Endpoint, anvil: Anvil
) -> None:
    urls = f"{world.endpoint.url},{second.url}"
    async with running(world, rpc_url=urls, depth=DEPTH) as service, mining(anvil):
        before = await world.end_session()
        service.notify()
        await world.until_told(before)
        world.endpoint.is_down = True
        session_id = await world.end_session()
        service.notify()
        await world.until_state(session_id, SettlementState.MINED)
        assert {update.session_id for update in world.updates} == {before}
        world.endpoint.is_down = False
        await world.until_told(session_id)
    assert len(await world.settled_on_chain()) == 2
    assert len((await world.record(session_id)).attempts) == 1


@pytest.mark.parametrize("fault", [hang, of_method("eth_getTransactionReceipt", failed_receipt)])
async def test_one_of_three_endpoints_hangs_or_lies_and_the_others_confirm(
    world: World, second: Endpoint, anvil: Anvil, fault: Fault
) -> None:
    async with open_endpoint(anvil.url) as third:
        urls = f"{world.endpoint.url},{second.url},{third.url}"
        with structlog.testing.capture_logs() as logs:
            async with running(world, rpc_url=urls, depth=DEPTH) as service, mining(anvil):
                world.endpoint.fault = fault
                session_id = await world.end_session()
                service.notify()
                await world.until_told(session_id)
                bad, *good = service.endpoints()
    assert (await world.settled_on_chain())[session_id] == 60_000
    assert len((await world.record(session_id)).attempts) == 1
    assert bad.faults[EndpointFault.UNREACHABLE] or bad.faults[EndpointFault.DISAGREES]
    assert not any(each.faults[EndpointFault.DISAGREES] for each in good)
    left_out = {entry["endpoint"] for entry in logs if entry["event"] == "chain_endpoint_left_out"}
    assert left_out == {bad.name}


async def test_an_endpoint_that_lags_neither_confirms_nor_answers_reads(
    world: World, second: Endpoint, anvil: Anvil
) -> None:
    world.endpoint.fault = behind(int(await anvil.rpc.call("eth_blockNumber"), 16))
    await anvil.mine(10)
    urls = f"{world.endpoint.url},{second.url}"
    async with running(world, rpc_url=urls, depth=DEPTH) as service, mining(anvil):
        session_id = await world.end_session()
        service.notify()
        await world.until_state(session_id, SettlementState.MINED)
        late, fresh = service.endpoints()
        assert late.is_lagging
        assert not fresh.is_lagging
        assert world.updates == []
        world.endpoint.fault = honest

        async def has_caught_up() -> bool:
            return not late.is_lagging

        await until("the endpoint has caught up", has_caught_up)
        await world.until_told(session_id)
    assert (await world.settled_on_chain())[session_id] == 60_000
