"""The contract of every ledger, tested on memory and on Postgres: the outbox, holds, and the watcher's wallets."""

import pytest
import trio

from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import (
    DAY_MS,
    HEADERS_MAX,
    HEADERS_MIN,
    WOKEN_MAX,
    ChainIdentity,
    CursorMovedError,
    FundsPolicy,
    Inclusion,
    Ledger,
    LedgerEventKind,
    LedgerQuery,
    NonceTakenError,
    ReadingState,
    SettlementLane,
    SettlementState,
    SpendingLimits,
    UsageDay,
    UsageSide,
    WalletReading,
)
from sightline.system.keccak import session_id_hash
from tests.contract.ledger.ledgers import (
    CONSUMER,
    ENDLESS,
    OPERATOR,
    OTHER_SESSION,
    PAYEE,
    PAYER,
    RELAYER,
    SESSION,
    a_block,
    a_payload,
    an_application,
    an_attempt,
    an_event,
    apply,
    funded,
    held,
    lane_of,
    state_of,
)

# The outbox.


async def test_the_first_payload_of_a_session_is_the_only_one(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.compose(a_payload(to_amount=1_000_000), now_ms=2)
    record = await ledger.settlement(SESSION)
    assert record is not None
    assert record.payload == a_payload()
    assert record.session_id_hash == session_id_hash(SESSION)
    assert (record.state, record.composed_at_ms, record.tx_hash) == (SettlementState.COMPOSED, 1, None)
    assert [row.session_id for row in await ledger.due(SettlementLane.PAYABLE, now_ms=9, limit=5)] == [SESSION]


async def test_a_signed_transaction_is_kept_with_its_nonce_before_it_is_sent(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    assert await ledger.next_nonce(RELAYER) == 0
    await ledger.store_signed(RELAYER, [an_attempt(nonce=4)], now_ms=5)
    record = await ledger.settlement(SESSION)
    assert record is not None
    assert (record.state, record.tx_hash) == (SettlementState.SIGNED, "0xaa")
    assert record.attempts == (an_attempt(nonce=4),)
    assert await ledger.next_nonce(RELAYER) == 5
    assert await ledger.due(SettlementLane.PAYABLE, now_ms=9, limit=5) == []
    await ledger.mark_sent(["0xaa"], now_ms=6)
    sent = await ledger.settlement(SESSION)
    assert sent is not None
    assert (sent.state, sent.attempts[0].sent_at_ms) == (SettlementState.SENT, 6)


async def test_a_nonce_belongs_to_one_settlement(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.compose(a_payload(OTHER_SESSION), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt(nonce=4)], now_ms=5)
    with pytest.raises(NonceTakenError):
        await ledger.store_signed(RELAYER, [an_attempt(OTHER_SESSION, nonce=4, tx_hash="0xbb")], now_ms=6)
    assert await state_of(ledger, OTHER_SESSION) is SettlementState.COMPOSED


async def test_a_replacement_keeps_the_nonce_and_every_hash(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt(nonce=4)], now_ms=5)
    await ledger.store_signed(RELAYER, [an_attempt(nonce=4, tx_hash="0xcc")], now_ms=6)
    record = await ledger.settlement(SESSION)
    assert record is not None
    assert [attempt.tx_hash for attempt in record.attempts] == ["0xaa", "0xcc"]
    assert [attempt.tx_hash for attempt in await ledger.attempts_at(RELAYER, 4)] == ["0xaa", "0xcc"]
    assert await ledger.attempts_at(PAYER, 4) == []
    assert await ledger.next_nonce(RELAYER) == 5
    await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="x", retry_at_ms=0, now_ms=6)
    await ledger.store_signed(RELAYER, [an_attempt(nonce=5, tx_hash="0xdd")], now_ms=7)
    assert [attempt.tx_hash for attempt in await ledger.attempts_at(RELAYER, 5)] == ["0xdd"]
    assert [attempt.tx_hash for attempt in await ledger.attempts_at(RELAYER, 4)] == ["0xaa", "0xcc"]
    assert await ledger.free_batch_at_ms(RELAYER) == 0


