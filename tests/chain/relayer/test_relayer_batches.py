"""How many rows a round signs, which ones share a transaction, and what it says about the rows that are left."""

from itertools import pairwise
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from typing_extensions import override

from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.signing import EscrowSigning
from sightline.ports.ledger import SettlementLane, SettlementRecord, SettlementState
from simulation.memory.ledger import MemoryLedger
from tests.chain.relayer.desk import NO_ALLOWANCE, PAYER, RATE, SECONDS, Desk, FixedIds, TrioClock

CHARGE = RATE * SECONDS
SLOW = {"resend_ms": 10**9, "replace_ms": 10**9}
"""Transactions are neither broadcast again nor replaced."""


def in_batches(
    desk: Desk, *, batch_max: int, window_ms: int = 0, room: int = 50, **options: Any
) -> EscrowSigning[SettlementRecord]:
    """Sign as for the escrow: each transaction for up to `batch_max` rows, `room` rows in a round."""
    queue = desk.relayer(batch_max=room, **options)._queues[0]
    work, sender = queue.signing._work, queue.signing._sender
    return EscrowSigning(
        work, sender, queue.confirmation, desk.key.address, RelayerOptions(batch_max=room, **options),
        clock=TrioClock(), batch_max=batch_max, window_ms=window_ms,
    )  # fmt: skip


def batches(desk: Desk) -> list[tuple[int, int]]:
    """Nonce and number of sessions of each transaction that was sent."""
    return [(transaction.nonce, len(transaction.calls)) for transaction in desk.node.sent]


# Rows whose money is secured.


async def test_a_batch_waits_for_others_until_its_window_has_passed_since_the_oldest(
    desk: Desk, autojump_clock: Any
) -> None:
    signing = in_batches(desk, batch_max=3, window_ms=1_000)
    await trio.sleep(10_000)
    await desk.ended(seconds=0)
    await trio.sleep(0.5)
    await desk.ended(seconds=0)
    await trio.sleep(0.499)
    assert await signing.sign_due() == (False, False)
    assert batches(desk) == []
    await trio.sleep(0.001)
    assert await signing.sign_due() == (True, False)
    assert batches(desk) == [(0, 2)]
    assert await signing.sign_due() == (False, False), "nothing is due"


