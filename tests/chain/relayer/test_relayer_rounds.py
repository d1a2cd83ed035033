"""Single rounds of the relayer against an in-process node: depth, reorganisations, replacements, lanes, proofs."""

import dataclasses
from typing import Any

import pytest
import trio

from sightline.chain.relayer.allowance import AllowanceWork
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.relayer import Relayer
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.chain import ChainChangedError
from sightline.ports.ledger import (
    SettlementLane,
    SettlementState,
)
from sightline.system.keccak import session_id_hash
from simulation.memory.ledger import MemoryLedger
from tests.chain.relayer.desk import NO_ALLOWANCE, PAYER, RATE, SECONDS, Desk, TrioClock
from tests.chain.relayer.settling_node import Settled

# Depth and reorganisations.


async def test_a_settlement_is_confirmed_at_its_depth_and_not_one_block_before(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=2), await desk.ended()
    await relayer.work_once(desk.hear)
    states = []
    for _ in range(3):
        desk.node.mine()
        await relayer.work_once(desk.hear)
        states.append(await desk.state(session_id))
    assert states == [SettlementState.MINED, SettlementState.MINED, SettlementState.CONFIRMED]
    assert [update.session_id for update in desk.told] == [session_id]


@pytest.mark.parametrize("blocks_on_top", [1, 3])
async def test_a_transaction_that_fails_on_the_other_branch_is_not_confirmed(desk: Desk, blocks_on_top: int) -> None:
    relayer, session_id = desk.relayer(depth=2), await desk.ended()
    await relayer.work_once(desk.hear)
    for _ in range(blocks_on_top):
        desk.node.mine()
        await relayer.work_once(desk.hear)
    desk.node.fork(blocks_on_top)
    desk.node.fails = lambda _: True
    desk.node.refuses = lambda _: NO_ALLOWANCE
    desk.node.mine(salt="other")
    await desk.watch()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT
    for _ in range(2):
        desk.node.mine()
        await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.lane) == (SettlementState.REVERTED, SettlementLane.RETRY)
    assert record.reason == NO_ALLOWANCE


async def test_a_transaction_that_is_mined_again_less_deep_is_confirmed_only_at_depth(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=2), await desk.ended()
    await relayer.work_once(desk.hear)
    for _ in range(3):
        desk.node.mine()
        await relayer.work_once(desk.hear)
    before = await desk.record(session_id)
    assert before.state is SettlementState.CONFIRMED
    desk.node.fork(3)
    states = []
    for _ in range(3):
        desk.node.mine(salt="other")
        await desk.watch()
        await relayer.work_once(desk.hear)
        states.append(await desk.state(session_id))
    assert states == [SettlementState.MINED, SettlementState.MINED, SettlementState.CONFIRMED]
    after = await desk.record(session_id)
    assert (after.tx_hash, after.confirmed_at_ms) == (before.tx_hash, before.confirmed_at_ms)
    assert after.block_hash != before.block_hash


