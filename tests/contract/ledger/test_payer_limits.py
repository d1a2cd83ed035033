"""The limits that a payer set on the settlement contract: refusals and wallets say what they leave, in every store."""

import pytest

from sightline.domain.units import DAY_MS, MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import SpendingLimits
from sightline.ports.store import Committed, HoldGrowth, HoldRequest, Rejected, RejectedWhy
from tests.contract.builders import PAYER, T0, a_session
from tests.contract.ledger.ledgers import a_block, an_application, apply
from tests.contract.test_store_writes import Stored, a_write, commit, followed, held

ON_DAY = T0 // DAY_MS


async def show(stored: Stored, limits: SpendingLimits | None, *, balance: int = 10**9, number: int = 1) -> None:
    """Apply a block with a reading of the payer's wallet."""
    seen = an_application(a_block(number), balance=balance, limits=limits)
    readings = tuple(replace(reading, address=PAYER) for reading in seen.readings)
    await apply(stored.ledger, replace(seen, readings=readings), now_ms=T0)


async def limited(stored: Stored, per_session: int, per_day: int, *, balance: int = 10**9, number: int = 1) -> None:
    """Let the chain show a wallet with these limits, of whose day 10 micro-USDC are spent."""
    limits = SpendingLimits(per_session=per_session, per_day=per_day, spent=10, day=ON_DAY)
    await show(stored, limits, balance=balance, number=number)


def a_hold(amount: int, **changes: object) -> HoldRequest:
    return HoldRequest(payer_address=PAYER, amount=MicroUsdc(amount), **{"is_enforced": True, **changes})  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(("per_session", "per_day", "left"), [(7, 100, 7), (100, 22, 7), (7, 9, 0)])
async def test_a_refused_session_says_what_the_limits_leave_for_one_and_creates_nothing(
    stored: Stored, per_session: int, per_day: int, left: int
) -> None:
    payer = await followed(stored)
    await commit(stored, a_session(), take_hold=a_hold(5, is_enforced=False))
    await limited(stored, per_session, per_day)
    write = a_write(stored, a_session(), take_hold=a_hold(8))
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.FUNDS, MicroUsdc(left))
    assert await stored.store.load_session(write.session.id) is None
    assert await held(stored, payer) == 5
    await limited(stored, 8, 23, number=2)
    assert isinstance(await stored.store.write_session(write), Committed)
    assert await held(stored, payer) == 13


async def test_a_refusal_for_lack_of_money_within_the_limits_names_no_limit(stored: Stored) -> None:
    await followed(stored)
    await limited(stored, 8, 100, balance=7)
    write = a_write(stored, a_session(), take_hold=a_hold(8))
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.FUNDS, free=MicroUsdc(7))


async def test_a_refusal_for_lack_of_money_says_what_other_holds_leave(stored: Stored) -> None:
    await followed(stored)
    await limited(stored, 8, 100, balance=7)
    session = await commit(stored, a_session(), take_hold=a_hold(2))
    write = a_write(stored, a_session(), take_hold=a_hold(6))
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.FUNDS, free=MicroUsdc(5))
    growth = HoldGrowth(payer_address=PAYER, amount=MicroUsdc(6), is_enforced=True)
    refused = await stored.store.write_session(a_write(stored, session, grow_hold=growth))
    assert refused == Rejected(RejectedWhy.FUNDS, free=MicroUsdc(7)), "the session's own hold counts as its own"


async def test_a_wallet_that_was_not_read_lately_is_refused_without_an_amount(stored: Stored) -> None:
    await followed(stored)
    await limited(stored, 8, 100)
    write = replace(a_write(stored, a_session(), take_hold=a_hold(6)), at_ms=T0 + 60_001)
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.FUNDS)


async def test_the_second_session_of_a_wallet_whose_limits_are_below_its_hold_says_so_too(stored: Stored) -> None:
    await followed(stored)
    await limited(stored, 7, 100)
    advisory = a_hold(8, is_enforced=False, unfunded_max=1)
    await commit(stored, a_session(), take_hold=advisory)
    write = a_write(stored, a_session(), take_hold=advisory)
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.UNFUNDED, MicroUsdc(7))


@pytest.mark.parametrize("is_trial", [False, True])
@pytest.mark.parametrize(("per_session", "per_day", "left"), [(7, 100, 7), (100, 22, 7), (7, 9, 0)])
async def test_a_refused_extension_says_what_the_limits_leave_for_the_whole_session(
    stored: Stored, per_session: int, per_day: int, left: int, is_trial: bool
) -> None:
    payer = await followed(stored)
    session = await commit(stored, a_session(), take_hold=a_hold(5, is_enforced=False))
    await commit(stored, a_session(), take_hold=a_hold(5, is_enforced=False))
    await limited(stored, per_session, per_day)
    growth = HoldGrowth(payer_address=PAYER, amount=MicroUsdc(3), is_enforced=True, is_trial=is_trial)
    write = a_write(stored, session, grow_hold=growth)
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.FUNDS, MicroUsdc(left))
    assert await held(stored, payer) == 10
    await limited(stored, 8, 23, number=2)
    await commit(stored, session, grow_hold=growth)
    assert await held(stored, payer) == (10 if is_trial else 13)


async def test_a_wallet_has_the_limits_of_its_last_reading(stored: Stored) -> None:
    payer = await followed(stored)
    for number in (1, 2):
        await limited(stored, 7 * number, 100, number=number)
        wallet = await stored.ledger.wallet(payer)
        assert wallet is not None
        assert wallet.limits == SpendingLimits(per_session=7 * number, per_day=100, spent=10, day=ON_DAY)
    await show(stored, None, number=3)
    wallet = await stored.ledger.wallet(payer)
    assert wallet is not None
    assert wallet.limits is None
