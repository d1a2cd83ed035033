"""Where holds are enforced, a LIVE session ends before it has charged more than its payer can pay."""

import trio

from sightline.actors.deps import ActorLimits
from sightline.actors.service.look_up import LookUp
from sightline.actors.session.payer_funds import CHECK_EVERY_S, PayerFunds
from sightline.actors.types import NewExtension
from sightline.domain.session.messages import Party
from sightline.domain.units import usdc_text
from sightline.ports.ledger import BlockApplication, BlockRef, SpendingLimits, WalletReading
from tests.actors.world import WALLET, World, refusal_of


async def see_wallet(world, number, *, balance, allowance, limits=None):
    """Let the chain show this wallet; returns the report of it."""
    head = BlockRef(number=number, block_hash=f"0x{number:064x}", parent_hash=f"0x{number - 1:064x}")
    reading = WalletReading(
        address=WALLET, balance_micro=balance, allowance_micro=allowance, block_number=number, limits=limits
    )
    application = BlockApplication(
        headers=(head,),
        events=(),
        readings=(reading,),
        settled=(),
        head=head,
        confirmed_block=number,
        previous=await world.ledger.chain_head(),
    )
    await world.ledger.apply_blocks(application, now_ms=world.clock.now_ms())
    return WALLET


def funds_of(world):
    read_session = LookUp(world.registry, world.deps).find_session
    return PayerFunds(world.registry, world.ledger, read_session, world.clock, world.limits.session)


async def live_session(world):
    """Return a session of 600 s at 1,000 micro-USDC that has been filmed for 20 s, and its parties."""
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.film(session, operator, 20)
    return session, consumer, operator


async def test_a_session_ends_when_its_allowance_is_revoked_and_what_was_charged_is_settled(world):
    session, consumer, _ = await live_session(world)
    await funds_of(world).report(await see_wallet(world, 1, balance=10**9, allowance=0))
    await trio.sleep(0.1)
    view = await world.view(session, consumer)
    assert (view.state, view.end_reason) == ("ENDED", "FUNDS_LOST")
    assert view.charged == 20 * view.terms.rate
    record = await world.ledger.settlement(session)
    assert record.total == view.charged
    assert world.settlements == 1


async def test_a_session_ends_before_its_charge_passes_a_limit_per_session_that_the_payer_lowered(world):
    session, consumer, _ = await live_session(world)
    rate = (await world.stored(session)).terms.rate
    for number, (seconds, state) in enumerate([(50, "LIVE"), (40, "ENDED")], start=1):
        limits = SpendingLimits(per_session=seconds * rate, per_day=10**9, spent=0, day=0)
        await funds_of(world).report(await see_wallet(world, number, balance=10**9, allowance=10**9, limits=limits))
        await trio.sleep(0.1)
        assert (await world.stored(session)).state == state
    view = await world.view(session, consumer)
    assert (view.end_reason, view.charged) == ("FUNDS_LOST", 20 * rate)


async def test_a_session_ends_before_its_charge_passes_what_is_left_without_another_report(world):
    session, consumer, operator = await live_session(world)
    funds, sequence = funds_of(world), 10
    await funds.report(await see_wallet(world, 1, balance=80_000, allowance=10**9))
    for _ in range(5):
        sequence = await world.film(session, operator, int(CHECK_EVERY_S), sequence)
        await funds.check()
    await trio.sleep(0.1)
    view = await world.view(session, consumer)
    assert (view.state, view.end_reason) == ("ENDED", "FUNDS_LOST")
    assert view.clean_seconds >= 40
    assert view.charged <= 80_000


async def test_a_report_that_was_missed_while_the_server_was_down_is_made_up(world, nursery):
    session, consumer, _ = await live_session(world)
    world.kill()
    await see_wallet(world, 1, balance=0, allowance=10**9)
    await nursery.start(world.run)
    await funds_of(world).check()
    await trio.sleep(0.1)
    view = await world.view(session, consumer)
    assert (view.state, view.end_reason) == ("ENDED", "FUNDS_LOST")


