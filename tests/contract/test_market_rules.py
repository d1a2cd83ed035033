"""The contract of every store for the rules of the market: demand, what a payer must meet, and operators' conduct."""

from typing import Any

import pytest

from sightline.domain.conduct import Conduct
from sightline.domain.escrow import ConsentKind, PayerConsent
from sightline.domain.session.model import Requested, Session, SessionState
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import (
    BlockApplication,
    BlockRef,
    Inclusion,
    LiveHold,
    SettlementLane,
    SettlementState,
    WalletReading,
)
from sightline.ports.store import (
    DEMAND_ONCE_MS,
    Committed,
    HoldRequest,
    Rejected,
    RejectedWhy,
    SessionView,
)

from .builders import PAYER, T0, a_session, a_workspace, an_id, in_phase
from .conftest import Stored
from .ledger.ledgers import RELAYER, a_payload, an_attempt
from .test_store_reads import ME, OTHER, listed
from .test_store_writes import a_write, commit, commit_workspace

# Demand.


HERE = {"lat": 52.52, "lng": 13.40, "created_at_ms": T0}
HOLD = MicroUsdc(1_000)


WALLETS = [f"0x{number:040x}" for number in range(1, 10)]


async def wait_here(stored: Stored, number: int, **changes: Any) -> Session:
    """Commit a request at the place, with a hold of the wallet of this number."""
    return await commit_held(stored, a_session(**{**HERE, "payer_address": WALLETS[number], **changes}))


async def commit_held(stored: Stored, session: Session) -> Session:
    """Commit a session with a hold of its payer."""
    hold = HoldRequest(payer_address=session.terms.payer_address, amount=HOLD, is_enforced=False)
    return await commit(stored, session, take_hold=hold)


async def show_wallets(stored: Stored, balances: dict[str, int], *, allowance: int = 10**12, number: int = 1) -> None:
    """Apply a block with a reading of each of these wallets."""
    block = BlockRef(number=number, block_hash=f"0xa{number}", parent_hash=f"0xa{number - 1}")
    readings = tuple(
        WalletReading(address=address, balance_micro=balance, allowance_micro=allowance, block_number=number)
        for address, balance in balances.items()
    )
    application = BlockApplication(
        headers=(block,),
        events=(),
        readings=readings,
        settled=(),
        head=block,
        confirmed_block=number,
        previous=await stored.ledger.chain_head(),
    )
    await stored.ledger.apply_blocks(application, now_ms=T0)


async def demand(stored: Stored, **changes: Any) -> int:
    usual: dict[str, Any] = {
        "lat": 52.521, "lng": 13.401, "within_m": 5_000, "since_ms": T0, "now_ms": T0 + 10_000, "not_of": ME,
    }  # fmt: skip
    return await stored.store.demand_near(**{**usual, **changes})


async def test_demand_counts_others_that_wait_nearby_since_lately(stored: Stored) -> None:
    await show_wallets(stored, dict.fromkeys(WALLETS, 10**9))
    await wait_here(stored, 0)
    assigned = a_session(**HERE, payer_address=WALLETS[1], wait_timeout_s=5)
    await commit_held(stored, in_phase(assigned, SessionState.ASSIGNED))
    await wait_here(stored, 2, wait_timeout_s=5)
    await wait_here(stored, 3, consumer_workspace_id=ME)
    await commit_held(stored, in_phase(a_session(**HERE, payer_address=WALLETS[4]), SessionState.LIVE))
    await wait_here(stored, 5, lat=52.60, lng=13.40)
    await wait_here(stored, 6, created_at_ms=T0 - 1)
    assert await demand(stored) == 2
    assert await demand(stored, now_ms=T0) == 3
    assert await demand(stored, since_ms=T0 - 1) == 3
    assert await demand(stored, within_m=20_000) == 3
    assert await demand(stored, not_of=OTHER) == 3
    assert await demand(stored, lat=-52.521) == 0


