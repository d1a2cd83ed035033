"""The relayer's intervals, fees and limits, at the instant or the number at which each one begins to hold."""

from typing import Any

import pytest
import trio
from msgspec.structs import asdict
from structlog.testing import capture_logs

from sightline.chain.relayer.broadcast import FEES_TOO_LOW, broadcast
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.relayer import Relayer
from sightline.chain.relayer.retry import retry_in_ms
from sightline.chain.signer import Fees
from sightline.chain.watcher.watcher import CHECKED_EVERY_MS, WatcherOptions
from sightline.ports.ledger import Attempt, Inclusion, SettlementLane, SettlementState
from tests.chain.relayer.desk import NO_ALLOWANCE, PAYER, RATE, SECONDS, Desk, FixedIds, TrioClock

GWEI = 10**9
CHARGE = RATE * SECONDS


async def sent_after(desk: Desk, relayer: Relayer, *waits_s: float) -> list[int]:
    """Run a round after each wait; returns how many transactions were sent in all by then."""
    counts = []
    for wait_s in waits_s:
        await trio.sleep(wait_s)
        await relayer.work_once(desk.hear)
        counts.append(len(desk.node.sent))
    return counts


# When a transaction is broadcast again, and when it is replaced by one with higher fees.


async def test_a_transaction_without_a_receipt_is_broadcast_again_at_its_interval(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(resend_ms=500, replace_ms=100_000), await desk.ended()
    assert await sent_after(desk, relayer, 0, 0.499, 0.001, 0.499, 0.001) == [1, 1, 2, 2, 3]
    record = await desk.record(session_id)
    assert (record.state, len(record.attempts)) == (SettlementState.SENT, 1)
    assert len({transaction.tx_hash for transaction in desk.node.sent}) == 1


async def test_each_replacement_waits_twice_as_long_and_the_third_transaction_is_stuck(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(resend_ms=10**9, replace_ms=1_000), await desk.ended()
    assert await sent_after(desk, relayer, 0, 0.999, 0.001, 1.999, 0.001) == [1, 1, 2, 2, 3]
    record = await desk.record(session_id)
    assert (record.state, record.reason) == (SettlementState.STUCK, "no receipt after 2 transactions")
    assert {transaction.nonce for transaction in desk.node.sent} == {0}
    assert await sent_after(desk, relayer, 3.999, 0.001) == [3, 4]
    assert (await desk.record(session_id)).reason == "no receipt after 3 transactions"


async def test_two_transactions_are_not_stuck_yet(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(resend_ms=10**9, replace_ms=1_000), await desk.ended()
    assert await sent_after(desk, relayer, 0, 1) == [1, 2]
    assert await desk.state(session_id) is SettlementState.SENT


async def test_what_was_replaced_may_be_mined_all_the_same(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(depth=0, resend_ms=10**9, replace_ms=1_000), await desk.ended()
    await sent_after(desk, relayer, 0, 1)
    first, second = (await desk.record(session_id)).attempts
    del desk.node.pool[second.tx_hash]
    desk.node.mine()
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.tx_hash) == (SettlementState.CONFIRMED, first.tx_hash)


@pytest.mark.parametrize(("cap_gwei", "attempts"), [(3.375000001, 2), (3.375, 1)])
async def test_a_replacement_may_cost_as_much_as_the_cap(
    desk: Desk, autojump_clock: Any, cap_gwei: float, attempts: int
) -> None:
    relayer = desk.relayer(resend_ms=10**9, replace_ms=1_000, fee_cap_wei=round(cap_gwei * GWEI))
    session_id = await desk.ended()
    await sent_after(desk, relayer, 0, 1)
    record = await desk.record(session_id)
    assert len(record.attempts) == attempts
    assert record.attempts[0].max_fee_wei == 3 * GWEI
    if attempts == 1:
        assert (record.state, record.retry_at_ms - record.updated_at_ms) == (SettlementState.STUCK, 10**9)
    else:
        assert record.attempts[1].max_fee_wei == 3_375_000_001


async def test_a_nonce_that_another_program_used_is_waited_for_and_then_signed_anew(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(depth=0, resend_ms=500, replace_ms=100_000), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.pool.clear()
    desk.node.foreign_nonces = 1
    states = []
    with capture_logs() as logs:
        for wait_s in (0.1, 0.499, 0.001):
            await trio.sleep(wait_s)
            await relayer.work_once(desk.hear)
            record = await desk.record(session_id)
            states.append((record.state, record.tries))
    assert [entry for entry in logs if entry["event"] == "relayer_nonce_unknown"] == [], "no nonce is open"
    stuck = (SettlementState.STUCK, 1)
    assert states == [stuck, stuck, (SettlementState.FAILED, 2)]
    assert record.reason == "its nonce was used by another transaction"
    assert record.lane is SettlementLane.RETRY
    await trio.sleep(60)
    await relayer.work_once(desk.hear)
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.attempts[-1].nonce) == (SettlementState.SENT, 1)


async def test_a_nonce_that_is_used_is_waited_for_although_the_row_was_stuck_before(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(depth=0, resend_ms=500, replace_ms=1_000), await desk.ended()
    for _ in range(3):
        await relayer.work_once(desk.hear)
        await trio.sleep(10)
    record = await desk.record(session_id)
    assert (record.state, len(record.attempts)) == (SettlementState.STUCK, 3)
    desk.node.pool.clear()
    desk.node.foreign_nonces = 1
    states = []
    for wait_s in (0, 0.499, 0.001):
        await trio.sleep(wait_s)
        await relayer.work_once(desk.hear)
        record = await desk.record(session_id)
        states.append((record.state, record.reason))
    used = "its nonce was used by another transaction"
    assert states == [(SettlementState.STUCK, used), (SettlementState.STUCK, used), (SettlementState.FAILED, used)]


# Answers of the node to a broadcast.


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ("already known", None),
        ("ALREADY KNOWN", None),
        ("known transaction: 0xab", None),
        ("already imported", None),
        ("nonce too low", None),
        ("replacement transaction underpriced", None),
        ("transaction already exists", None),
        ("already in mempool", None),
        ("max fee per gas less than block base fee", FEES_TOO_LOW),
        ("transaction underpriced", FEES_TOO_LOW),
        ("fee too low", FEES_TOO_LOW),
        ("insufficient funds for gas", "insufficient funds for gas"),
    ],
)
async def test_each_answer_of_the_node_is_understood(desk: Desk, message: str, refusal: str | None) -> None:
    relayer, first, second = desk.relayer(), await desk.ended(), await desk.ended()
    sender = relayer._queues[0].signing._sender
    fees = Fees(max_fee_wei=GWEI, tip_wei=1)
    attempts: list[Attempt] = []
    for nonce, session_id in ((4, first), (3, second)):
        records = [await desk.record(session_id)]
        (call,) = await sender.calls([records])
        attempts += await sender.sign(records, call, nonce, fees, 1)
    desk.node.refuses_raw = lambda transaction: message if transaction.nonce == 4 else None
    answers = await broadcast(desk.rpc, attempts)
    assert [transaction.nonce for transaction in desk.node.sent] == [3, 4]
    taken = [attempts[1].tx_hash] if refusal else [attempts[1].tx_hash, attempts[0].tx_hash]
    assert answers.taken == taken
    assert answers.refused == ([(attempts[0], refusal)] if refusal else [])


@pytest.mark.parametrize("refusal", ["insufficient funds for gas", "unsupported transaction type"])
async def test_a_refused_broadcast_is_tried_again_after_the_shortest_delay(
    desk: Desk, autojump_clock: Any, refusal: str
) -> None:
    relayer, session_id = desk.relayer(retry_ms_min=2_000, replace_ms=10**9), await desk.ended()
    desk.node.refuses_raw = lambda _: refusal
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.reason) == (SettlementState.SIGNED, refusal)
    assert record.retry_at_ms - record.updated_at_ms == 2_000
    desk.node.refuses_raw = lambda _: None
    assert await sent_after(desk, relayer, 1.999, 0.001) == [1, 2]
    assert await desk.state(session_id) is SettlementState.SENT
    assert len((await desk.record(session_id)).attempts) == 1


async def test_fees_that_the_node_finds_too_low_are_raised_in_the_next_round(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(replace_ms=10**9), await desk.ended()
    desk.node.refuses_raw = lambda transaction: "transaction underpriced" if len(desk.node.sent) == 1 else None
    await relayer.work_once(desk.hear)
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, [attempt.nonce for attempt in record.attempts]) == (SettlementState.SENT, [0, 0])
    assert record.attempts[1].tip_wei == 1_125_000_001


# Fees, room and funds before signing.


@pytest.mark.parametrize(
    ("cap_wei", "state"), [(2 * GWEI, SettlementState.SENT), (2 * GWEI - 1, SettlementState.COMPOSED)]
)
async def test_settlements_wait_while_base_fee_and_tip_are_over_the_cap(
    desk: Desk, cap_wei: int, state: SettlementState
) -> None:
    relayer, session_id = desk.relayer(fee_cap_wei=cap_wei), await desk.ended()
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert record.state is state
    if state is SettlementState.SENT:
        assert (record.attempts[0].max_fee_wei, record.attempts[0].tip_wei) == (cap_wei, GWEI)
    else:
        assert (record.reason, record.lane) == ("the chain's fees are over the cap", SettlementLane.PAYABLE)


async def test_a_round_signs_what_fits_beside_the_part_that_is_kept_for_retries(desk: Desk) -> None:
    relayer = desk.relayer(depth=0, batch_max=3, retry_batch_max=1)
    for _ in range(5):
        await desk.ended()
    counts = []
    for is_mined in (False, False, True, False, True, True):
        if is_mined:
            desk.node.mine()
        await relayer.work_once(desk.hear)
        counts.append(len(desk.node.sent))
    assert counts == [2, 2, 4, 4, 5, 5]
    assert len(desk.told) == 5


async def test_retries_get_the_room_that_is_left_up_to_their_part(desk: Desk, autojump_clock: Any) -> None:
    desk.node.refuses = lambda _: NO_ALLOWANCE
    relayer = desk.relayer(
        batch_max=4, retry_batch_max=2, retry_ms_min=100, retry_every_ms=2_000, resend_ms=10**9, replace_ms=10**9
    )
    for _ in range(5):
        await desk.ended()
    for _ in range(4):
        await relayer.work_once(desk.hear)
    due = await desk.ledger.due(SettlementLane.RETRY, now_ms=10**9, limit=9)
    assert len(due) == 5
    desk.node.refuses = lambda _: None
    assert await sent_after(desk, relayer, 2, 1.999, 0.001, 2) == [2, 2, 4, 4]


@pytest.mark.parametrize(("funds", "signed"), [(3 * CHARGE, 3), (3 * CHARGE - 1, 2)])
async def test_charges_in_flight_count_against_the_wallet_until_they_are_mined(
    desk: Desk, funds: int, signed: int
) -> None:
    relayer = desk.relayer(depth=2)
    await desk.ended()
    await relayer.work_once(desk.hear)
    for _ in range(2):
        await desk.ended()
    await desk.set_funds(PAYER, funds)
    await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == signed


async def test_a_refused_settlement_waits_for_its_delay_whatever_the_time(desk: Desk, autojump_clock: Any) -> None:
    longest_ms = 2**18
    every_bit_ms = 2 * longest_ms - 1
    await trio.sleep((every_bit_ms - TrioClock().now_ms() % (2 * longest_ms)) / 1_000)
    relayer, session_id = desk.relayer(retry_ms_min=longest_ms), await desk.ended()
    desk.node.refuses = lambda _: NO_ALLOWANCE
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert record.state is SettlementState.FAILED
    assert longest_ms // 2 <= record.retry_at_ms - record.updated_at_ms <= longest_ms


async def test_a_charge_that_the_wallet_does_not_cover_waits_minutes_for_the_others(desk: Desk) -> None:
    relayer = desk.relayer(depth=0, retry_ms_max_ours=300_000)
    await desk.set_funds(PAYER, CHARGE)
    first, second = await desk.ended(), await desk.ended()
    await relayer.work_once(desk.hear)
    states = sorted([(await desk.record(each)).state for each in (first, second)])
    assert states == [SettlementState.COMPOSED, SettlementState.SENT]
    waiting = next(row for row in [await desk.record(first), await desk.record(second)] if row.state == "COMPOSED")
    assert waiting.reason == "the payer's other settlements take what the wallet has"
    assert waiting.retry_at_ms - waiting.updated_at_ms == 300_000
    assert waiting.lane is SettlementLane.RETRY


async def test_free_sessions_wait_while_a_batch_of_them_is_in_flight(desk: Desk, autojump_clock: Any) -> None:
    relayer = desk.relayer(depth=0, free_every_ms=1_000, free_batch_max=2, resend_ms=10**9, replace_ms=10**9)
    await trio.sleep(10)
    for _ in range(3):
        await desk.ended(seconds=0)
    assert await sent_after(desk, relayer, 0, 2) == [1, 1]
    desk.node.mine()
    assert await sent_after(desk, relayer, 0) == [2]
    assert [len(transaction.calls) for transaction in desk.node.sent] == [2, 1]


async def test_free_sessions_do_not_wait_for_charges_in_flight(desk: Desk, autojump_clock: Any) -> None:
    relayer = desk.relayer(depth=0, free_every_ms=1_000, replace_ms=10**9)
    await trio.sleep(10)
    await desk.ended()
    assert await sent_after(desk, relayer, 0) == [1]
    await desk.ended(seconds=0)
    assert await sent_after(desk, relayer, 0.1) == [2]


async def test_an_older_contract_gets_free_sessions_one_by_one(desk: Desk, autojump_clock: Any) -> None:
    relayer = desk.relayer(depth=0, settles_many=False)
    await trio.sleep(10_000)
    for _ in range(3):
        await desk.ended(seconds=0)
    await relayer.work_once(desk.hear)
    assert [(item.nonce, len(item.calls)) for item in desk.node.sent] == [(0, 1), (1, 1), (2, 1)]


async def test_a_key_that_was_used_elsewhere_signs_after_its_last_transaction(desk: Desk) -> None:
    desk.node.foreign_nonces = 7
    relayer, session_id = desk.relayer(), await desk.ended()
    await relayer.work_once(desk.hear)
    assert [attempt.nonce for attempt in (await desk.record(session_id)).attempts] == [7]


# Delays.


@pytest.mark.parametrize(
    ("reason", "tries", "most_ms"),
    [
        ("paused", 0, 2_000),
        ("paused", 1, 4_000),
        ("paused", 7, 256_000),
        ("paused", 8, 300_000),
        ("paused", 1_000, 300_000),
        ("TestUSDC: amount exceeds ALLOWANCE", 8, 512_000),
        ("amount exceeds balance", 15, 65_536_000),
        ("payer's session limit", 16, 86_400_000),
        ("payer's day limit", 16, 86_400_000),
        ("blacklisted", 1_000, 86_400_000),
    ],
)
def test_a_delay_is_between_half_of_its_maximum_and_all_of_it(reason: str, tries: int, most_ms: int) -> None:
    options = RelayerOptions()
    shortest, longest = (
        retry_in_ms(options, FixedIds(byte), reason=reason, tries=tries)  # type: ignore[arg-type]  # of Ids it needs this
        for byte in (0, 255)
    )
    assert (shortest, longest) == (most_ms // 2, most_ms // 2 + (most_ms - 1) // 2)


async def rounds_of(desk: Desk, relayer: Relayer, seconds: float) -> list[int]:
    """The instants of the rounds, in ms since the start of the relayer."""
    started_ms, found = trio.current_time() * 1_000, list[int]()
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        with trio.move_on_after(seconds):
            while True:
                await trio.sleep(0.01)
                at_ms = round(relayer.round_at_ms - started_ms)
                if at_ms not in found:
                    found.append(at_ms)
        nursery.cancel_scope.cancel()
    return found


async def test_rounds_are_frequent_only_while_a_settlement_is_in_flight(desk: Desk, autojump_clock: Any) -> None:
    relayer = desk.relayer(poll_ms=200, idle_ms=2_000, resend_ms=10**9, replace_ms=10**9)
    assert await rounds_of(desk, relayer, 5.5) == [0, 2_000, 4_000]
    await desk.ended()
    assert await rounds_of(desk, relayer, 0.9) == [0, 200, 400, 600, 800]


def test_the_default_options_of_relayer_and_watcher() -> None:
    assert asdict(RelayerOptions()) == {
        "depth": 0, "poll_ms": 200, "idle_ms": 2_000, "batch_max": 50, "retry_batch_max": 10, "settle_gas": 300_000,
        "estimates_gas": False, "fee_cap_wei": 500 * GWEI, "resend_ms": 5_000, "replace_ms": 30_000,
        "retry_ms_min": 2_000, "retry_ms_max": 86_400_000, "retry_ms_max_ours": 300_000, "retry_every_ms": 2_000,
        "free_every_ms": 600_000, "free_batch_max": 50, "settles_many": True, "free_settle_gas": 50_000,
        "free_batch_gas": 100_000, "start_block": 0, "capture_window_ms": 0,
    }  # fmt: skip
    assert asdict(WatcherOptions()) == {
        "depth": 0, "poll_ms": 200, "idle_ms": 2_000, "start_block": 0, "blocks_max": 64, "log_span_max": 2_000,
        "sweep_ms": 600_000, "sweep_every_ms": 30_000, "sweep_max": 50, "read_max": 200, "is_escrow": False,
        "old_logs_max": 1_000, "finality_tag": None,
    }  # fmt: skip
    assert CHECKED_EVERY_MS == 5_000


async def test_the_gas_of_a_transaction_is_that_of_its_sessions(desk: Desk, autojump_clock: Any) -> None:
    relayer = desk.relayer(depth=0)
    await trio.sleep(10_000)
    await desk.ended()
    for count in (1, 3):
        for _ in range(count):
            await desk.ended(seconds=0)
        await relayer.work_once(desk.hear)
        desk.node.mine()
        await relayer.work_once(desk.hear)
        await trio.sleep(600)
    gas = [(len(transaction.calls), transaction.gas) for transaction in desk.node.sent]
    assert gas == [(1, 300_000), (1, 300_000), (3, 250_000)]


def test_what_may_be_in_flight_is_all_that_rounds_and_batches_sign() -> None:
    assert RelayerOptions(batch_max=3, free_batch_max=4).in_flight_max == 7


async def test_a_node_that_fails_is_asked_less_and_less_often_and_a_success_starts_anew(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, found = desk.relayer(own_ids=FixedIds(255), poll_ms=200, idle_ms=2_000, depth=0), list[int]()
    await desk.ended()
    desk.node.automine = desk.node.is_down = True
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        for until_s in (4.0, 10.0, 13.0):
            if until_s == 10.0:
                desk.node.is_down = False
            elif until_s == 13.0:
                await desk.ended()
                desk.node.is_down = True
            seen = desk.node.exchanges if until_s > 4 else 0
            while trio.current_time() < until_s:
                await trio.sleep(0.0005)
                if desk.node.exchanges != seen and until_s != 10.0:
                    found.append(round(trio.current_time() * 1_000 - 0.25))
                seen = desk.node.exchanges
        nursery.cancel_scope.cancel()
    first, second = [each for each in found if each < 5_000], [each for each in found if each > 5_000]
    assert first == [0, 599, 1_598, 3_397]
    assert [later - second[0] for later in second[1:]] == [599, 1_598]


async def test_the_next_nonce_of_the_chain_is_broadcast_though_its_settlement_needs_it_no_more(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, first, second = desk.relayer(resend_ms=10**9, replace_ms=10**9), await desk.ended(), await desk.ended()
    await relayer.work_once(desk.hear)
    of_nonce = {row.attempts[0].nonce: row for row in [await desk.record(first), await desk.record(second)]}
    settled = of_nonce[0]
    place = Inclusion(tx_hash="0xelsewhere", block_number=0, block_hash="0xb0")
    await desk.ledger.mark_confirmed(settled.session_id, place, now_ms=1)
    del desk.node.pool[settled.attempts[0].tx_hash]
    before = len(desk.node.sent)
    await relayer.work_once(desk.hear)
    assert [item.tx_hash for item in desk.node.sent[before:]] == [settled.attempts[0].tx_hash]
    desk.node.mine()
    with capture_logs() as logs:
        await relayer.work_once(desk.hear)
        desk.node.mine()
        await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == before + 1
    assert [entry for entry in logs if entry["event"] == "relayer_nonce_unknown"] == []


@pytest.mark.parametrize(("in_flight", "signed"), [(0, 1), (1, 0)])
async def test_the_last_place_may_be_taken_by_a_retry(desk: Desk, in_flight: int, signed: int) -> None:
    if in_flight:
        await desk.ended()
        await desk.relayer(depth=2).work_once(desk.hear)
    session_id = await desk.ended()
    failed, retry = SettlementState.FAILED, SettlementLane.RETRY
    await desk.ledger.mark_waiting(session_id, failed, reason="x", retry_at_ms=0, now_ms=1, lane=retry)
    relayer = desk.relayer(batch_max=1, retry_batch_max=1, resend_ms=10**9, replace_ms=10**9)
    before = len(desk.node.sent)
    await relayer.work_once(desk.hear)
    assert len(desk.node.sent) - before == signed


async def test_another_chain_halts_the_relayer_which_asks_less_and_less_often(desk: Desk, autojump_clock: Any) -> None:
    relayer, found = desk.relayer(own_ids=FixedIds(255), poll_ms=200), list[int]()
    await desk.ended()
    desk.node.blocks[0].block_hash = "0x" + "99" * 32
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        seen = 0
        while trio.current_time() < 2:
            await trio.sleep(0.0005)
            if desk.node.exchanges != seen:
                found.append(round(trio.current_time() * 1_000 - 0.25))
            seen = desk.node.exchanges
        nursery.cancel_scope.cancel()
    assert relayer.halted_because is not None
    assert found == [0, 599, 1_598]
