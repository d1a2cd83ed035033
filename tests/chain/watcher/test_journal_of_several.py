"""With several endpoints the journal has what two of them tell, and nothing else waits for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog.testing

from sightline.chain.rpc.health import EndpointFault
from sightline.domain.books.journal import EntryKind
from tests.chain.watcher.scripted_node import RELAYER, ScriptedNode, open_scripted, word
from tests.chain.watcher.test_watcher_books import Office
from tests.contract.ledger.ledgers import SESSION, a_payload, an_attempt

OTHER = SESSION[:-1] + "9"
LIE = word(61) + "0" * 64 * 4


@asynccontextmanager
async def an_office(count: int) -> AsyncIterator[tuple[Office, list[ScriptedNode]]]:
    """Endpoints of one chain. The office mines through the first."""
    nodes = [ScriptedNode() for _ in range(count)]
    for node in nodes[1:]:
        node.blocks = nodes[0].blocks
    nodes[0].mine()
    async with open_scripted(*nodes) as rpc:
        yield Office(nodes[0], rpc), nodes


async def amounts(office: Office, **changed: Any) -> list[int]:
    return [entry.lines[0].amount for entry in await office.catch_up(depth=0, **changed)]


def faults(office: Office) -> list[int]:
    return [endpoint.health.faults[EndpointFault.DISAGREES] for endpoint in office.rpc.endpoints]


@pytest.mark.parametrize("count", [2, 3])
async def test_what_all_endpoints_tell_is_written_once(count: int) -> None:
    async with an_office(count) as (office, _):
        await office.catch_up(depth=0)
        office.pay()
        assert await amounts(office) == [60]
        office.pay(amount=70, tx="second", session_id=OTHER)
        assert await amounts(office) == [60, 70]
        assert faults(office) == [0] * count


@pytest.mark.parametrize("place", [0, 1])
async def test_what_one_of_two_tells_otherwise_waits_and_both_are_named(place: int) -> None:
    async with an_office(2) as (office, nodes):
        tx_hash = office.pay()
        nodes[place].data_of_logs = LIE
        with structlog.testing.capture_logs() as logs:
            assert await amounts(office) == []
        named = [each for each in logs if each["event"] == "chain_endpoint_disagrees"]
        assert {each["endpoint"] for each in named} == {"node0", "node1"}
        assert {(each["tx_hash"], each["first_block"], each["last_block"], each["is_outvoted"]) for each in named} == {
            (tx_hash, 0, 2, False)
        }  # fmt: skip
        assert all(faults(office))
        head = await office.ledger.chain_head()
        assert head is not None
        assert head.number == 2, "the wallets do not wait"
        nodes[place].data_of_logs = None
        assert await amounts(office) == [60]


@pytest.mark.parametrize(("count", "place"), [(3, 0), (3, 1), (3, 2), (4, 0)])
async def test_one_of_several_delays_nothing_and_is_named_alone(count: int, place: int) -> None:
    async with an_office(count) as (office, nodes):
        office.pay()
        nodes[place].data_of_logs = LIE
        with structlog.testing.capture_logs() as logs:
            assert await amounts(office) == [60]
        named = [each for each in logs if each["event"] == "chain_endpoint_disagrees"]
        assert [(each["endpoint"], each["is_outvoted"]) for each in named] == [(f"node{place}", True)]
        assert [bool(each) for each in faults(office)] == [number == place for number in range(count)]


async def test_an_endpoint_whose_logs_contradict_its_receipt_of_our_transaction_is_named_by_the_others() -> None:
    async with an_office(3) as (office, nodes):
        await office.catch_up(depth=0)
        await office.ledger.compose(a_payload(SESSION), now_ms=0)
        await office.ledger.store_signed(RELAYER, [an_attempt(tx_hash=office.pay())], now_ms=0)
        nodes[2].data_of_logs = LIE
        assert 60 in await amounts(office)
        assert [bool(each) for each in faults(office)] == [False, False, True]


@pytest.mark.parametrize("place", [0, 1])
async def test_with_one_of_two_away_the_journal_waits(place: int) -> None:
    async with an_office(2) as (office, nodes):
        office.pay()
        nodes[place].is_down = True
        assert await amounts(office) == []
        nodes[place].is_down = False
        assert await amounts(office) == [60]
        assert faults(office) == [0, 0]


async def test_an_endpoint_without_the_newest_block_is_not_asked_for_it() -> None:
    async with an_office(2) as (office, nodes):
        office.pay()
        nodes[1].shown = 1
        assert await amounts(office) == []
        assert faults(office) == [0, 0], "it is late, and contradicts nobody"
        nodes[1].shown = None
        assert await amounts(office) == [60]


async def test_an_endpoint_that_answers_for_fewer_blocks_is_compared_for_these() -> None:
    async with an_office(2) as (office, nodes):
        for number in range(4):
            office.pay(amount=10 + number, tx=f"tx {number}", session_id=SESSION[:-1] + str(number))
        nodes[1].span_max = 2
        assert await amounts(office) == [10, 11, 12, 13]
        assert faults(office) == [0, 0]


async def test_the_journal_begins_at_the_block_of_the_contract() -> None:
    async with an_office(2) as (office, _):
        office.pay(amount=10)
        office.pay(amount=20, tx="second", session_id=OTHER)
        assert await amounts(office, start_block=3) == [20]


async def test_gas_that_two_endpoints_tell_differently_is_not_written() -> None:
    async with an_office(2) as (office, nodes):
        await office.ledger.compose(a_payload(SESSION), now_ms=0)
        ours = office.pay()
        await office.ledger.store_signed("0x" + "dd" * 20, [an_attempt(tx_hash=ours)], now_ms=0)
        nodes[1].receipt_fees = {"l1Fee": "0x64"}
        assert await office.catch_up(depth=0) == []
        assert all(faults(office))
        nodes[1].receipt_fees = {}
        assert {entry.kind for entry in await office.catch_up(depth=0)} == {EntryKind.GAS, EntryKind.SETTLED}


async def test_an_only_endpoint_that_contradicts_itself_is_refused() -> None:
    async with an_office(1) as (office, nodes):
        await office.ledger.compose(a_payload(SESSION), now_ms=0)
        ours = office.pay()
        await office.ledger.store_signed("0x" + "dd" * 20, [an_attempt(tx_hash=ours)], now_ms=0)
        nodes[0].data_of_logs = LIE
        watcher = office.watcher(depth=0)
        assert await watcher._round_with_back_off() > 0
        assert watcher.failures == 1
        assert await office.ledger.journal.entries(limit=10) == []
        nodes[0].data_of_logs = None
        assert len(await office.catch_up(depth=0)) == 2