@pytest.mark.parametrize(
    ("lat", "lng", "other_lat", "other_lng"),
    [
        (-16.8, 179.99, -16.8, -179.99),
        (-16.8, -180.0, -16.8, 179.98),
        (89.99, 0.0, 89.99, 180.0),
        (70.0, 0.0, 70.0, 0.13),
    ],
)
async def test_demand_is_counted_across_180_degrees_and_around_a_pole(
    stored: Stored, lat: float, lng: float, other_lat: float, other_lng: float
) -> None:
    await wait_here(stored, 1, consumer_workspace_id=OTHER, lat=other_lat, lng=other_lng)
    await show_wallets(stored, {WALLETS[1]: 10**9})
    assert await demand(stored, lat=lat, lng=lng) == 1
    assert await demand(stored, lat=lat - 0.2, lng=lng) == 0


async def test_a_wallet_is_no_demand_for_itself_in_another_of_its_workspaces(stored: Stored) -> None:
    await show_wallets(stored, dict.fromkeys(WALLETS, 10**9))
    own = await commit_workspace(stored, a_workspace(wallet_address=WALLETS[0].upper().replace("X", "x")))
    await wait_here(stored, 0)
    assert await demand(stored, not_of=own.id) == 0
    await wait_here(stored, 1)
    assert await demand(stored, not_of=own.id) == 1
    assert await demand(stored) == 2


async def test_a_payer_that_signed_an_authorization_is_demand_without_an_allowance(stored: Stored) -> None:
    await show_wallets(stored, dict.fromkeys(WALLETS, HOLD), allowance=0)
    signed = await wait_here(
        stored, 0, consent=PayerConsent(kind=ConsentKind.AUTHORIZATION, open_by_s=T0, signature="0x01")
    )
    other = await wait_here(stored, 1, consent=PayerConsent(kind=ConsentKind.CONSENT, open_by_s=T0, signature="0x01"))
    assert await demand(stored) == 1
    assert await stored.store.is_funded(signed.id, T0)
    assert not await stored.store.is_funded(other.id, T0)
    again = await wait_here(
        stored, 0, consent=PayerConsent(kind=ConsentKind.AUTHORIZATION, open_by_s=T0, signature="0x02")
    )
    assert not await stored.store.is_funded(again.id, T0), "the balance covers one of the two"


async def test_an_authorization_is_held_by_the_balance_alone(stored: Stored) -> None:
    await show_wallets(stored, dict.fromkeys(WALLETS, HOLD), allowance=0)
    for kind, result in ((ConsentKind.CONSENT, Rejected), (ConsentKind.AUTHORIZATION, Committed)):
        session = a_session(
            **HERE, payer_address=WALLETS[0], consent=PayerConsent(kind=kind, open_by_s=T0, signature="0x01")
        )
        hold = HoldRequest(payer_address=WALLETS[0], amount=HOLD, is_enforced=True)
        done = await stored.store.write_session(a_write(stored, session, take_hold=hold))
        assert isinstance(done, result), kind


async def test_a_request_of_less_than_a_minute_is_no_demand(stored: Stored) -> None:
    await show_wallets(stored, dict.fromkeys(WALLETS, 10**9))
    await wait_here(stored, 0, max_duration_s=59)
    assert await demand(stored) == 0
    await wait_here(stored, 1, max_duration_s=60)
    assert await demand(stored) == 1


async def test_a_wallet_that_paid_nothing_lately_is_demand_once_in_ten_minutes(stored: Stored) -> None:
    await show_wallets(stored, dict.fromkeys(WALLETS, 10**9))
    for number, ago_ms in enumerate((1, DEMAND_ONCE_MS, DEMAND_ONCE_MS + 1)):
        before = a_session(**{**HERE, "created_at_ms": T0 - ago_ms}, payer_address=WALLETS[number])
        await commit_held(stored, in_phase(before, SessionState.CANCELLED))
        await wait_here(stored, number)
    assert await demand(stored) == 1
    await confirm_a_charge(stored, WALLETS[0])
    assert await demand(stored) == 2