async def test_sessions_of_payers_who_can_pay_or_whose_wallet_was_never_read_go_on(world):
    session, consumer, _ = await live_session(world)
    await funds_of(world).check()
    await funds_of(world).report(await see_wallet(world, 1, balance=10**9, allowance=70_000))
    await trio.sleep(0.1)
    assert (await world.view(session, consumer)).state == "LIVE"


async def test_charges_that_are_not_settled_yet_are_not_available_to_a_live_session(world):
    (ended, consumer, _), (session, _, _) = await live_session(world), await live_session(world)
    await world.broker.end(ended, world.caller(consumer), frozenset(Party))
    await trio.sleep(0.1)
    charged = (await world.stored(ended)).phase.charged
    rate = (await world.stored(session)).terms.rate
    for number, (balance, state) in enumerate([(charged + 50 * rate, "LIVE"), (charged + 40 * rate, "ENDED")], start=1):
        await funds_of(world).report(await see_wallet(world, number, balance=balance, allowance=10**9))
        await trio.sleep(0.1)
        assert (await world.stored(session)).state == state
    assert (await world.stored(session)).phase.reason == "FUNDS_LOST"


async def test_sessions_of_one_payer_share_its_funds_and_the_newest_ends_first(world):
    sessions = [(await live_session(world))[0] for _ in range(3)]
    rates = [(await world.stored(session)).terms.rate for session in sessions]
    # Each was filmed for 20 s and must be able to pay 30 s more.
    for number, (balance, states) in enumerate(
        [(50 * sum(rates), ["LIVE", "LIVE", "LIVE"]), (50 * sum(rates) - 10 * rates[2], ["LIVE", "LIVE", "ENDED"])],
        start=1,
    ):
        await funds_of(world).report(await see_wallet(world, number, balance=balance, allowance=10**9))
        await trio.sleep(0.1)
        assert [(await world.stored(session)).state for session in sessions] == states
    assert (await world.stored(sessions[2])).phase.reason == "FUNDS_LOST"


async def test_sessions_that_do_not_run_here_take_their_share(world):
    """As with sessions of other servers: what they need is read from their actors, and they are told."""
    sessions = [(await live_session(world))[0] for _ in range(3)]
    rates = [(await world.stored(session)).terms.rate for session in sessions]
    await world.registry.stop_where(lambda actor_id: actor_id in sessions[:2], grace_s=1)
    await funds_of(world).report(await see_wallet(world, 1, balance=50 * sum(rates) - 10 * rates[2], allowance=10**9))
    await trio.sleep(0.1)
    assert [(await world.stored(session)).state for session in sessions] == ["LIVE", "LIVE", "ENDED"]
    await world.registry.stop_where(lambda actor_id: actor_id in sessions[:2], grace_s=1)
    await funds_of(world).report(await see_wallet(world, 2, balance=0, allowance=10**9))
    await trio.sleep(0.1)
    assert [(await world.stored(session)).state for session in sessions] == ["ENDED"] * 3


async def test_a_refused_extension_names_what_it_may_cost_and_what_is_left_for_it(nursery):
    world = World(ActorLimits(unstarted_dispatches_max=0, dispatch_ack_ms=0, funds_policy="enforced"))
    await nursery.start(world.run)
    consumer, operator = await world.consumer(), await world.operator()
    await see_wallet(world, 1, balance=10**9, allowance=10**9)
    session = await world.live(consumer, operator, max_duration_s=60)
    terms = (await world.stored(session)).terms
    await see_wallet(world, 2, balance=10**9, allowance=terms.hold + 8 * terms.rate + 420)
    wanted = NewExtension(seconds=60)
    refusal = await refusal_of(world.broker.extend(session, world.caller(consumer), wanted))
    assert refusal.detail == "session:funds"
    left = usdc_text(8 * terms.rate + 420)
    assert f"The extension may cost {usdc_text(60 * terms.rate)} USDC" in refusal.message
    assert f"{left} USDC are not reserved, enough for 8 s." in refusal.message
    fitting = await world.broker.extend(session, world.caller(consumer), NewExtension(seconds=8))
    assert fitting.value.terms.max_duration_s == 68
