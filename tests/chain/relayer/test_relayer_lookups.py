"""What the relayer looks up on the chain: blocks, events, transactions, and the chain that it is connected to."""

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from sightline.chain.contracts.abi import SETTLED_TOPIC
from sightline.chain.relayer.allowance import AllowanceWork
from sightline.chain.relayer.options import RelayerOptions
from sightline.domain.value import replace
from sightline.ports.chain import ChainChangedError
from sightline.ports.ledger import HEADERS_MAX, Inclusion, SettlementState
from sightline.system.keccak import session_id_hash
from tests.chain.relayer.desk import Desk
from tests.chain.relayer.settling_node import Block, word


async def test_the_newest_transaction_of_a_nonce_is_broadcast_for_a_settlement_that_needs_it_no_more(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, first = desk.relayer(replace_ms=1_000, resend_ms=10**9), await desk.ended()
    for wait_s in (0, 1, 2):
        await trio.sleep(wait_s)
        await relayer.work_once(desk.hear)
    attempts = (await desk.record(first)).attempts
    assert len(attempts) == 3
    # The next one is in flight while the first one was settled by somebody else.
    second = await desk.ended()
    await relayer.work_once(desk.hear)
    assert [each.nonce for each in (await desk.record(second)).attempts] == [1]
    place = Inclusion(tx_hash="0xelsewhere", block_number=0, block_hash="0xb0")
    await desk.ledger.mark_confirmed(first, place, now_ms=1)
    before = len(desk.node.sent)
    await relayer.work_once(desk.hear)
    assert [item.tx_hash for item in desk.node.sent[before:]] == [attempts[-1].tx_hash]


@pytest.mark.parametrize("used", [1, 2, 5])
async def test_a_nonce_below_those_that_the_chain_has_used_is_no_gap(desk: Desk, used: int) -> None:
    relayer, session_id = desk.relayer(), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.pool.clear()
    desk.node.foreign_nonces = used
    with capture_logs() as logs:
        await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.STUCK
    assert [entry for entry in logs if entry["event"] == "relayer_nonce_unknown"] == []


async def test_a_transaction_in_the_newest_block_is_looked_up_without_asking_for_its_block(desk: Desk) -> None:
    relayer = desk.relayer(depth=1)
    await desk.ended()
    await relayer.work_once(desk.hear)

    async def asked_blocks() -> int:
        before = desk.node.counted["eth_getBlockByNumber"]
        await relayer.work_once(desk.hear)
        return desk.node.counted["eth_getBlockByNumber"] - before

    assert await asked_blocks() == 1, "the head, of a transaction in no block"
    desk.node.mine()
    assert await asked_blocks() == 1
    desk.node.mine()
    assert await asked_blocks() == 2
    assert len(desk.told) == 1


async def test_a_relayer_that_starts_looks_up_the_settlements_of_the_last_thousand_blocks(desk: Desk) -> None:
    relayer, node, sessions = desk.relayer(depth=0), desk.node, list[str]()
    empty = [Block(number, word(number), word(number - 1)) for number in range(1, 2_007)]
    node.blocks += empty[:1_004]
    for _ in range(2):
        sessions.append(await desk.ended())
        await relayer.work_once(desk.hear)
        assert node.mine().number in (1_005, 1_006)
        await relayer.work_once(desk.hear)
    assert [await desk.state(each) for each in sessions] == [SettlementState.CONFIRMED] * 2
    # The chain was restored from a copy that does not have these transactions.
    for block in node.blocks:
        block.mined.clear()
    node.blocks += empty[1_006:2_005]
    assert node.blocks[-1].number - HEADERS_MAX == 1_005
    await desk.relayer(depth=0).work_once(desk.hear)
    assert [await desk.state(each) for each in sessions] == [SettlementState.CONFIRMED, SettlementState.SENT]


async def test_a_relayer_that_starts_leaves_a_settlement_alone_that_is_still_in_its_block(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    before = await desk.record(session_id)
    await trio.sleep(1)
    with capture_logs() as logs:
        await desk.relayer(depth=0).work_once(desk.hear)
    assert await desk.record(session_id) == before
    assert [entry["event"] for entry in logs] == []


async def test_a_settlement_whose_block_was_replaced_before_it_is_final_is_sent_again_once(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(depth=5, resend_ms=10**9, replace_ms=10**9), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    mined = await desk.record(session_id)
    assert (mined.state, mined.block_hash) == (SettlementState.MINED, desk.node.blocks[-1].block_hash)
    desk.node.fork(1)
    desk.node.pool.clear()
    desk.node.mine(salt="other")
    for sent, events in ((1, ["settlement_left_its_block"]), (2, []), (2, [])):
        with capture_logs() as logs:
            await relayer.work_once(desk.hear)
        record = await desk.record(session_id)
        assert (record.state, record.block_hash, len(record.attempts)) == (SettlementState.SENT, None, 1)
        assert [transaction.tx_hash for transaction in desk.node.sent] == [mined.tx_hash] * sent
        assert [entry["event"] for entry in logs] == events


async def test_of_several_events_of_a_session_the_newest_is_found(desk: Desk) -> None:
    session_id = await desk.ended()
    await desk.relayer().work_once(desk.hear)
    (transaction,) = desk.node.pool.values()
    for number in (1, 2, 3):
        mined = replace(transaction, tx_hash=word(number))
        desk.node.blocks.append(Block(number, word(number), word(number - 1), [(mined, 1)]))
    work = AllowanceWork(desk.rpc, desk.ledger, desk.node.identity, RelayerOptions())
    found = await work.find(session_id_hash(session_id))
    assert found is not None
    assert (found.inclusion.block_number, found.inclusion.tx_hash) == (3, word(3))


async def test_the_event_of_a_session_in_a_receipt_is_that_of_its_kind_and_its_hash(desk: Desk) -> None:
    work = AllowanceWork(desk.rpc, desk.ledger, desk.node.identity, RelayerOptions())
    low, ours, high = word(1), word(2**100), word(2**200)

    def log(index: int, *topics: str) -> dict[str, Any]:
        return {"topics": topics, "data": "0x", "logIndex": hex(index)}

    others = [
        log(0, low, ours), log(1, high, ours), log(2, SETTLED_TOPIC, low), log(3, SETTLED_TOPIC, high),
        log(4, SETTLED_TOPIC), log(5),
    ]  # fmt: skip
    found = work.event_in({"logs": [*others, log(6, SETTLED_TOPIC.upper().replace("0X", "0x"), ours, high)]}, ours)
    assert found is not None
    assert found.log_index == 6
    for receipt in ({"logs": others}, {"logs": []}, {"logs": None}, {}):
        assert work.event_in(receipt, ours) is None


@pytest.mark.parametrize("chain_id", [6, 8])
async def test_nothing_is_signed_for_an_endpoint_with_another_chain_id(desk: Desk, chain_id: int) -> None:
    relayer, session_id = desk.relayer(), await desk.ended()
    ours, desk.node.identity = desk.node.identity, replace(desk.node.identity, chain_id=chain_id)
    with pytest.raises(ChainChangedError, match=f"chain id is {chain_id}, not {ours.chain_id}"):
        await relayer.work_once(desk.hear)
    assert (await desk.record(session_id)).attempts == ()


@pytest.mark.parametrize("genesis", [1, 2**255])
async def test_nothing_is_signed_for_an_endpoint_with_another_first_block(desk: Desk, genesis: int) -> None:
    desk.node.identity = replace(desk.node.identity, genesis_hash=word(2**200))
    relayer, session_id = desk.relayer(), await desk.ended()
    desk.node.blocks[0].block_hash = word(genesis)
    with pytest.raises(ChainChangedError, match="first block is not the one"):
        await relayer.work_once(desk.hear)
    assert (await desk.record(session_id)).attempts == ()