async def test_a_request_that_was_opened_again_counts_until_its_new_deadline(stored: Stored) -> None:
    await show_wallets(stored, {PAYER.lower(): 10**9})
    session = a_session(**HERE, wait_timeout_s=5)
    reopened = Requested(reopened_at_ms=T0 + 120_000, deadline_ms=T0 + 125_000, unstarted_by=(OTHER,))
    kept = await commit_held(stored, replace(session, phase=reopened))
    found = await stored.store.load_session(session.id)
    assert found is not None
    assert found.session == kept
    assert await demand(stored, now_ms=T0 + 124_999) == 1
    assert await demand(stored, now_ms=T0 + 125_000) == 0
    assert await listed(stored, view=SessionView.OPEN, now_ms=T0 + 124_999) == [session.id]
    assert await listed(stored, view=SessionView.OPEN, now_ms=T0 + 125_000) == []


async def test_a_session_is_funded_while_the_wallet_covers_all_holds_of_its_payer(stored: Stored) -> None:
    session = await commit_held(stored, a_session())
    assert not await stored.store.is_funded(an_id(), T0)
    assert not await stored.store.is_funded(session.id, T0)
    await show_wallets(stored, {PAYER.lower(): HOLD})
    assert await stored.store.is_funded(session.id, T0)
    await commit_held(stored, a_session())
    assert not await stored.store.is_funded(session.id, T0)


