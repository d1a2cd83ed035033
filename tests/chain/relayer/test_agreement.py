"""Which outcome of a transaction counts when several endpoints are asked, block by block, in the test process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from sightline.chain.relayer.allowance import AllowanceWork
from sightline.chain.relayer.inclusion import agreed, look
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.rpc.health import EndpointFault
from sightline.ports.ledger import SettlementState
from simulation.memory.ledger import MemoryLedger
from tests.chain.relayer.desk import Desk, TrioClock
from tests.chain.relayer.settling_node import SettlingNode, open_node
from tests.chain.relayer.test_relayer_rounds import settle_elsewhere

RECEIPT = "eth_getTransactionReceipt"


@asynccontextmanager
async def a_desk(count: int, *, blocks: int = 2) -> AsyncIterator[tuple[Desk, list[SettlingNode]]]:
    """A relayer's ledger on nodes that have the same blocks."""
    nodes = [SettlingNode() for _ in range(count)]
    async with open_node(*nodes) as rpc:
        mine(*nodes, count=blocks)
        yield Desk(nodes[0], rpc, MemoryLedger(TrioClock().now_ms)), nodes


def mine(*nodes: SettlingNode, count: int = 1) -> None:
    for node in nodes:
        for _ in range(count):
            node.mine()


def faults(desk: Desk) -> list[int]:
    return [endpoint.health.faults[EndpointFault.DISAGREES] for endpoint in desk.rpc.endpoints]


async def test_an_endpoint_that_is_a_block_behind_is_waited_for_and_contradicts_nobody() -> None:
    async with a_desk(2) as (desk, (first, second)):
        relayer, session_id = desk.relayer(depth=1), await desk.ended()
        await relayer.work_once(desk.hear)
        mine(first, second)
        mine(first)
        await relayer.work_once(desk.hear)
        assert (await desk.state(session_id), faults(desk)) == (SettlementState.MINED, [0, 0])
        mine(second)
        await relayer.work_once(desk.hear)
        assert (await desk.state(session_id), faults(desk)) == (SettlementState.CONFIRMED, [0, 0])


async def test_an_endpoint_may_be_further_than_the_one_that_was_asked_first() -> None:
    async with a_desk(2) as (desk, (first, second)):
        relayer, session_id = desk.relayer(depth=1), await desk.ended()
        await relayer.work_once(desk.hear)
        mine(first, second, count=2)
        mine(second, count=3)
        await relayer.work_once(desk.hear)
        assert (await desk.state(session_id), faults(desk)) == (SettlementState.CONFIRMED, [0, 0])


async def test_an_endpoint_contradicts_once_it_has_the_block_of_that_height_without_the_transaction() -> None:
    async with a_desk(2) as (desk, (first, second)):
        relayer, session_id = desk.relayer(depth=1), await desk.ended()
        await relayer.work_once(desk.hear)
        second.pool.clear()
        mine(first, second)
        mine(first)
        with capture_logs() as logs:
            await relayer.work_once(desk.hear)
            assert (await desk.state(session_id), faults(desk)) == (SettlementState.MINED, [0, 0])
            assert [each for each in logs if each["event"] == "chain_endpoint_disagrees"] == []
            mine(second)
            await relayer.work_once(desk.hear)
        assert (await desk.state(session_id), faults(desk)) == (SettlementState.MINED, [1, 1])
        told = [each for each in logs if each["event"] == "chain_endpoint_disagrees"]
        assert sorted((each["is_included"], each["succeeded"], each["is_outvoted"]) for each in told) == [
            (False, False, False),
            (True, True, False),
        ]
        mine(second, count=3)
        await relayer.work_once(desk.hear)
        assert (await desk.state(session_id), faults(desk)) == (SettlementState.MINED, [2, 2])


@pytest.mark.parametrize("agreeing", [2, 3])
async def test_endpoints_that_agree_confirm_what_another_one_has_not_and_only_that_is_named(agreeing: int) -> None:
    async with a_desk(agreeing + 1) as (desk, nodes):
        relayer, session_id = desk.relayer(depth=1), await desk.ended()
        await relayer.work_once(desk.hear)
        nodes[-1].pool.clear()
        mine(*nodes, count=2)
        await relayer.work_once(desk.hear)
        assert await desk.state(session_id) is SettlementState.CONFIRMED
        assert faults(desk) == [*[0] * agreeing, 1]


async def test_a_transaction_that_the_first_endpoint_does_not_have_is_found_at_the_others() -> None:
    async with a_desk(3) as (desk, (first, second, third)):
        relayer, session_id = desk.relayer(depth=0), await desk.ended()
        await relayer.work_once(desk.hear)
        first.pool.clear()
        first.foreign_nonces = 1
        mine(first, second, third)
        await relayer.work_once(desk.hear)
        assert await desk.state(session_id) is SettlementState.CONFIRMED


async def test_the_other_endpoints_are_not_asked_for_transactions_that_no_block_can_have() -> None:
    async with a_desk(2) as (desk, (_, second)):
        relayer = desk.relayer(resend_ms=10**9, replace_ms=10**9)
        for _ in range(2):
            await desk.ended()
        await relayer.work_once(desk.hear)
        before = second.counted[RECEIPT]
        await relayer.work_once(desk.hear)
        assert second.counted[RECEIPT] == before


