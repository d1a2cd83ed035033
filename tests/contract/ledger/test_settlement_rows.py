"""What each change leaves of a settlement's row, field by field, on memory and on Postgres."""

import pytest

from sightline.domain.value import replace
from sightline.ports.ledger import (
    FundsPolicy,
    Inclusion,
    Ledger,
    NonceTakenError,
    SettlementLane,
    SettlementRecord,
    SettlementState,
)
from sightline.system.keccak import session_id_hash
from tests.contract.ledger.ledgers import (
    OTHER_SESSION,
    PAYER,
    RELAYER,
    SESSION,
    a_block,
    a_payload,
    an_application,
    an_attempt,
    apply,
    funded,
    held,
    record_of,
)

PLACE = Inclusion(tx_hash="0xaa", block_number=7, block_hash="0xb7", log_index=3)
THIRD_SESSION = "22222222-3333-4333-8333-333333333333"


async def composed(ledger: Ledger) -> SettlementRecord:
    await ledger.compose(a_payload(), now_ms=1)
    return await record_of(ledger)


async def signed(ledger: Ledger) -> SettlementRecord:
    await composed(ledger)
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=5)
    return await record_of(ledger)


async def test_a_new_settlement_is_due_at_once(ledger: Ledger) -> None:
    assert await composed(ledger) == SettlementRecord(
        session_id=SESSION, session_id_hash=session_id_hash(SESSION), payload=a_payload(),
        state=SettlementState.COMPOSED, reason=None, tx_hash=None, block_number=None, block_hash=None,
        confirmed_at_ms=None, retry_at_ms=1, tries=0, notified=False, composed_at_ms=1, updated_at_ms=1,
        lane=SettlementLane.PAYABLE,
    )  # fmt: skip


async def test_signing_clears_the_reason_and_the_retry(ledger: Ledger) -> None:
    row = await composed(ledger)
    await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="paused", retry_at_ms=9, now_ms=3)
    await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="again", retry_at_ms=90, now_ms=4)
    waiting = replace(
        row, state=SettlementState.FAILED, reason="again", retry_at_ms=90, tries=2, updated_at_ms=4
    )  # fmt: skip
    assert await record_of(ledger) == waiting
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=5)
    assert await record_of(ledger) == replace(
        waiting, state=SettlementState.SIGNED, reason=None, tx_hash="0xaa", retry_at_ms=0, updated_at_ms=5,
        attempts=(an_attempt(),),
    )  # fmt: skip


async def test_a_refusal_moves_to_a_lane_only_if_one_is_named(ledger: Ledger) -> None:
    await composed(ledger)
    lanes = []
    for lane in (None, SettlementLane.RETRY, None, SettlementLane.PAYABLE):
        await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="x", retry_at_ms=9, now_ms=3, lane=lane)
        lanes.append((await record_of(ledger)).lane)
    payable, retry = SettlementLane.PAYABLE, SettlementLane.RETRY
    assert lanes == [payable, retry, retry, payable]


async def test_sending_is_noted_on_the_transaction_and_its_settlement_alone(ledger: Ledger) -> None:
    row = await signed(ledger)
    await ledger.compose(a_payload(OTHER_SESSION), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt(OTHER_SESSION, nonce=1, tx_hash="0xbb")], now_ms=5)
    other = await record_of(ledger, OTHER_SESSION)
    await ledger.mark_sent(["0xaa"], now_ms=6)
    assert await record_of(ledger) == replace(
        row, state=SettlementState.SENT, updated_at_ms=6, attempts=(replace(an_attempt(), sent_at_ms=6),)
    )
    assert await record_of(ledger, OTHER_SESSION) == other
    await ledger.mark_sent(["0xaa"], now_ms=8)
    again = await record_of(ledger)
    assert (again.updated_at_ms, again.attempts[0].sent_at_ms) == (8, 6)


async def test_a_stuck_settlement_that_is_sent_again_stays_stuck_with_its_reason(ledger: Ledger) -> None:
    await signed(ledger)
    await ledger.mark_waiting(SESSION, SettlementState.STUCK, reason="no receipt", retry_at_ms=50, now_ms=6)
    row = await record_of(ledger)
    await ledger.mark_sent(["0xaa"], now_ms=9)
    attempts = (replace(an_attempt(), sent_at_ms=9),)
    assert await record_of(ledger) == replace(row, updated_at_ms=9, attempts=attempts)


@pytest.mark.parametrize("state", [SettlementState.FAILED, SettlementState.MINED])
async def test_a_late_report_of_sending_changes_no_other_state(ledger: Ledger, state: SettlementState) -> None:
    await signed(ledger)
    if state is SettlementState.MINED:
        await ledger.mark_mined(SESSION, PLACE, now_ms=7)
    else:
        await ledger.mark_waiting(SESSION, state, reason="x", retry_at_ms=50, now_ms=7)
    row = await record_of(ledger)
    await ledger.mark_sent(["0xaa"], now_ms=9)
    assert await record_of(ledger) == replace(row, attempts=(replace(an_attempt(), sent_at_ms=9),))