async def test_the_moment_of_sending_is_that_of_the_first_time_of_each_transaction(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    for tx_hash in ("0xaa", "0xcc"):
        await ledger.store_signed(RELAYER, [an_attempt(nonce=4, tx_hash=tx_hash)], now_ms=5)
    await ledger.mark_sent(["0xcc"], now_ms=6)
    await ledger.mark_sent(["0xcc"], now_ms=7)
    record = await ledger.settlement(SESSION)
    assert record is not None
    assert [attempt.sent_at_ms for attempt in record.attempts] == [None, 6]


async def test_confirmation_is_told_until_it_is_taken_and_keeps_its_moment(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=2)
    inclusion = Inclusion(tx_hash="0xaa", block_number=7, block_hash="0xb7")
    await ledger.mark_mined(SESSION, inclusion, now_ms=3)
    assert await state_of(ledger) is SettlementState.MINED
    assert await ledger.unnotified() == []
    await ledger.mark_confirmed(SESSION, inclusion, now_ms=4)
    await ledger.mark_confirmed(SESSION, inclusion, now_ms=9)
    assert [(row.session_id, row.confirmed_at_ms) for row in await ledger.unnotified()] == [(SESSION, 4)]
    await ledger.mark_notified(SESSION)
    assert await ledger.unnotified() == []


async def test_a_settlement_keeps_the_place_of_its_event_until_it_is_reorganised(ledger: Ledger) -> None:
    async def log_index() -> int | None:
        record = await ledger.settlement(SESSION)
        assert record is not None
        return record.log_index

    await ledger.compose(a_payload(), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=2)
    place = Inclusion(tx_hash="0xaa", block_number=7, block_hash="0xb7", log_index=3)
    await ledger.mark_mined(SESSION, place, now_ms=3)
    assert await log_index() == 3
    await ledger.mark_confirmed(SESSION, replace(place, log_index=4), now_ms=4)
    assert await log_index() == 4
    await ledger.mark_unmined(SESSION, reason="reorganised", now_ms=5)
    assert await log_index() is None
    await ledger.mark_mismatched(SESSION, place, a_payload(to_amount=1, fee_amount=2), now_ms=6)
    assert await log_index() == 3


async def test_a_confirmed_settlement_never_waits_again_by_a_late_report(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.mark_confirmed(SESSION, Inclusion(tx_hash="0xaa", block_number=7, block_hash="0xb"), now_ms=4)
    await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="late", retry_at_ms=0, now_ms=5)
    await ledger.store_signed(RELAYER, [an_attempt(tx_hash="0xdd")], now_ms=6)
    assert await state_of(ledger) is SettlementState.CONFIRMED


async def test_a_reorganised_settlement_goes_back_to_sent_and_keeps_what_was_told(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=2)
    await ledger.mark_confirmed(SESSION, Inclusion(tx_hash="0xaa", block_number=7, block_hash="0xb"), now_ms=4)
    await ledger.mark_unmined(SESSION, reason="reorganised", now_ms=5)
    record = await ledger.settlement(SESSION)
    assert record is not None
    assert (record.state, record.block_number, record.confirmed_at_ms) == (SettlementState.SENT, None, 4)


async def test_a_waiting_settlement_comes_due_at_its_time_with_its_reason(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="paused", retry_at_ms=50, now_ms=5)
    assert await ledger.due(SettlementLane.PAYABLE, now_ms=49, limit=5) == []
    (record,) = await ledger.due(SettlementLane.PAYABLE, now_ms=50, limit=5)
    assert (record.state, record.reason, record.tries) == (SettlementState.FAILED, "paused", 1)
    assert [row.reason for row in await ledger.settlements([SettlementState.FAILED], limit=9)] == ["paused"]


async def test_what_the_wallet_does_not_cover_waits_apart_until_the_wallet_changes(ledger: Ledger) -> None:
    await funded(ledger, balance=99)
    await ledger.compose(a_payload(), now_ms=2)
    assert await lane_of(ledger) is SettlementLane.RETRY
    assert await ledger.due(SettlementLane.PAYABLE, now_ms=9, limit=5) == []
    assert [row.session_id for row in await ledger.due(SettlementLane.RETRY, now_ms=9, limit=5)] == [SESSION]
    await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="x", retry_at_ms=10**9, now_ms=9)
    await apply(ledger, an_application(a_block(2), balance=99), now_ms=10)
    assert await ledger.due(SettlementLane.PAYABLE, now_ms=11, limit=5) == []
    await apply(ledger, an_application(a_block(3), balance=100), now_ms=12)
    assert [row.session_id for row in await ledger.due(SettlementLane.PAYABLE, now_ms=12, limit=5)] == [SESSION]
    await apply(ledger, an_application(a_block(4), balance=100, allowance=99), now_ms=13)
    assert await lane_of(ledger) is SettlementLane.RETRY


async def test_the_payers_own_limits_decide_the_lane_too(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=0)
    tight = SpendingLimits(per_session=99, per_day=ENDLESS, spent=0, day=0)
    await apply(ledger, an_application(a_block(1), balance=500, limits=tight), now_ms=1)
    await ledger.compose(a_payload(), now_ms=2)
    assert await lane_of(ledger) is SettlementLane.RETRY
    loose = SpendingLimits(per_session=100, per_day=150, spent=50, day=0)
    await apply(ledger, an_application(a_block(2), balance=500, limits=loose), now_ms=3)
    assert await lane_of(ledger) is SettlementLane.PAYABLE
    spent = SpendingLimits(per_session=100, per_day=150, spent=51, day=0)
    await apply(ledger, an_application(a_block(3), balance=500, limits=spent), now_ms=4)
    assert await lane_of(ledger) is SettlementLane.RETRY
    assert await ledger.spendable([PAYER, PAYEE], now_ms=4) == {PAYER: 99}
    assert await ledger.spendable([PAYER], now_ms=DAY_MS) == {PAYER: 150}