@pytest.mark.parametrize(
    ("delay_s", "is_confirmed", "took_s"), [(0.9, True, 1.8), (1.1, False, 2.0), (60.0, False, 2.0)]
)
async def test_a_round_waits_two_seconds_at_most_for_a_second_opinion(
    autojump_clock: Any, delay_s: float, is_confirmed: bool, took_s: float
) -> None:
    async with a_desk(2) as (desk, (first, second)):
        relayer, session_id = desk.relayer(depth=1), await desk.ended()
        await relayer.work_once(desk.hear)
        # The second endpoint is asked twice: for the receipt, and for the block that it names.
        mine(first, second, count=2)
        began, second.delay_s = trio.current_time(), delay_s
        await relayer.work_once(desk.hear)
        assert trio.current_time() - began == pytest.approx(took_s)
        assert await desk.state(session_id) is (SettlementState.CONFIRMED if is_confirmed else SettlementState.MINED)


@pytest.mark.parametrize(
    ("others", "may_be_alone", "is_agreed"),
    [
        ("have it", True, True),
        ("have it", False, True),
        ("are away", True, True),
        ("are away", False, False),
        ("are a block behind", True, False),
        ("have it not", True, False),
    ],
)
async def test_one_report_is_enough_only_where_it_is_allowed_and_no_other_endpoint_answers(
    others: str, may_be_alone: bool, is_agreed: bool
) -> None:
    async with a_desk(2) as (desk, (first, second)):
        relayer, session_id = desk.relayer(depth=1), await desk.ended()
        await relayer.work_once(desk.hear)
        if others == "have it not":
            second.pool.clear()
        mine(first, second, count=1 if others == "are a block behind" else 2)
        if others == "are a block behind":
            mine(first)
        second.is_down = others == "are away"
        work = AllowanceWork(desk.rpc, desk.ledger, first.identity, RelayerOptions())
        records = [await desk.record(session_id)]
        found = (await look(work, relayer.address, records)).found
        agreeing = await agreed(work, relayer.address, records, found, depth=1, may_be_alone=may_be_alone)
        assert agreeing == (frozenset({session_id}) if is_agreed else frozenset())
        assert await agreed(work, relayer.address, records, found, depth=2, may_be_alone=may_be_alone) == frozenset()


async def test_a_single_report_that_says_otherwise_is_not_enough() -> None:
    """The endpoint that reported the transaction is away, and the other one does not have it."""
    async with a_desk(2) as (desk, (first, second)):
        relayer, session_id = desk.relayer(depth=0), await desk.ended()
        await relayer.work_once(desk.hear)
        second.pool.clear()
        mine(first, second)
        work = AllowanceWork(desk.rpc, desk.ledger, first.identity, RelayerOptions())
        records = [await desk.record(session_id)]
        found = (await look(work, relayer.address, records)).found
        first.is_down = True
        assert await agreed(work, relayer.address, records, found, depth=0, may_be_alone=True) == frozenset()


async def test_what_takes_effect_in_a_block_needs_two_endpoints_once_for_each_block() -> None:
    async with a_desk(2) as (desk, (first, second)):
        relayer, session_id = desk.relayer(depth=9, resend_ms=10**9, replace_ms=10**9), await desk.ended()
        relayer._queues[0].confirmation._work.counts_in_block = True

        async def round_asks_second() -> tuple[SettlementState, bool]:
            before = second.counted[RECEIPT]
            await relayer.work_once(desk.hear)
            return await desk.state(session_id), second.counted[RECEIPT] > before

        await relayer.work_once(desk.hear)
        mine(first)
        assert await round_asks_second() == (SettlementState.SENT, True)
        mine(second)
        assert await round_asks_second() == (SettlementState.MINED, True)
        assert await round_asks_second() == (SettlementState.MINED, False)
        mined = (await desk.record(session_id)).block_hash
        for node in (first, second):
            node.fork(1)
            node.mine(salt="other")
        assert await round_asks_second() == (SettlementState.MINED, True)
        assert (await desk.record(session_id)).block_hash == first.blocks[-1].block_hash != mined
        assert await round_asks_second() == (SettlementState.MINED, False)
        for node in (first, second):
            node.fork(1)
        assert await round_asks_second() == (SettlementState.SENT, False), "the first endpoint has nothing to confirm"
        second.is_down = True
        mine(first)
        assert (await round_asks_second())[0] is SettlementState.MINED, "no other endpoint answers"


async def test_a_settlement_by_somebody_else_is_final_only_when_a_second_endpoint_has_it() -> None:
    async with a_desk(2) as (desk, (first, second)):
        relayer, session_id = desk.relayer(depth=0), await desk.ended()
        await settle_elsewhere(desk, session_id, 51_000)
        second.pool.clear()
        mine(first)
        await relayer.work_once(desk.hear)
        assert await desk.state(session_id) is SettlementState.MINED
        second.blocks = [*first.blocks]
        await relayer.work_once(desk.hear)
        assert await desk.state(session_id) is SettlementState.CONFIRMED
