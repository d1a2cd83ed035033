"""A hold that grows: the rules of a new hold apply to the whole amount, in every store."""

import pytest

from sightline.domain.access import KeyLimits
from sightline.domain.session.model import Session
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.store import Committed, HoldGrowth, HoldRequest, KeySpending, Rejected, RejectedWhy
from tests.contract.builders import PAYER, a_session
from tests.contract.test_store_writes import Stored, a_write, commit, followed, held

KEY = "99999999-9999-4999-8999-999999999999"


async def a_held_session(stored: Stored, amount: int = 5) -> tuple[str, Session]:
    payer = await followed(stored)
    hold = HoldRequest(payer_address=PAYER, amount=MicroUsdc(amount), is_enforced=False)
    return payer, await commit(stored, a_session(), take_hold=hold)


def a_growth(amount: int = 3, **changes: object) -> HoldGrowth:
    return replace(HoldGrowth(payer_address=PAYER, amount=MicroUsdc(amount)), **changes)


async def test_a_hold_grows_with_its_session(stored: Stored) -> None:
    payer, session = await a_held_session(stored)
    await commit(stored, session, grow_hold=a_growth())
    assert await held(stored, payer) == 8


async def test_an_enforced_growth_that_the_funds_do_not_cover_leaves_nothing_of_the_step(stored: Stored) -> None:
    payer, session = await a_held_session(stored)
    write = a_write(stored, session, grow_hold=a_growth(is_enforced=True))
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.FUNDS)
    assert await held(stored, payer) == 5
    taken = a_write(stored, session, grow_hold=a_growth(is_enforced=True, is_taken=True))
    assert isinstance(await stored.store.write_session(taken), Committed), "the contract has it already"
    assert await held(stored, payer) == 8


async def test_a_trial_checks_and_grows_nothing(stored: Stored) -> None:
    payer, session = await a_held_session(stored)
    refused = a_write(stored, session, grow_hold=a_growth(is_enforced=True, is_trial=True))
    assert await stored.store.write_session(refused) == Rejected(RejectedWhy.FUNDS)
    await commit(stored, session, grow_hold=a_growth(is_trial=True))
    assert await held(stored, payer) == 5


@pytest.mark.parametrize("is_trial", [False, True])
async def test_the_limits_of_the_key_that_asks_count_the_whole_hold(stored: Stored, is_trial: bool) -> None:
    payer, session = await a_held_session(stored)
    limits = KeyLimits(per_session=MicroUsdc(8), per_day=MicroUsdc(8))
    growth = a_growth(4, spending=KeySpending(KEY, limits), is_trial=is_trial)
    write = a_write(stored, session, grow_hold=growth)
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.KEY_LIMIT, MicroUsdc(8))
    assert await held(stored, payer) == 5
    session = await commit(stored, session, grow_hold=replace(growth, amount=MicroUsdc(3)))
    assert await held(stored, payer) == (5 if is_trial else 8)


async def test_a_wallet_with_another_open_session_that_it_cannot_pay_does_not_extend(stored: Stored) -> None:
    payer, session = await a_held_session(stored)
    growth = a_growth(unfunded_max=1)
    session = await commit(stored, session, grow_hold=growth)
    other = HoldRequest(payer_address=PAYER, amount=MicroUsdc(1), is_enforced=False)
    await commit(stored, a_session(), take_hold=other)
    write = a_write(stored, session, grow_hold=growth)
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.UNFUNDED)
    assert await held(stored, payer) == 9