async def test_the_first_block_above_the_common_ancestor_is_rechecked(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.CONFIRMED
    desk.node.fork(1)
    desk.node.pool.clear()
    desk.node.mine(salt="other")
    await desk.watch()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT
    assert len(desk.node.pool) == 1


async def test_a_block_that_the_watcher_applied_puts_other_blocks_of_its_number_in_doubt(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    desk.node.fork(1)
    desk.node.pool.clear()
    desk.node.mine(salt="other")
    await desk.watch()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT


async def test_a_receipt_of_a_block_that_is_not_canonical_does_not_count(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    (transaction,) = desk.node.sent
    desk.node.receipts_from[transaction.tx_hash] = "0x" + "99" * 32
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is not SettlementState.CONFIRMED
    assert desk.told == []
    desk.node.receipts_from.clear()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.CONFIRMED


async def test_a_session_that_was_signed_again_does_not_wait_for_its_own_lost_nonce(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(depth=2, retry_ms_min=100, retry_every_ms=100), await desk.ended()
    await relayer.work_once(desk.hear)
    (first,) = desk.node.sent
    desk.node.receipts_from[first.tx_hash] = "0x" + "99" * 32  # an endpoint that does not show the receipt
    desk.node.mine()
    for _ in range(2):
        await relayer.work_once(desk.hear)
        await trio.sleep(0.6)
    assert await desk.state(session_id) is SettlementState.FAILED
    desk.node.fork(1)
    desk.node.pool.clear()
    desk.node.receipts_from.clear()
    desk.node.mine(salt="other")
    await trio.sleep(5)
    await relayer.work_once(desk.hear)
    assert [attempt.nonce for attempt in (await desk.record(session_id)).attempts] == [0, 1]
    for _ in range(4):
        await relayer.work_once(desk.hear)
        desk.node.mine()
        await trio.sleep(0.6)
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.CONFIRMED
    assert [update.session_id for update in desk.told] == [session_id]


async def test_a_chain_with_another_first_block_is_not_signed_for(desk: Desk) -> None:
    relayer, session_id = desk.relayer(), await desk.ended()
    desk.node.blocks[0].block_hash = "0x" + "99" * 32
    with pytest.raises(ChainChangedError):
        await relayer.work_once(desk.hear)
    assert (await desk.record(session_id)).attempts == ()


# Replacements.


async def test_a_replacement_has_the_same_nonce_and_higher_fees(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(depth=0, replace_ms=1_000), await desk.ended()
    await relayer.work_once(desk.hear)
    await trio.sleep(1.5)
    await relayer.work_once(desk.hear)
    first, second = (await desk.record(session_id)).attempts
    assert first.nonce == second.nonce == 0
    assert second.max_fee_wei >= first.max_fee_wei * 9 // 8
    assert second.tip_wei >= first.tip_wei * 9 // 8
    assert await desk.ledger.next_nonce(desk.key.address) == 1


async def test_a_replacement_never_passes_the_fee_cap(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(depth=0, replace_ms=1_000, fee_cap_wei=3_100_000_000), await desk.ended()
    await relayer.work_once(desk.hear)
    for _ in range(3):
        await trio.sleep(6)
        await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert record.reason == "a replacement would pass the fee cap"
    assert len(record.attempts) == 1
    assert record.attempts[0].max_fee_wei <= 3_100_000_000


# Checks before signing.


async def test_a_row_without_session_or_hold_is_not_signed(desk: Desk) -> None:
    relayer, session_id = desk.relayer(), await desk.ended()
    desk.sessions.clear()
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.attempts) == (SettlementState.FAILED, ())
    assert record.reason == "not proved: no ended session with its charge held"
    assert desk.node.sent == []


@pytest.mark.parametrize(
    "changed",
    [
        {"from_address": "0x" + "ee" * 20},
        {"to_address": "0x" + "ee" * 20},
        {"to_amount": MicroUsdc(10**9)},
        {"fee_amount": MicroUsdc(0)},
        {"rate": MicroUsdc(RATE + 1)},
        {"chargeable_seconds": SECONDS + 1},
        {"platform_fee_bps": 0},
        {"consumer_workspace_id": "x"},
        {"operator_workspace_id": "x"},
    ],
)
async def test_a_settlement_that_differs_from_the_recorded_session_is_not_signed(
    desk: Desk, changed: dict[str, Any]
) -> None:
    relayer, session_id = desk.relayer(), await desk.ended(**changed)
    await relayer.work_once(desk.hear)
    assert desk.node.sent == []
    assert ((await desk.record(session_id)).reason or "").startswith("not proved: ")


async def test_a_hold_of_another_amount_proves_nothing(desk: Desk) -> None:
    relayer, session_id = desk.relayer(), await desk.ended()
    desk.ledger._holds[session_id].amount -= 1
    await relayer.work_once(desk.hear)
    assert desk.node.sent == []


# Adoption of transactions that the database does not know.


async def settle_elsewhere(desk: Desk, session_id: str, to_amount: int) -> str:
    """Settle a session by a transaction that the database does not know. The amount decides the seconds."""
    record = await desk.record(session_id)
    stranger = Desk(desk.node, desk.rpc, MemoryLedger(), key=desk.key)
    other = await stranger.ended()
    row = stranger.ledger._settlements.pop(other)
    seconds = (to_amount + record.payload.fee_amount) // record.payload.rate
    payload = replace(record.payload, to_amount=MicroUsdc(to_amount), chargeable_seconds=seconds)
    stranger.ledger._settlements[session_id] = replace(
        row, session_id=session_id, session_id_hash=session_id_hash(session_id), payload=payload
    )
    relayer = stranger.relayer()
    sender, records = relayer._queues[0].signing._sender, [stranger.ledger._settlements[session_id]]
    (call,) = await sender.calls([records])
    (attempt,) = await sender.sign(records, call, 0, _some_fees(), TrioClock().now_ms())
    await desk.rpc.send_once([("eth_sendRawTransaction", ["0x" + attempt.raw.hex()])])
    return attempt.tx_hash


def _some_fees() -> Any:
    from sightline.chain.signer import Fees

    return Fees(max_fee_wei=10**10, tip_wei=10**9)


async def test_an_adopted_settlement_waits_for_its_depth_like_any_other(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=2), await desk.ended()
    tx_hash = await settle_elsewhere(desk, session_id, 51_000)
    states = []
    for _ in range(3):
        desk.node.mine()
        await relayer.work_once(desk.hear)
        states.append(await desk.state(session_id))
    assert states == [SettlementState.MINED, SettlementState.MINED, SettlementState.CONFIRMED]
    assert (await desk.record(session_id)).tx_hash == tx_hash


async def test_an_adopted_settlement_of_other_amounts_is_a_mismatch_and_not_confirmed(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await settle_elsewhere(desk, session_id, 151_000)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert record.state is SettlementState.MISMATCHED
    ours = record.payload
    assert record.on_chain == replace(
        ours, from_address=ours.from_address.lower(), to_address=ours.to_address.lower(),
        to_amount=MicroUsdc(151_000), chargeable_seconds=160_000 // ours.rate,
    )  # fmt: skip
    assert (ours.to_amount, record.on_chain.fee_amount) == (51_000, 9_000)
    assert desk.told == []


# Lanes.


async def test_free_sessions_are_settled_in_one_transaction_at_most_once_in_ten_minutes(
    desk: Desk, autojump_clock: Any
) -> None:
    desk.node.automine = True
    relayer = desk.relayer(depth=0)
    await trio.sleep(10_000)
    free = [await desk.ended(seconds=0) for _ in range(12)]
    await relayer.work_once(desk.hear)
    assert [len(transaction.calls) for transaction in desk.node.sent] == [12]
    later = [await desk.ended(seconds=0) for _ in range(3)]
    for _ in range(59):
        await trio.sleep(10)
        await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == 1
    await trio.sleep(10)
    await relayer.work_once(desk.hear)
    assert [len(transaction.calls) for transaction in desk.node.sent] == [12, 3]
    assert {update.session_id for update in desk.told} == {*free, *later}
    assert {await desk.state(session_id) for session_id in free + later} == {SettlementState.CONFIRMED}


async def test_a_batch_that_does_not_mine_is_replaced_once_with_its_nonce(desk: Desk, autojump_clock: Any) -> None:
    relayer = desk.relayer(depth=0, replace_ms=1_000)
    await trio.sleep(10_000)
    free = [await desk.ended(seconds=0) for _ in range(5)]
    await relayer.work_once(desk.hear)
    await trio.sleep(1.5)
    await relayer.work_once(desk.hear)
    assert [(item.nonce, len(item.calls)) for item in desk.node.sent] == [(0, 5), (0, 5)]
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert {await desk.state(session_id) for session_id in free} == {SettlementState.CONFIRMED}


async def test_of_many_charges_on_a_small_wallet_only_the_covered_ones_are_signed(desk: Desk) -> None:
    desk.node.automine = True
    relayer = desk.relayer(depth=0)
    await desk.set_funds(PAYER, 2 * RATE * SECONDS)
    for _ in range(30):
        await desk.ended()
    await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == 2
    assert len(await desk.ledger.due(SettlementLane.RETRY, now_ms=10**12, limit=100)) == 28


async def test_an_unpayable_settlement_backs_off_to_a_day_and_a_changed_wallet_wakes_it(
    desk: Desk, autojump_clock: Any
) -> None:
    desk.node.automine = True
    desk.node.refuses = lambda _: NO_ALLOWANCE
    relayer, session_id = desk.relayer(depth=0, idle_ms=60_000), await desk.ended()
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        await trio.sleep(3 * 86_400)
        record = await desk.record(session_id)
        assert 12 < record.tries < 30
        assert record.retry_at_ms - record.updated_at_ms >= 43_200_000
        desk.node.refuses = lambda _: None
        await desk.set_funds(PAYER, 10**9)
        relayer.notify()
        await trio.sleep(5)
        assert await desk.state(session_id) is SettlementState.CONFIRMED
        nursery.cancel_scope.cancel()


async def test_a_paused_contract_is_tried_again_within_minutes(desk: Desk, autojump_clock: Any) -> None:
    desk.node.automine = True
    desk.node.refuses = lambda _: "execution reverted: SessionSettlement: paused"
    relayer, session_id = desk.relayer(depth=0, idle_ms=60_000), await desk.ended()
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        await trio.sleep(3 * 86_400)
        desk.node.refuses = lambda _: None
        await trio.sleep(400)
        assert await desk.state(session_id) is SettlementState.CONFIRMED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_known", [True, False])
async def test_unpayable_settlements_do_not_delay_payable_ones(desk: Desk, autojump_clock: Any, is_known: bool) -> None:
    """With 100,000 unpayable settlements and one payable a second, the payable ones settle within two rounds."""
    poor = [f"0x{number:040x}" for number in range(1, 101)]

    def refuses(call: Settled) -> str | None:
        return NO_ALLOWANCE if call.payer.lower() in poor else None

    desk.node.automine, desk.node.refuses = True, refuses
    count = 100_000 if is_known else 500
    for address in poor if is_known else []:
        await desk.set_funds(address, 0)
    template = (await desk.record(await desk.ended(payer=poor[0]))).payload
    for number in range(count):
        payload = replace(template, session_id=f"{number:032x}", from_address=poor[number % len(poor)])
        desk.ledger.compose_now(payload, now_ms=TrioClock().now_ms())
    waits: list[int] = []
    async with trio.open_nursery() as nursery:
        relayer = desk.relayer(depth=0, poll_ms=200)
        await nursery.start(relayer.run, desk.hear)
        for _ in range(15):
            composed_ms = TrioClock().now_ms()
            session_id = await desk.ended()
            relayer.notify()
            await trio.sleep(1)
            if is_known:
                record = await desk.record(session_id)
                assert record.state is SettlementState.CONFIRMED
                waits.append((record.confirmed_at_ms or 0) - composed_ms)
        if not is_known:
            # Wallets that were never read are examined once each; then they wait in the RETRY lane.
            assert await desk.state(session_id) is SettlementState.CONFIRMED
            assert len(desk.told) == 15
        nursery.cancel_scope.cancel()
    assert all(wait <= 400 for wait in waits)


# Boundaries of rounds.


async def test_a_failure_with_an_earlier_nonce_does_not_decide_a_settlement_that_was_signed_again(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.fails = lambda _: True
    desk.node.mine()
    await relayer.work_once(desk.hear)
    reverted = await desk.record(session_id)
    assert reverted.state is SettlementState.REVERTED
    assert reverted.reason == "reverted; it would succeed at the end of the same block"
    desk.node.fails = lambda _: False
    await trio.sleep(10)
    for _ in range(2):
        await relayer.work_once(desk.hear)
    again = await desk.record(session_id)
    assert (again.state, [attempt.nonce for attempt in again.attempts]) == (SettlementState.SENT, [0, 1])
    desk.node.mine()
    await relayer.work_once(desk.hear)
    after = await desk.record(session_id)
    assert (after.state, after.tx_hash) == (SettlementState.CONFIRMED, again.attempts[1].tx_hash)


async def confirmed_and_removed(desk: Desk, relayer: Relayer) -> tuple[str, int]:
    """A settlement that was CONFIRMED in a block that the chain has lost; returns it and the block's number."""
    session_id = await desk.ended()
    await relayer.work_once(desk.hear)
    mined = desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.CONFIRMED
    desk.node.fork(1)
    desk.node.pool.clear()
    desk.node.mine(salt="other")
    return session_id, mined.number


async def test_a_block_that_is_replaced_by_none_is_rechecked(desk: Desk) -> None:
    """The watcher rolled back, and the new branch is shorter: no block of this number exists any more."""
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await desk.watch()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.CONFIRMED
    desk.node.fork(1)
    desk.node.pool.clear()
    await desk.watch()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT


async def test_a_relayer_that_starts_finds_the_reorganisation_that_another_server_saw(desk: Desk) -> None:
    session_id, _ = await confirmed_and_removed(desk, desk.relayer(depth=0))
    await desk.watch()
    await desk.relayer(depth=0).work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT


async def test_while_the_watcher_stands_still_nothing_is_rechecked(desk: Desk) -> None:
    relayer = desk.relayer(depth=0)
    session_id, _ = await confirmed_and_removed(desk, relayer)
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.CONFIRMED


async def test_settlements_above_the_watchers_block_are_looked_up_once_for_each_block(desk: Desk) -> None:
    relayer = desk.relayer(depth=0)
    await desk.watch()
    await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    late = desk.relayer(depth=0)
    await late.work_once(desk.hear)
    asked = desk.node.counted["eth_getTransactionReceipt"]
    await late.work_once(desk.hear)
    assert desk.node.counted["eth_getTransactionReceipt"] == asked
    await desk.watch()
    await late.work_once(desk.hear)
    assert desk.node.counted["eth_getTransactionReceipt"] == asked


async def test_a_recheck_that_the_node_did_not_answer_is_repeated(desk: Desk) -> None:
    relayer = desk.relayer(depth=0)
    session_id, _ = await confirmed_and_removed(desk, relayer)
    await desk.watch()
    desk.node.is_down = True
    with pytest.raises(ChainUnavailableError):
        await relayer.work_once(desk.hear)
    desk.node.is_down = False
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT


async def test_refused_settlements_are_examined_at_most_once_in_each_interval(desk: Desk, autojump_clock: Any) -> None:
    desk.node.refuses = lambda _: NO_ALLOWANCE
    relayer, session_id = desk.relayer(retry_every_ms=2_000, retry_ms_min=100), await desk.ended()
    await relayer.work_once(desk.hear)
    assert (await desk.record(session_id)).tries == 1
    tries = []
    for wait_s in (1.0, 0.999, 0.001, 1.999, 0.001):
        await trio.sleep(wait_s)
        await relayer.work_once(desk.hear)
        tries.append((await desk.record(session_id)).tries)
    assert tries == [1, 1, 2, 2, 3]


async def test_a_search_for_an_event_covers_every_block_from_the_first_to_the_head_once(desk: Desk) -> None:
    async def spans(start: int, head: int) -> list[tuple[int, int]]:
        desk.node.blocks = [dataclasses.replace(desk.node.blocks[0], number=head)]
        desk.node.queries.clear()
        work = AllowanceWork(desk.rpc, desk.ledger, desk.node.identity, RelayerOptions(start_block=start))
        assert await work.find("0x" + "5e" * 32) is None
        return [(int(each["fromBlock"], 16), int(each["toBlock"], 16)) for each in desk.node.queries]

    assert await spans(1_500, 12_000) == [(7_001, 12_000), (2_001, 7_000), (1_500, 2_000)]
    assert await spans(0, 4_999) == [(0, 4_999)]
    assert await spans(0, 5_000) == [(1, 5_000), (0, 0)]
    assert await spans(7, 7) == [(7, 7)]
    assert await spans(8, 7) == []


# Adoption, and comparison with the watcher's blocks.


async def test_an_adopted_transaction_that_leaves_the_chain_is_examined_again(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(depth=5), await desk.ended()
    await settle_elsewhere(desk, session_id, 51_000)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.MINED
    desk.node.fork(1)
    desk.node.pool.clear()
    desk.node.mine(salt="other")
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.reason) == (SettlementState.FAILED, "the adopted transaction left the chain")
    await trio.sleep(60)
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT


async def test_a_session_that_is_settled_without_an_event_is_not_signed(desk: Desk) -> None:
    relayer, session_id = desk.relayer(start_block=2), await desk.ended()
    await settle_elsewhere(desk, session_id, 51_000)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.attempts) == (SettlementState.FAILED, ())
    assert record.reason == "settled on the chain, and the event is not found"


@pytest.mark.parametrize("changed", [{"from_address": "0x" + "e1" * 20}, {"to_address": "0x" + "e2" * 20}, {"fee": 1}])
async def test_an_event_with_another_party_or_fee_is_a_mismatch(desk: Desk, changed: dict[str, Any]) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    record = await desk.record(session_id)
    payload = record.payload
    fee = MicroUsdc(payload.fee_amount + changed.get("fee", 0))
    parties = {name: value for name, value in changed.items() if name != "fee"}
    desk.ledger._settlements[session_id] = replace(record, payload=replace(payload, fee_amount=fee, **parties))
    await settle_elsewhere(desk, session_id, payload.to_amount)
    desk.ledger._settlements[session_id] = record
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.MISMATCHED


async def test_a_settlement_that_stays_in_its_block_is_not_written_again(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(depth=5), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    first = await desk.record(session_id)
    await trio.sleep(1)
    await relayer.work_once(desk.hear)
    assert await desk.record(session_id) == first
    desk.node.fork(1)
    moved = desk.node.mine(salt="other")
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.block_hash) == (SettlementState.MINED, moved.block_hash)
    assert record.updated_at_ms == first.updated_at_ms + 1_000


async def test_the_depth_of_a_found_event_is_the_number_of_blocks_above_it(desk: Desk) -> None:
    session_id = await desk.ended()
    await settle_elsewhere(desk, session_id, 51_000)
    for _ in range(6):
        desk.node.mine()
    work = AllowanceWork(desk.rpc, desk.ledger, desk.node.identity, RelayerOptions())
    found = await work.find(session_id_hash(session_id))
    assert found is not None
    assert (found.inclusion.block_number, found.depth) == (1, 5)