async def test_demand_counts_a_wallet_once_however_many_requests_and_workspaces_it_has(stored: Stored) -> None:
    await show_wallets(stored, dict.fromkeys(WALLETS, 10**9))
    for number, consumer in enumerate((OTHER, OTHER, an_id(), an_id())):
        await wait_here(stored, number // 3, consumer_workspace_id=consumer)
    assert await demand(stored) == 2


async def test_demand_counts_only_workspaces_whose_wallet_covers_all_its_holds(stored: Stored) -> None:
    wallets = [f"0x{number:040x}" for number in range(4)]
    for wallet in wallets:
        await commit_held(stored, a_session(**HERE, payer_address=wallet))
    await commit_held(stored, a_session(**HERE, payer_address=wallets[3]))
    assert await demand(stored) == 0  # no wallet was read yet
    exact, short = HOLD, HOLD - 1
    await show_wallets(stored, {wallets[0]: exact, wallets[1]: short, wallets[3]: 2 * HOLD - 1})
    assert await demand(stored) == 1
    await show_wallets(stored, {wallets[3]: 2 * HOLD}, number=2)
    assert await demand(stored) == 2
    await show_wallets(stored, {wallets[3]: 2 * HOLD}, allowance=HOLD, number=3)
    assert await demand(stored) == 1


# What a payer must meet.


async def compose_charge(stored: Stored, payer: str) -> str:
    """Compose the settlement of an earlier session of the payer; returns its session's id."""
    session_id = an_id()
    await stored.ledger.compose(replace(a_payload(session_id), from_address=payer), now_ms=T0)
    return session_id


async def confirm_a_charge(stored: Stored, payer: str) -> None:
    session_id = await compose_charge(stored, payer)
    await stored.ledger.store_signed(RELAYER, [an_attempt(session_id)], now_ms=T0)
    inclusion = Inclusion(tx_hash="0xaa", block_number=1, block_hash="0xa1")
    await stored.ledger.mark_mined(session_id, inclusion, now_ms=T0)
    await stored.ledger.mark_confirmed(session_id, inclusion, now_ms=T0)


async def create(stored: Stored, *, unfunded_max: int = 1, payer: str = PAYER) -> Committed | Rejected:
    hold = HoldRequest(payer_address=payer, amount=HOLD, is_enforced=False, unfunded_max=unfunded_max)
    return await stored.store.write_session(a_write(stored, a_session(payer_address=payer), take_hold=hold))


async def test_a_wallet_that_does_not_cover_its_holds_has_one_open_session(stored: Stored) -> None:
    first = a_session()
    hold = HoldRequest(payer_address=PAYER, amount=HOLD, is_enforced=False, unfunded_max=1)
    kept = await commit(stored, first, take_hold=hold)
    assert await create(stored) == Rejected(RejectedWhy.UNFUNDED)
    assert isinstance(await create(stored, payer=WALLETS[0]), Committed)
    assert isinstance(await create(stored, unfunded_max=0), Committed)
    await show_wallets(stored, {PAYER.lower(): 3 * HOLD - 1})
    assert await create(stored) == Rejected(RejectedWhy.UNFUNDED)
    await show_wallets(stored, {PAYER.lower(): 3 * HOLD}, number=2)
    assert isinstance(await create(stored), Committed)
    await commit(stored, in_phase(kept, SessionState.CANCELLED), release_hold=True, due_at_ms=None)
    assert isinstance(await create(stored), Committed)


async def test_a_wallet_without_open_sessions_may_open_one_whatever_it_covers(stored: Stored) -> None:
    kept = await commit(
        stored, a_session(), take_hold=HoldRequest(payer_address=PAYER, amount=HOLD, is_enforced=False, unfunded_max=1)
    )
    await commit(stored, in_phase(kept, SessionState.CANCELLED), release_hold=True, due_at_ms=None)
    assert isinstance(await create(stored), Committed)


async def test_a_charge_that_could_not_be_collected_blocks_its_payer_until_it_can(stored: Stored) -> None:
    session_id = await compose_charge(stored, PAYER)
    assert isinstance(await create(stored, unfunded_max=0), Committed)
    await stored.ledger.mark_waiting(
        session_id,
        SettlementState.FAILED,
        reason="allowance",
        retry_at_ms=T0 + 9,
        now_ms=T0,
        lane=SettlementLane.RETRY,
    )
    assert await create(stored, unfunded_max=0) == Rejected(RejectedWhy.UNPAID)
    assert isinstance(await create(stored, unfunded_max=0, payer=WALLETS[0]), Committed)
    await stored.ledger.write_off(session_id, reason="agreed", now_ms=T0)
    assert isinstance(await create(stored, unfunded_max=0), Committed)


# Conduct.


async def test_conduct_is_kept_for_each_wallet_and_read_while_it_matters(stored: Stored) -> None:
    proved, recent, old = Conduct(proved_at_ms=5), Conduct(no_shows_ms=(7, 9)), Conduct(no_shows_ms=(3,))
    await stored.store.save_conducts(dict(zip(WALLETS, (proved, recent, old), strict=False)))
    assert await stored.store.conducts(since_ms=3) == {WALLETS[0]: proved, WALLETS[1]: recent}
    cleared = Conduct(no_shows_ms=(9,), proved_at_ms=11)
    await stored.store.save_conducts({WALLETS[1]: cleared})
    assert await stored.store.conducts(since_ms=10) == {WALLETS[0]: proved, WALLETS[1]: cleared}


# Holds.


async def test_an_ended_session_proves_no_settlement_while_its_hold_is_not_charged(stored: Stored) -> None:
    session = await commit_held(stored, in_phase(a_session(), SessionState.ENDED))
    assert await stored.ledger.proofs([session.id, an_id()]) == {}
    await stored.ledger.charge_hold(session.id, 1)
    assert set(await stored.ledger.proofs([session.id, an_id()])) == {session.id}


OTHER_PAYER = "0x" + "5E" * 20


async def test_the_holds_of_live_sessions_are_listed_for_one_payer_and_for_all(stored: Stored) -> None:
    await show_wallets(stored, {PAYER.lower(): 10**9, OTHER_PAYER.lower(): 10**9})
    live = in_phase(a_session(**HERE), SessionState.LIVE)
    other = in_phase(a_session(**HERE, payer_address=OTHER_PAYER), SessionState.LIVE)
    for session in (live, other, a_session(**HERE), in_phase(a_session(**HERE), SessionState.ASSIGNED)):
        await commit_held(stored, session)
    mine, theirs = (LiveHold(each.id, each.terms.payer_address.lower(), HOLD) for each in (live, other))
    assert await stored.ledger.live_holds(PAYER) == [mine]
    assert set(await stored.ledger.live_holds()) == {mine, theirs}
    await stored.ledger.charge_hold(live.id, 5)
    assert await stored.ledger.live_holds(PAYER) == []