async def test_a_confirmation_ends_the_tries_and_is_told_again_only_for_another_transaction(ledger: Ledger) -> None:
    row = await signed(ledger)
    await ledger.mark_waiting(SESSION, SettlementState.STUCK, reason="no receipt", retry_at_ms=0, now_ms=6)
    await ledger.mark_mined(SESSION, PLACE, now_ms=7)
    mined = replace(
        row, state=SettlementState.MINED, tries=1, block_number=7, block_hash="0xb7", log_index=3, updated_at_ms=7
    )
    assert await record_of(ledger) == mined
    await ledger.mark_confirmed(SESSION, PLACE, now_ms=8)
    confirmed = replace(mined, state=SettlementState.CONFIRMED, tries=0, confirmed_at_ms=8, updated_at_ms=8)
    assert await record_of(ledger) == confirmed
    await ledger.mark_confirmed(SESSION, PLACE, now_ms=9)
    assert await record_of(ledger) == confirmed
    await ledger.mark_notified(SESSION)
    await ledger.mark_unmined(SESSION, reason="reorganised", now_ms=10)
    assert await record_of(ledger) == replace(
        confirmed, state=SettlementState.SENT, reason="reorganised", block_number=None, block_hash=None,
        log_index=None, notified=True, updated_at_ms=10,
    )  # fmt: skip
    same_hash = "".join(list(PLACE.tx_hash))  # another object, as a node's next answer is
    await ledger.mark_confirmed(
        SESSION, replace(PLACE, tx_hash=same_hash, block_number=8, block_hash="0xb8"), now_ms=11
    )
    moved = replace(confirmed, notified=True, block_number=8, block_hash="0xb8", updated_at_ms=11)
    assert await record_of(ledger) == moved
    await ledger.mark_confirmed(SESSION, replace(PLACE, tx_hash="0xee", block_number=9, block_hash="0xb9"), now_ms=12)
    assert await record_of(ledger) == replace(
        moved, tx_hash="0xee", notified=False, block_number=9, block_hash="0xb9", updated_at_ms=12
    )


async def test_only_what_is_in_a_block_can_leave_it(ledger: Ledger) -> None:
    row = await signed(ledger)
    await ledger.mark_unmined(SESSION, reason="reorganised", now_ms=9)
    assert await record_of(ledger) == row


async def test_a_mismatch_keeps_what_the_contract_settled(ledger: Ledger) -> None:
    row = await signed(ledger)
    await ledger.mark_waiting(SESSION, SettlementState.STUCK, reason="no receipt", retry_at_ms=0, now_ms=6)
    on_chain = a_payload(to_amount=1, fee_amount=2)
    await ledger.mark_mismatched(SESSION, PLACE, on_chain, now_ms=7)
    mismatched = replace(
        row, state=SettlementState.MISMATCHED, reason="the contract settled other amounts", block_number=7,
        block_hash="0xb7", log_index=3, on_chain=on_chain, confirmed_at_ms=7, updated_at_ms=7,
    )  # fmt: skip
    assert await record_of(ledger) == mismatched
    await ledger.mark_mined(SESSION, replace(PLACE, block_number=9), now_ms=8)
    assert await record_of(ledger) == mismatched


WAITING = {SettlementState.COMPOSED, SettlementState.FAILED, SettlementState.REVERTED}


@pytest.mark.parametrize("state", [*sorted(WAITING), SettlementState.SIGNED, SettlementState.STUCK])
async def test_only_a_waiting_settlement_is_written_off(ledger: Ledger, state: SettlementState) -> None:
    await composed(ledger)
    await ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ADVISORY, now_ms=1)
    await ledger.mark_waiting(SESSION, state, reason="x", retry_at_ms=9, now_ms=3)
    row = await record_of(ledger)
    is_written_off = state in WAITING
    after = replace(row, state=SettlementState.WRITTEN_OFF, reason="lost", updated_at_ms=4) if is_written_off else row
    assert await ledger.write_off(SESSION, reason="lost", now_ms=4) == after == await record_of(ledger)
    await funded(ledger, balance=0)
    assert await held(ledger) == (0 if is_written_off else 100)
    await ledger.mark_mined(SESSION, PLACE, now_ms=8)
    assert ((await record_of(ledger)).state is SettlementState.WRITTEN_OFF) is is_written_off