async def test_a_changed_wallet_wakes_a_bounded_number_smallest_first(ledger: Ledger) -> None:
    await funded(ledger, balance=0)
    for number in range(WOKEN_MAX + 5):
        session_id = f"{number:08d}-3333-4333-8333-333333333333"
        await ledger.compose(a_payload(session_id, to_amount=100 - number, fee_amount=0), now_ms=number)
    await apply(ledger, an_application(a_block(2), balance=97), now_ms=50)
    due = await ledger.due(SettlementLane.PAYABLE, now_ms=50, limit=100)
    assert sorted(row.payload.to_amount for row in due) == list(range(86, 86 + WOKEN_MAX))


async def test_a_free_session_has_a_lane_of_its_own_and_a_batch_is_one_transaction(ledger: Ledger) -> None:
    free = [f"{number:08d}-3333-4333-8333-333333333333" for number in range(3)]
    for session_id in free:
        await ledger.compose(a_payload(session_id, to_amount=0, fee_amount=0), now_ms=1)
    assert [row.session_id for row in await ledger.due(SettlementLane.FREE, now_ms=1, limit=5)] == free
    assert await ledger.free_batch_at_ms(RELAYER) == 0
    attempts = [an_attempt(session_id, nonce=2, tx_hash="0xab") for session_id in free]
    for _ in range(2):
        await ledger.store_signed(RELAYER, attempts, now_ms=7, is_free_batch=True)
    assert await ledger.free_batch_at_ms(RELAYER) == 7
    assert await ledger.next_nonce(RELAYER) == 3
    assert [row.session_id for row in await ledger.of_transaction("0xab")] == free
    await ledger.mark_sent(["0xab"], now_ms=8)
    assert {row.state for row in await ledger.in_flight(limit=9)} == {SettlementState.SENT}
    assert [len(row.attempts) for row in await ledger.in_flight(limit=9)] == [1, 1, 1]


@pytest.mark.parametrize("state", [SettlementState.MINED, SettlementState.CONFIRMED])
async def test_what_is_mined_is_not_signed_again(ledger: Ledger, state: SettlementState) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=2)
    inclusion = Inclusion(tx_hash="0xaa", block_number=7, block_hash="0xb7")
    mark = ledger.mark_mined if state is SettlementState.MINED else ledger.mark_confirmed
    await mark(SESSION, inclusion, now_ms=3)
    await ledger.store_signed(RELAYER, [an_attempt(tx_hash="0xee")], now_ms=4)
    record = await ledger.settlement(SESSION)
    assert record is not None
    assert (record.state, record.tx_hash, record.block_number) == (state, "0xaa", 7)


async def test_other_amounts_on_the_chain_are_a_state_of_their_own(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    inclusion = Inclusion(tx_hash="0xaa", block_number=7, block_hash="0xb7")
    on_chain = replace(
        a_payload(to_amount=2**70, fee_amount=3), from_address="0x" + "e1" * 20, to_address="0x" + "e2" * 20,
        rate=MicroUsdc(1), chargeable_seconds=2**70 + 3, platform_fee_bps=1,
    )  # fmt: skip
    await ledger.mark_mismatched(SESSION, inclusion, on_chain, now_ms=3)
    await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="late", retry_at_ms=0, now_ms=5)
    record = await ledger.settlement(SESSION)
    assert record is not None
    assert (record.state, record.on_chain, record.tx_hash) == (SettlementState.MISMATCHED, on_chain, "0xaa")
    assert record.payload == a_payload()
    await apply(ledger, an_application(a_block(7)), now_ms=5)
    assert [row.session_id for row in await ledger.to_recheck()] == [SESSION]
    await ledger.mark_unmined(SESSION, reason="reorganised", now_ms=6)
    record = await ledger.settlement(SESSION)
    assert record is not None
    assert (record.state, record.on_chain) == (SettlementState.SENT, None)


async def test_a_written_off_settlement_releases_its_hold_and_is_never_signed(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    await ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ENFORCED, now_ms=1)
    await ledger.charge_hold(SESSION, 100)
    await ledger.compose(a_payload(), now_ms=2)
    assert await ledger.write_off(OTHER_SESSION, reason="no such session", now_ms=3) is None
    record = await ledger.write_off(SESSION, reason="payee blacklisted", now_ms=3)
    assert record is not None
    assert (record.state, record.reason) == (SettlementState.WRITTEN_OFF, "payee blacklisted")
    assert await held(ledger) == 0
    assert await ledger.take_hold(OTHER_SESSION, PAYER, 100, FundsPolicy.ENFORCED, now_ms=4)
    await apply(ledger, an_application(a_block(9), balance=101), now_ms=5)
    for lane in SettlementLane:
        assert await ledger.due(lane, now_ms=10**12, limit=9) == []
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=6)
    assert await state_of(ledger) is SettlementState.WRITTEN_OFF


async def test_a_settlement_in_flight_is_not_written_off(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=2)
    record = await ledger.write_off(SESSION, reason="impatience", now_ms=3)
    assert record is not None
    assert record.state is SettlementState.SIGNED


# Wallets.


async def test_the_first_chain_seen_is_the_chain(ledger: Ledger) -> None:
    first = ChainIdentity(chain_id=1, genesis_hash="0xaa", usdc_address="0xbb", settlement_address="0xcc")
    other = ChainIdentity(chain_id=1, genesis_hash="0xdd", usdc_address="0xbb", settlement_address="0xcc")
    assert await ledger.identify(first) == first
    assert await ledger.identify(other) == first