@pytest.mark.parametrize(("rows", "expected"), [(2, []), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
async def test_a_full_batch_waits_for_nobody_and_the_rest_goes_with_it(
    desk: Desk, autojump_clock: Any, rows: int, expected: list[int]
) -> None:
    desk.node.foreign_nonces = 3
    signing = in_batches(desk, batch_max=3, window_ms=1_000)
    await trio.sleep(10_000)
    for _ in range(rows):
        await desk.ended(seconds=0)
    assert await signing.sign_due() == (bool(expected), False)
    assert batches(desk) == list(enumerate(expected, 3))


async def test_a_round_takes_as_many_rows_of_all_lanes_as_it_has_room_for_and_says_that_there_may_be_more(
    desk: Desk,
) -> None:
    signing = in_batches(desk, batch_max=1, room=5)
    for lane, count in ((None, 2), (SettlementLane.RETRY, 4), (SettlementLane.FREE, 1)):
        for _ in range(count):
            session_id = await desk.ended()
            state = SettlementState.COMPOSED
            if lane is not None:
                await desk.ledger.mark_waiting(session_id, state, reason="x", retry_at_ms=0, now_ms=1, lane=lane)
    assert await signing.sign_due() == (True, True)
    assert len(desk.node.sent) == 5
    assert await signing.sign_due() == (True, False)
    assert len(desk.node.sent) == 7
    assert await signing.sign_due() == (False, False)


async def test_rows_that_the_contract_refuses_are_not_signed_and_leave_room_for_no_others(desk: Desk) -> None:
    desk.node.refuses = lambda _: NO_ALLOWANCE
    signing = in_batches(desk, batch_max=1, room=2)
    for _ in range(3):
        await desk.ended()
    assert await signing.sign_due() == (False, True)
    assert await signing.sign_due() == (False, False)
    assert desk.node.sent == []


@pytest.mark.parametrize(
    ("lane", "afterwards"),
    [
        (SettlementLane.PAYABLE, SettlementLane.RETRY),
        (SettlementLane.RETRY, SettlementLane.RETRY),
        (SettlementLane.FREE, SettlementLane.FREE),
        (SettlementLane.VOID, SettlementLane.VOID),
    ],
)
async def test_a_refused_row_goes_to_the_retries_only_from_the_lane_of_those_that_can_be_paid(
    desk: Desk, lane: SettlementLane, afterwards: SettlementLane
) -> None:
    desk.node.refuses = lambda _: NO_ALLOWANCE
    session_id, waits = await desk.ended(), SettlementState.COMPOSED
    await desk.ledger.mark_waiting(session_id, waits, reason="x", retry_at_ms=0, now_ms=1, lane=lane)
    assert await in_batches(desk, batch_max=1).sign_due() == (False, False)
    record = await desk.record(session_id)
    assert (record.state, record.lane) == (SettlementState.FAILED, afterwards)


async def test_rows_wait_while_the_fees_are_over_the_cap(desk: Desk) -> None:
    signing = in_batches(desk, batch_max=1, room=1, fee_cap_wei=1)
    await desk.ended()
    assert await signing.sign_due() == (False, False)


# Settlements from allowances.


async def test_what_is_in_flight_takes_its_room_and_the_retries_part_stays_free(desk: Desk) -> None:
    relayer = desk.relayer(batch_max=4, retry_batch_max=1, depth=2, **SLOW)
    for _ in range(2):
        await desk.ended()
    await relayer.work_once(desk.hear)
    for _ in range(4):
        await desk.ended()
    await relayer.work_once(desk.hear)
    assert [nonce for nonce, _ in batches(desk)] == [0, 1, 2]


async def test_a_round_says_whether_rows_may_be_left_for_which_there_is_room(desk: Desk) -> None:
    signing = desk.relayer(batch_max=3, retry_batch_max=1, **SLOW)._queues[0].signing
    await desk.ended()
    assert await signing.sign_due() == (True, False)
    for _ in range(3):
        await desk.ended()
    assert await signing.sign_due() == (True, True)
    assert await signing.sign_due() == (False, False), "the last place is kept for a retry"
    (left, _) = await desk.ledger.due(SettlementLane.PAYABLE, now_ms=TrioClock().now_ms(), limit=9)
    await desk.ledger.mark_waiting(
        left.session_id, SettlementState.FAILED, reason="x", retry_at_ms=0, now_ms=1, lane=SettlementLane.RETRY
    )
    later = desk.relayer(batch_max=3, retry_batch_max=1, **SLOW)._queues[0].signing
    assert await later.sign_due() == (True, False)
    assert await later.sign_due() == (False, False)
    assert len(desk.node.sent) == 3
    assert len(await desk.ledger.due(SettlementLane.PAYABLE, now_ms=TrioClock().now_ms(), limit=9)) == 1


async def test_a_round_without_room_does_not_count_as_an_examination_of_retries(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer = desk.relayer(batch_max=1, retry_batch_max=0, retry_every_ms=2_000, depth=0, **SLOW)
    await desk.ended()
    await relayer.work_once(desk.hear)
    session_id = await desk.ended()
    failed, retry = SettlementState.FAILED, SettlementLane.RETRY
    await desk.ledger.mark_waiting(session_id, failed, reason="x", retry_at_ms=0, now_ms=1, lane=retry)
    later = desk.relayer(batch_max=1, retry_batch_max=1, retry_every_ms=2_000, depth=0, **SLOW)
    await later.work_once(desk.hear)
    assert len(desk.node.sent) == 1
    desk.node.mine()
    await trio.sleep(0.1)
    await later.work_once(desk.hear)
    assert len(desk.node.sent) == 2


async def test_the_next_rows_are_looked_at_at_once_though_none_of_a_full_round_was_signed(
    desk: Desk, autojump_clock: Any
) -> None:
    desk.node.automine = True
    poor = "0x" + "99" * 20
    desk.node.refuses = lambda call: NO_ALLOWANCE if call.payer.lower() == poor else None
    relayer = desk.relayer(depth=0, batch_max=2, retry_batch_max=1, idle_ms=60_000, retry_ms_min=10**8)
    await desk.ended(payer=poor)
    payable = await desk.ended()
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        await trio.sleep(1)
        assert await desk.state(payable) is SettlementState.CONFIRMED
        nursery.cancel_scope.cancel()


async def test_a_full_round_that_waits_for_blocks_is_repeated_at_its_interval_and_no_faster(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer = desk.relayer(batch_max=2, retry_batch_max=1, poll_ms=200, **SLOW)
    for _ in range(3):
        await desk.ended()
    await relayer.work_once(desk.hear)
    before = desk.node.exchanges
    await relayer.work_once(desk.hear)
    a_round = desk.node.exchanges - before
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        before = desk.node.exchanges
        await trio.sleep(0.95)
        assert desk.node.exchanges - before <= 5 * a_round
        nursery.cancel_scope.cancel()


async def test_a_settlement_in_a_block_is_part_of_the_wallets_reading_and_counts_no_more(desk: Desk) -> None:
    relayer = desk.relayer(depth=2, **SLOW)
    mined = await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(mined) is SettlementState.MINED
    for _ in range(2):
        await desk.ended()
    await desk.set_funds(PAYER, 2 * CHARGE)
    await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == 3


async def test_the_first_charge_of_a_payer_is_signed_whatever_the_last_reading_says(desk: Desk) -> None:
    """The node has tried it: the reading is older."""
    relayer = desk.relayer(**SLOW)
    await desk.set_funds(PAYER, CHARGE - 1)
    for _ in range(2):
        await desk.ended()
    await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == 1


async def test_a_free_session_that_the_contract_refuses_stays_in_its_lane_and_costs_no_transaction(
    desk: Desk, autojump_clock: Any
) -> None:
    desk.node.refuses = lambda _: "execution reverted: SessionSettlement: paused"
    relayer = desk.relayer(depth=0)
    await trio.sleep(10_000)
    session_id = await desk.ended(seconds=0)
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.lane, record.tries) == (SettlementState.FAILED, SettlementLane.FREE, 1)
    assert desk.node.sent == []
    assert await desk.ledger.next_nonce(desk.key.address) == 0
    desk.node.refuses = lambda _: None
    await desk.ended(seconds=0)
    await relayer.work_once(desk.hear)
    assert batches(desk) == [(0, 1)], "the interval of free sessions begins with a transaction"


# Transactions in flight.


async def test_a_transaction_that_waits_behind_another_one_is_only_waited_for(desk: Desk, autojump_clock: Any) -> None:
    relayer = desk.relayer(resend_ms=500, replace_ms=10**9)
    sessions = [await desk.ended(), await desk.ended()]
    with capture_logs() as logs:
        for _ in range(3):
            await relayer.work_once(desk.hear)
            await trio.sleep(0.5)
    assert [await desk.state(each) for each in sessions] == [SettlementState.SENT] * 2
    assert [nonce for nonce, _ in batches(desk)] == [0, 1] * 3
    assert [entry for entry in logs if entry["event"] == "settlement_left_its_block"] == []


async def test_a_nonce_that_another_program_used_is_waited_for_though_the_settlement_was_refused_before(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(retry_ms_min=1_000, **SLOW), await desk.ended()
    desk.node.refuses = lambda _: NO_ALLOWANCE
    await relayer.work_once(desk.hear)
    desk.node.refuses = lambda _: None
    await trio.sleep(10)
    await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == 1
    desk.node.pool.clear()
    desk.node.foreign_nonces = 1
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.STUCK


# Rounds that fail.


async def test_a_database_that_is_away_for_a_round_does_not_end_the_relayer(desk: Desk, autojump_clock: Any) -> None:
    class Away(MemoryLedger):
        failures = 0

        @override
        async def in_flight(self, *, limit: int) -> list[SettlementRecord]:
            if self.failures < 2:
                self.failures += 1
                raise ConnectionRefusedError("no Postgres")
            return await super().in_flight(limit=limit)

    desk.ledger, desk.node.automine = Away(TrioClock().now_ms), True
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        await trio.sleep(5)
        assert await desk.state(session_id) is SettlementState.CONFIRMED
        nursery.cancel_scope.cancel()


async def test_the_wait_after_failed_rounds_grows_to_ten_seconds(desk: Desk, autojump_clock: Any) -> None:
    relayer, at_ms = desk.relayer(own_ids=FixedIds(255), poll_ms=200), list[int]()
    await desk.ended()
    desk.node.blocks[0].block_hash = "0x" + "99" * 32
    desk.node.before["eth_chainId"] = lambda: at_ms.append(round(trio.current_time() * 1_000))
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    waits = [later - earlier for earlier, later in pairwise(at_ms)]
    assert waits[:6] == [599, 999, 1_799, 3_399, 6_599, 10_199]
    assert set(waits[6:]) == {10_199}