async def test_a_batch_of_free_sessions_is_the_only_one_that_moves_its_clock(ledger: Ledger) -> None:
    await composed(ledger)
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=7, is_free_batch=True)
    await ledger.store_signed(RELAYER, [an_attempt(tx_hash="0xcc")], now_ms=9)
    assert await ledger.free_batch_at_ms(RELAYER.upper().replace("0X", "0x")) == 7
    assert await ledger.free_batch_at_ms(PAYER) == 0
    assert await ledger.next_nonce(PAYER) == 0


async def test_the_nonce_after_a_replacement_stays_above_all_that_were_used(ledger: Ledger) -> None:
    await composed(ledger)
    await ledger.compose(a_payload(OTHER_SESSION), now_ms=1)
    await ledger.store_signed(
        RELAYER, [an_attempt(nonce=4), an_attempt(OTHER_SESSION, nonce=5, tx_hash="0xbb")], now_ms=5
    )
    await ledger.store_signed(RELAYER, [an_attempt(nonce=4, tx_hash="0xcc")], now_ms=6)
    assert await ledger.next_nonce(RELAYER) == 6
    assert [row.tx_hash for row in await ledger.attempts_at(RELAYER, 5)] == ["0xbb"]
    await ledger.mark_waiting(SESSION, SettlementState.FAILED, reason="x", retry_at_ms=0, now_ms=6)
    await ledger.store_signed(RELAYER, [an_attempt(nonce=1_000, tx_hash="0xdd")], now_ms=7)
    assert [row.tx_hash for row in await ledger.attempts_at(RELAYER, int("1000"))] == ["0xdd"]


# Order and limits of lists.


async def three(ledger: Ledger) -> None:
    """Three settlements: in the order of composition THIRD, SESSION and OTHER; the last two in one millisecond."""
    for session_id, at_ms in ((OTHER_SESSION, 3), (SESSION, 3), (THIRD_SESSION, 2)):
        await ledger.compose(a_payload(session_id), now_ms=at_ms)


OLDEST_FIRST = [THIRD_SESSION, SESSION, OTHER_SESSION]


def ids_of(rows: list[SettlementRecord]) -> list[str]:
    return [row.session_id for row in rows]


async def test_settlements_are_listed_oldest_first_up_to_a_limit(ledger: Ledger) -> None:
    await three(ledger)
    composed = [SettlementState.COMPOSED]
    assert [ids_of(await ledger.settlements(composed, limit=limit)) for limit in (1, 2, 9)] == [
        OLDEST_FIRST[:1], OLDEST_FIRST[:2], OLDEST_FIRST,
    ]  # fmt: skip
    assert await ledger.settlements([SettlementState.FAILED], limit=9) == []


@pytest.mark.parametrize(
    "state", [SettlementState.SIGNED, SettlementState.SENT, SettlementState.STUCK, SettlementState.MINED]
)
async def test_what_is_in_flight_is_listed_oldest_first(ledger: Ledger, state: SettlementState) -> None:
    await three(ledger)
    assert await ledger.in_flight(limit=9) == []
    for number, session_id in enumerate(sorted(OLDEST_FIRST)):
        tx_hash = f"0xa{number}"
        await ledger.store_signed(RELAYER, [an_attempt(session_id, nonce=number, tx_hash=tx_hash)], now_ms=5)
        if state is SettlementState.SENT:
            await ledger.mark_sent([tx_hash], now_ms=6)
        elif state is SettlementState.STUCK:
            await ledger.mark_waiting(session_id, state, reason="x", retry_at_ms=0, now_ms=6)
        elif state is SettlementState.MINED:
            await ledger.mark_mined(session_id, replace(PLACE, tx_hash=tx_hash), now_ms=6)
    assert ids_of(await ledger.in_flight(limit=9)) == OLDEST_FIRST
    assert ids_of(await ledger.in_flight(limit=2)) == OLDEST_FIRST[:2]
    assert await ledger.has_work(now_ms=0)


@pytest.mark.parametrize("lane", list(SettlementLane))
@pytest.mark.parametrize("state", [SettlementState.FAILED, SettlementState.COMPOSED])
async def test_there_is_work_when_a_settlement_is_due_in_any_lane_and_none_once_it_is_done(
    ledger: Ledger, state: SettlementState, lane: SettlementLane
) -> None:
    assert not await ledger.has_work(now_ms=9)
    await composed(ledger)
    await ledger.mark_waiting(SESSION, state, reason="x", retry_at_ms=7, now_ms=4, lane=lane)
    assert not await ledger.has_work(now_ms=6)
    assert await ledger.has_work(now_ms=7)
    await ledger.mark_confirmed(SESSION, PLACE, now_ms=8)
    assert not await ledger.has_work(now_ms=9)