async def test_an_untracked_wallet_has_no_view_and_a_new_one_is_zero(ledger: Ledger) -> None:
    assert await ledger.wallet(CONSUMER) is None
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert (view.balance_micro, view.allowance_micro, view.last_sync_block, view.updated_at_ms) == (0, 0, 0, 3)
    assert await ledger.tracked_among([PAYER.lower(), PAYEE.lower()]) == {PAYER.lower(): ReadingState.NEW}
    assert await ledger.wallets_to_read(limit=9) == {PAYER.lower(): ReadingState.NEW}


async def test_blocks_events_and_readings_are_applied_together(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    block = a_block(5)
    await apply(ledger, an_application(block, events=(an_event(block),), balance=100), now_ms=7)
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert (view.balance_micro, view.allowance_micro, view.last_sync_block) == (100, ENDLESS, 5)
    assert await ledger.chain_head() == block
    assert await ledger.tracked_among([PAYER.lower()]) == {PAYER.lower(): ReadingState.CURRENT}
    assert await ledger.wallets_to_read(limit=9) == {}
    (row,) = await ledger.ledger(CONSUMER, LedgerQuery(limit=10))
    assert (row.kind, row.amount_micro, row.confirmations, row.confirmed_at_ms) == (LedgerEventKind.DEPOSIT, 100, 1, 7)


async def test_applying_a_block_twice_changes_nothing(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    for now_ms in (7, 8):
        block = a_block(5)
        await apply(ledger, an_application(block, events=(an_event(block),), balance=100), now_ms=now_ms)
    rows = await ledger.ledger(CONSUMER, LedgerQuery(limit=10))
    assert [(row.amount_micro, row.confirmed_at_ms) for row in rows] == [(100, 7)]


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"])
async def test_an_event_that_moves_to_another_block_is_confirmed_anew(ledger: Ledger, first: str, second: str) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    for fork, confirmed_block in ((first, 6), (second, 5)):
        block = a_block(6, fork)
        await apply(ledger, an_application(block, events=(an_event(block),), confirmed_block=confirmed_block), now_ms=7)
    (row,) = await ledger.ledger(CONSUMER, LedgerQuery(limit=10))
    assert (row.block_hash, row.confirmed_at_ms) == (f"0x{second}6", None)


async def test_only_the_newest_headers_are_kept(ledger: Ledger) -> None:
    for number in (1, 2, HEADERS_MIN + 1, 3 * HEADERS_MIN):
        await apply(ledger, an_application(a_block(number)), now_ms=number)
        kept = [header.number for header in await ledger.recent_headers()]
        assert kept[0] == number
        assert all(each > number - HEADERS_MIN for each in kept)
    assert kept == [3 * HEADERS_MIN]


@pytest.mark.parametrize(
    ("final", "first"),
    [
        (None, 2_000 - HEADERS_MIN + 1),
        (1_999, 2_000 - HEADERS_MIN + 1),
        (1_500, 1_500),
        (2_000 - HEADERS_MAX, 2_000 - HEADERS_MAX + 1),
        (3, 2_000 - HEADERS_MAX + 1),
    ],
)
async def test_headers_are_kept_back_to_the_final_block(ledger: Ledger, final: int | None, first: int) -> None:
    headers = tuple(a_block(number) for number in range(1, 2_001))
    application = an_application(headers[-1])
    await apply(ledger, replace(application, headers=headers[:1_200], head=headers[1_199], final_block=final), now_ms=7)
    await apply(ledger, replace(application, headers=headers[1_200:], final_block=final), now_ms=8)
    kept = [header.number for header in await ledger.recent_headers()]
    assert kept == list(range(2_000, first - 1, -1))


async def test_an_older_reading_never_replaces_a_newer_one(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    await apply(ledger, an_application(a_block(6), balance=60), now_ms=7)
    await apply(ledger, an_application(a_block(5), balance=50), now_ms=8)
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert view.balance_micro == 60


async def test_an_event_is_confirmed_only_at_depth(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    block = a_block(5)
    await apply(ledger, an_application(block, events=(an_event(block),), confirmed_block=3), now_ms=7)
    (row,) = await ledger.ledger(CONSUMER, LedgerQuery(limit=10))
    assert row.confirmed_at_ms is None
    await apply(ledger, an_application(a_block(7), confirmed_block=5), now_ms=9)
    (row,) = await ledger.ledger(CONSUMER, LedgerQuery(limit=10))
    assert (row.confirmed_at_ms, row.confirmations) == (9, 3)


async def test_a_reorganisation_voids_rows_and_a_returning_event_revives_its_row(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    await apply(ledger, an_application(a_block(5), balance=0), now_ms=6)
    block = a_block(6)
    await apply(ledger, an_application(block, events=(an_event(block),), balance=100), now_ms=7)
    await ledger.roll_back(a_block(5), cursor=block, now_ms=8)
    (row,) = await ledger.ledger(CONSUMER, LedgerQuery(limit=10))
    assert (row.removed, row.confirmations, row.confirmed_at_ms) == (True, 0, None)
    assert await ledger.chain_head() == a_block(5)
    assert await ledger.recent_headers() == [a_block(5)]
    assert await ledger.wallets_to_read(limit=9) == {PAYER.lower(): ReadingState.OUTDATED}
    other = a_block(6, "b")
    await apply(ledger, an_application(other, events=(an_event(other),), balance=100), now_ms=9)
    (again,) = await ledger.ledger(CONSUMER, LedgerQuery(limit=10))
    assert (again.removed, again.block_hash, again.sequence) == (False, other.block_hash, row.sequence)


async def test_the_movements_of_one_session_are_found(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    for number, session_id in enumerate((SESSION, OTHER_SESSION), 1):
        await ledger.take_hold(session_id, PAYER, 100, FundsPolicy.ADVISORY, now_ms=1)
        await ledger.compose(a_payload(session_id), now_ms=2)
        event = an_event(a_block(number), session=session_id, tx_hash=f"0xt{number}")
        await apply(ledger, an_application(a_block(number), events=(event,)), now_ms=number)
    (row,) = await ledger.ledger(CONSUMER, LedgerQuery(limit=9, session_id=OTHER_SESSION))
    assert (row.session_id, row.tx_hash) == (OTHER_SESSION, "0xt2")


async def test_ledger_pages_newest_first_within_kinds_and_blocks(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    await ledger.track(OPERATOR, PAYEE, now_ms=3)
    for number in range(1, 6):
        block = a_block(number)
        event = an_event(block, amount=number, tx_hash=f"0xt{number}")
        other = replace(event, address=PAYEE.lower())
        await apply(ledger, an_application(block, events=(event,) if number > 1 else (event, other)), now_ms=number)
    first = await ledger.ledger(CONSUMER, LedgerQuery(limit=2))
    assert [row.amount_micro for row in first] == [5, 4]
    rest = await ledger.ledger(CONSUMER, LedgerQuery(limit=9, before_sequence=first[-1].sequence))
    assert [row.amount_micro for row in rest] == [3, 2, 1]
    bounded = await ledger.ledger(CONSUMER, LedgerQuery(limit=9, from_block=2, to_block=3))
    assert [row.amount_micro for row in bounded] == [3, 2]
    assert await ledger.ledger(CONSUMER, LedgerQuery(limit=9, kinds=(LedgerEventKind.APPROVAL,))) == []
    (own,) = await ledger.ledger(OPERATOR, LedgerQuery(limit=9))
    assert (own.amount_micro, own.sequence) == (1, 2)
    assert [row.sequence for row in (*first, *rest)] == [6, 5, 4, 3, 1]


async def test_of_two_watchers_the_one_with_the_older_cursor_writes_nothing(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=0)
    first, second = a_block(1), a_block(2)
    await ledger.apply_blocks(an_application(first), now_ms=1)
    await ledger.apply_blocks(replace(an_application(second, balance=20), previous=first), now_ms=2)
    for stale in (None, first, a_block(2, "b")):
        late = replace(an_application(a_block(2, "b"), balance=99), previous=stale)
        with pytest.raises(CursorMovedError):
            await ledger.apply_blocks(late, now_ms=3)
    with pytest.raises(CursorMovedError):
        await ledger.roll_back(a_block(0), cursor=first, now_ms=3)
    assert await ledger.chain_head() == second
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert view.balance_micro == 20


async def test_old_readings_are_named_oldest_first_and_a_fresh_one_is_not(ledger: Ledger) -> None:
    await funded(ledger, balance=5)
    assert await ledger.oldest_readings(before_ms=1, limit=9) == [PAYER.lower()]
    await apply(ledger, an_application(a_block(2), balance=5), now_ms=50)
    assert await ledger.oldest_readings(before_ms=50, limit=9) == []


# Holds.


async def test_enforced_holds_never_exceed_what_is_spendable(ledger: Ledger) -> None:
    await funded(ledger, balance=100, allowance=80)
    assert await ledger.take_hold(SESSION, PAYER, 50, FundsPolicy.ENFORCED, now_ms=1)
    assert not await ledger.take_hold(OTHER_SESSION, PAYER, 31, FundsPolicy.ENFORCED, now_ms=1)
    assert await ledger.take_hold(OTHER_SESSION, PAYER, 30, FundsPolicy.ENFORCED, now_ms=1)
    assert await held(ledger) == 80


async def test_enforced_holds_respect_the_payers_own_limits_on_the_contract(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=0)
    limits = SpendingLimits(per_session=60, per_day=100, spent=10, day=0)
    await apply(ledger, an_application(a_block(1), balance=500, limits=limits), now_ms=0)
    assert not await ledger.take_hold(SESSION, PAYER, 61, FundsPolicy.ENFORCED, now_ms=1)
    assert await ledger.take_hold(SESSION, PAYER, 60, FundsPolicy.ENFORCED, now_ms=1)
    assert not await ledger.take_hold(OTHER_SESSION, PAYER, 31, FundsPolicy.ENFORCED, now_ms=1)
    assert await ledger.take_hold(OTHER_SESSION, PAYER, 30, FundsPolicy.ENFORCED, now_ms=1)


async def test_a_charge_that_waits_for_its_settlement_still_reserves(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    await ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ENFORCED, now_ms=1)
    await ledger.charge_hold(SESSION, 40)
    assert not await ledger.take_hold(OTHER_SESSION, PAYER, 61, FundsPolicy.ENFORCED, now_ms=1)
    assert await ledger.take_hold(OTHER_SESSION, PAYER, 60, FundsPolicy.ENFORCED, now_ms=1)


OTHER_PAYERS = ("0x" + "00" * 19 + "01", "0x" + "ff" * 20)
"""Addresses that sort before and after PAYER."""


async def test_the_wallet_of_one_payer_changes_nothing_for_others(ledger: Ledger) -> None:
    others = [f"{number:08d}-3333-4333-8333-333333333333" for number in range(2)]
    for session_id, payer in zip(others, OTHER_PAYERS, strict=True):
        await ledger.take_hold(session_id, payer, 7, FundsPolicy.ADVISORY, now_ms=1)
        await ledger.compose(replace(a_payload(session_id), from_address=payer), now_ms=1)
    await ledger.compose(a_payload(), now_ms=1)
    await funded(ledger, balance=99)
    assert await held(ledger) == 0
    assert await lane_of(ledger) is SettlementLane.RETRY
    assert [await lane_of(ledger, each) for each in others] == [SettlementLane.PAYABLE] * 2
    for session_id in (SESSION, *others):
        lane = SettlementLane.RETRY
        await ledger.mark_waiting(session_id, SettlementState.FAILED, reason="x", retry_at_ms=9, now_ms=2, lane=lane)
    await apply(ledger, an_application(a_block(2), balance=100), now_ms=3)
    assert await lane_of(ledger) is SettlementLane.PAYABLE
    assert [await lane_of(ledger, each) for each in others] == [SettlementLane.RETRY] * 2
    assert await ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ENFORCED, now_ms=3)


async def test_a_reorganisation_leaves_holds_alone_that_no_block_released(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    cancelled = "55555555-5555-4555-8555-555555555555"
    for session_id in (SESSION, OTHER_SESSION, cancelled):
        await ledger.take_hold(session_id, PAYER, 10, FundsPolicy.ENFORCED, now_ms=1)
    await ledger.release_hold(cancelled)
    await ledger.charge_hold(SESSION, 4)
    await apply(ledger, an_application(a_block(2), balance=96, settled=(SESSION,)), now_ms=2)
    await apply(ledger, an_application(a_block(3)), now_ms=2)
    await ledger.roll_back(a_block(2), cursor=a_block(3), now_ms=3)
    assert await held(ledger) == 10
    await ledger.release_hold(OTHER_SESSION)
    assert await held(ledger) == 0


async def test_a_second_reading_of_one_block_replaces_the_first(ledger: Ledger) -> None:
    await funded(ledger, balance=5)
    await apply(ledger, an_application(a_block(1), balance=6), now_ms=1)
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert view.balance_micro == 6


async def test_what_is_left_beside_charges_counts_no_open_hold_and_no_settled_charge(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    assert await ledger.funds_beside_charges([PAYER], now_ms=1) == {PAYER: 100}
    late = "55555555-5555-4555-8555-555555555555"
    for session_id, charge in ((SESSION, 40), (late, 44)):
        await ledger.take_hold(session_id, PAYER, 90, FundsPolicy.ADVISORY, now_ms=1)
        await ledger.charge_hold(session_id, charge)
    await ledger.take_hold(OTHER_SESSION, PAYER, 5, FundsPolicy.ADVISORY, now_ms=1)
    assert await ledger.funds_beside_charges([PAYER, PAYEE], now_ms=2) == {PAYER: 16}
    await apply(ledger, an_application(a_block(2), balance=60, settled=(SESSION,)), now_ms=2)
    assert await ledger.funds_beside_charges([PAYER], now_ms=2) == {PAYER: 16}
    await apply(ledger, an_application(a_block(3), balance=80), now_ms=3)
    assert await ledger.funds_beside_charges([PAYER], now_ms=3) == {PAYER: 36}


async def test_advisory_holds_are_recorded_whatever_the_wallet_has(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=0)
    assert await ledger.take_hold(SESSION, PAYER, 50, FundsPolicy.ADVISORY, now_ms=1)
    assert await held(ledger) == 50
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert view.available_micro == 0


async def test_taking_a_hold_twice_takes_it_once(ledger: Ledger) -> None:
    await funded(ledger, balance=60)
    for _ in range(2):
        assert await ledger.take_hold(SESSION, PAYER, 50, FundsPolicy.ENFORCED, now_ms=1)
    assert await held(ledger) == 50


async def test_enforced_holds_stop_when_the_chain_was_not_seen_for_long(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    assert not await ledger.take_hold(SESSION, PAYER, 1, FundsPolicy.ENFORCED, now_ms=60_001)
    await ledger.mark_checked(now_ms=60_001)
    assert await ledger.take_hold(SESSION, PAYER, 1, FundsPolicy.ENFORCED, now_ms=60_001)


async def test_a_charge_stays_held_until_the_block_that_settles_it_is_applied(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    await ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ENFORCED, now_ms=1)
    await ledger.charge_hold(SESSION, 40)
    assert await held(ledger) == 40
    await ledger.release_hold(SESSION)
    assert await held(ledger) == 40
    await apply(ledger, an_application(a_block(2), balance=60, settled=(SESSION,)), now_ms=2)
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert (view.held_micro, view.available_micro) == (0, 60)


async def test_a_reorganised_settlement_is_held_again(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    await ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ENFORCED, now_ms=1)
    await ledger.charge_hold(SESSION, 40)
    await apply(ledger, an_application(a_block(2), balance=60, settled=(SESSION,)), now_ms=2)
    await ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=3)
    assert await held(ledger) == 40
    await apply(ledger, an_application(a_block(2, "b"), balance=60, settled=(SESSION,)), now_ms=4)
    assert await held(ledger) == 0


async def test_a_cancelled_hold_is_free_again(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    await ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ENFORCED, now_ms=1)
    await ledger.release_hold(SESSION)
    assert await held(ledger) == 0


async def test_of_parallel_holds_only_what_is_covered_succeeds(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    taken: list[bool] = []

    async def take(number: int) -> None:
        session_id = f"{number:08d}-3333-4333-8333-333333333333"
        taken.append(await ledger.take_hold(session_id, PAYER, 30, FundsPolicy.ENFORCED, now_ms=1))

    async with trio.open_nursery() as nursery:
        for number in range(12):
            nursery.start_soon(take, number)
    assert (taken.count(True), await held(ledger)) == (3, 90)


async def test_an_event_of_a_settlement_names_its_session(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    await ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ENFORCED, now_ms=1)
    block = a_block(2)
    await apply(ledger, an_application(block, events=(an_event(block, session=SESSION),)), now_ms=2)
    (row,) = await ledger.ledger(CONSUMER, LedgerQuery(limit=5))
    assert row.session_id == SESSION


# Usage and the faucet.


async def test_usage_adds_up_the_ended_sessions_of_each_day_by_side(ledger: Ledger) -> None:
    await ledger.compose(a_payload(), now_ms=5 * DAY_MS)
    await ledger.compose(a_payload(OTHER_SESSION, to_amount=171, fee_amount=31), now_ms=6 * DAY_MS - 1)
    late = "55555555-5555-4555-8555-555555555555"
    await ledger.compose(a_payload(late, to_amount=0, fee_amount=0), now_ms=6 * DAY_MS)
    whole = [UsageDay(5, 2, 20, 256, 46), UsageDay(6, 1, 10, 0, 0)]
    for workspace, side in ((CONSUMER, UsageSide.CONSUMER), (OPERATOR, UsageSide.OPERATOR)):
        assert await ledger.usage(workspace, side, first_day=0, last_day=9) == whole
    assert await ledger.usage(CONSUMER, UsageSide.CONSUMER, first_day=6, last_day=6) == whole[1:]
    assert await ledger.usage(CONSUMER, UsageSide.CONSUMER, first_day=5, last_day=5) == whole[:1]
    assert await ledger.usage(CONSUMER, UsageSide.OPERATOR, first_day=0, last_day=9) == []
    await ledger.write_off(OTHER_SESSION, reason="lost", now_ms=7 * DAY_MS)
    assert (await ledger.usage(CONSUMER, UsageSide.CONSUMER, first_day=5, last_day=5))[0].to_amount == 85


async def test_the_faucet_counts_by_wallet_and_day_and_never_above_its_maximum(ledger: Ledger) -> None:
    async def take(amount: int, address: str = PAYER, now_ms: int = 5) -> int | None:
        return await ledger.take_from_faucet(address, amount, daily_max=100, now_ms=now_ms)

    assert await take(101) is None
    assert [await take(60), await take(41), await take(40, PAYER.lower()), await take(1)] == [40, None, 0, None]
    assert await ledger.left_of_faucet(PAYER, daily_max=100, now_ms=5) == 0
    assert [await take(100, PAYEE), await take(100, now_ms=DAY_MS)] == [0, 0]


async def test_parallel_calls_take_no_more_from_the_faucet_than_its_maximum(ledger: Ledger) -> None:
    taken: list[int | None] = []

    async def take() -> None:
        taken.append(await ledger.take_from_faucet(PAYER, 30, daily_max=100, now_ms=5))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(take)
    assert sorted(left for left in taken if left is not None) == [10, 40, 70]


# What holds exactly at a limit: of a block, of the age of a reading, of a hold.


async def test_a_reorganisation_changes_nothing_up_to_the_common_ancestor(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=0)
    await ledger.track(OPERATOR, PAYEE, now_ms=0)
    for number, session_id in ((1, SESSION), (2, OTHER_SESSION)):
        await ledger.take_hold(session_id, PAYER, 10 * number, FundsPolicy.ADVISORY, now_ms=1)
        await ledger.charge_hold(session_id, 10 * number)
        block = a_block(number)
        event = an_event(block, tx_hash=f"0xt{number}")
        await apply(ledger, an_application(block, events=(event,), balance=50, settled=(session_id,)), now_ms=number)
    await apply(ledger, an_application(a_block(3)), now_ms=3)
    await ledger.roll_back(a_block(2), cursor=a_block(3), now_ms=4)
    rows = await ledger.ledger(CONSUMER, LedgerQuery(limit=9))
    assert [(row.removed, row.confirmed_at_ms, row.confirmations) for row in rows] == [(False, 2, 1), (False, 1, 2)]
    assert await ledger.wallets_to_read(limit=9) == {PAYEE.lower(): ReadingState.NEW}
    assert [header.number for header in await ledger.recent_headers()] == [2, 1]
    assert await held(ledger) == 0
    await ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=5)
    rows = await ledger.ledger(CONSUMER, LedgerQuery(limit=9))
    assert [(row.removed, row.confirmed_at_ms, row.confirmations) for row in rows] == [(True, None, 0), (False, 1, 1)]
    assert await held(ledger) == 20
    assert await ledger.wallets_to_read(limit=1) in (
        {PAYER.lower(): ReadingState.OUTDATED}, {PAYEE.lower(): ReadingState.NEW},
    )  # fmt: skip
    await apply(ledger, an_application(a_block(2, "b")), now_ms=6)
    rows = await ledger.ledger(CONSUMER, LedgerQuery(limit=9))
    assert [row.confirmed_at_ms for row in rows] == [None, 1]


async def test_an_outdated_reading_is_replaced_by_one_of_a_lower_block(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=0)
    await apply(ledger, an_application(a_block(5)), now_ms=1)
    await apply(ledger, an_application(a_block(8), balance=80), now_ms=2)
    await ledger.roll_back(a_block(5), cursor=a_block(8), now_ms=3)
    before = await ledger.wallet(CONSUMER)
    assert before is not None
    assert (before.balance_micro, before.last_sync_block, before.updated_at_ms) == (80, 8, 2)
    assert not await ledger.take_hold(SESSION, PAYER, 1, FundsPolicy.ENFORCED, now_ms=3)
    await apply(ledger, an_application(a_block(6, "b"), balance=60), now_ms=4)
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert (view.balance_micro, view.last_sync_block, view.updated_at_ms) == (60, 6, 4)


async def test_a_hold_is_charged_once_and_a_released_one_stays_released(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    for session_id in (SESSION, OTHER_SESSION):
        await ledger.take_hold(session_id, PAYER, 30, FundsPolicy.ENFORCED, now_ms=1)
    await ledger.charge_hold(SESSION, 20)
    await ledger.charge_hold(SESSION, 25)
    await ledger.release_hold(OTHER_SESSION)
    await ledger.charge_hold(OTHER_SESSION, 5)
    assert await held(ledger) == 20
    await apply(ledger, an_application(a_block(2), settled=(SESSION, OTHER_SESSION)), now_ms=2)
    await ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=3)
    assert await held(ledger) == 20


async def test_enforced_holds_go_on_until_the_chain_was_not_seen_for_a_minute(ledger: Ledger) -> None:
    await funded(ledger, balance=100)
    await ledger.mark_checked(now_ms=1_000)
    assert await ledger.take_hold(SESSION, PAYER, 1, FundsPolicy.ENFORCED, now_ms=61_000)
    assert not await ledger.take_hold(OTHER_SESSION, PAYER, 1, FundsPolicy.ENFORCED, now_ms=61_001)


async def test_old_readings_are_listed_by_age_up_to_a_limit(ledger: Ledger) -> None:
    for number, payer in enumerate((OTHER_PAYERS[1], PAYER.lower(), OTHER_PAYERS[0]), 1):
        await ledger.track(f"{number:08d}-3333-4333-8333-333333333333", payer, now_ms=0)
        reading = WalletReading(address=payer, balance_micro=1, allowance_micro=1, block_number=number)
        await apply(ledger, replace(an_application(a_block(number)), readings=(reading,)), now_ms=10 * number)
    assert await ledger.oldest_readings(before_ms=31, limit=9) == [OTHER_PAYERS[1], PAYER.lower(), OTHER_PAYERS[0]]
    assert await ledger.oldest_readings(before_ms=30, limit=9) == [OTHER_PAYERS[1], PAYER.lower()]
    assert await ledger.oldest_readings(before_ms=31, limit=1) == [OTHER_PAYERS[1]]
    assert await ledger.oldest_readings(before_ms=11, limit=9) == [OTHER_PAYERS[1]]


async def test_a_wallet_is_tracked_since_the_first_time(ledger: Ledger) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=3)
    await ledger.track(CONSUMER, PAYEE, now_ms=9)
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    assert (view.address, view.updated_at_ms) == (PAYER.lower(), 3)


async def test_what_the_faucet_may_give_is_never_negative(ledger: Ledger) -> None:
    assert await ledger.take_from_faucet(PAYER, 60, daily_max=100, now_ms=5) == 40
    assert await ledger.left_of_faucet(PAYER, daily_max=100, now_ms=DAY_MS - 1) == 40
    assert await ledger.left_of_faucet(PAYER, daily_max=50, now_ms=5) == 0
    assert await ledger.left_of_faucet(PAYER, daily_max=100, now_ms=DAY_MS) == 100