async def test_what_is_due_longest_comes_first(ledger: Ledger) -> None:
    await three(ledger)
    due = SettlementLane.PAYABLE
    assert ids_of(await ledger.due(due, now_ms=3, limit=9)) == OLDEST_FIRST
    for session_id in OLDEST_FIRST:
        late = 8 if session_id == THIRD_SESSION else 7
        await ledger.mark_waiting(session_id, SettlementState.FAILED, reason="x", retry_at_ms=late, now_ms=4)
    assert ids_of(await ledger.due(due, now_ms=7, limit=9)) == [SESSION, OTHER_SESSION]
    assert ids_of(await ledger.due(due, now_ms=8, limit=9)) == [SESSION, OTHER_SESSION, THIRD_SESSION]
    assert ids_of(await ledger.due(due, now_ms=8, limit=1)) == [SESSION]
    for session_id in OLDEST_FIRST:
        await ledger.mark_waiting(session_id, SettlementState.FAILED, reason="x", retry_at_ms=7, now_ms=4)
    assert ids_of(await ledger.due(due, now_ms=8, limit=9)) == OLDEST_FIRST


async def test_what_is_confirmed_is_told_oldest_first(ledger: Ledger) -> None:
    await three(ledger)
    assert await ledger.unnotified() == []
    for session_id in (OTHER_SESSION, THIRD_SESSION):
        await ledger.mark_confirmed(session_id, PLACE, now_ms=5)
    await ledger.mark_mined(SESSION, PLACE, now_ms=5)
    assert ids_of(await ledger.unnotified()) == [THIRD_SESSION, OTHER_SESSION]
    await ledger.mark_notified(THIRD_SESSION)
    assert ids_of(await ledger.unnotified()) == [OTHER_SESSION]


async def test_a_settlement_in_flight_is_not_signed_under_another_nonce(ledger: Ledger) -> None:
    """A second relayer that read the settlement before the first one signed it gets no second transaction."""
    await ledger.compose(a_payload(), now_ms=1)
    await ledger.store_signed(RELAYER, [an_attempt()], now_ms=2)
    with pytest.raises(NonceTakenError):
        await ledger.store_signed(RELAYER, [an_attempt(nonce=1, tx_hash="0xbb")], now_ms=3)
    await ledger.store_signed(RELAYER, [an_attempt(tx_hash="0xcc")], now_ms=4)
    assert [each.tx_hash for each in (await record_of(ledger)).attempts] == ["0xaa", "0xcc"]


async def test_settlements_in_blocks_that_the_watcher_did_not_apply_are_to_be_rechecked(ledger: Ledger) -> None:
    """Block 7 was replaced and 8 is not applied yet; 6 is applied; 5 is older than what the watcher keeps."""
    await three(ledger)
    applied, places = a_block(6), {}
    for number in (5, 6, 7, 8):
        places[number] = replace(PLACE, block_number=number, block_hash=applied.block_hash if number == 6 else "0xold")
    await ledger.mark_confirmed(SESSION, places[8], now_ms=5)
    await ledger.mark_mined(THIRD_SESSION, places[7], now_ms=5)
    await ledger.mark_confirmed(OTHER_SESSION, places[5], now_ms=5)
    assert await ledger.to_recheck() == []
    for block in (applied, a_block(7)):
        await apply(ledger, an_application(block), now_ms=6)
    assert ids_of(await ledger.to_recheck()) == [THIRD_SESSION, SESSION]
    await ledger.mark_confirmed(OTHER_SESSION, places[6], now_ms=7)
    assert ids_of(await ledger.to_recheck()) == [THIRD_SESSION, SESSION]
    await ledger.roll_back(applied, cursor=a_block(7), now_ms=8)
    assert ids_of(await ledger.to_recheck()) == [THIRD_SESSION, SESSION]
    await ledger.mark_unmined(THIRD_SESSION, reason="x", now_ms=9)
    assert ids_of(await ledger.to_recheck()) == [SESSION]


@pytest.mark.parametrize(("balance", "lane"), [(100, SettlementLane.PAYABLE), (99, SettlementLane.RETRY)])
async def test_a_wallet_must_cover_the_payees_part_and_the_fee(
    ledger: Ledger, balance: int, lane: SettlementLane
) -> None:
    await funded(ledger, balance=balance)
    assert (await composed(ledger)).lane is lane


async def test_a_wallet_that_is_outdated_does_not_decide_the_lane(ledger: Ledger) -> None:
    await funded(ledger, balance=99)
    await apply(ledger, an_application(a_block(2), balance=99), now_ms=1)
    await ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=2)
    assert (await composed(ledger)).lane is SettlementLane.PAYABLE
    assert await ledger.spendable([PAYER], now_ms=3) == {}
    assert await ledger.funds_beside_charges([PAYER], now_ms=3) == {}
