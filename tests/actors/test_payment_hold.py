"""While the chain has payments that the database does not know, no new session begins; what has begun goes on."""

import pytest
import structlog
from structlog.testing import capture_logs

from sightline.actors.payment_hold import PaymentHold
from sightline.domain.refusal import Code
from sightline.domain.session.model import SessionState
from sightline.domain.settlement import UnknownPayments
from tests.actors.world import BOTH_SIDES, refusal_of

SOME = UnknownPayments(count=2, amount_micro=700)
NONE = UnknownPayments()


async def load(hold, *readings):
    for reading in readings:

        async def read(found=reading):
            return found

        await hold.load(read)


@pytest.mark.parametrize("step", ["create", "dispatch", "accept", "start"])
async def test_no_step_towards_a_charge_is_taken(world, step):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    if step == "start":
        await world.broker.dispatch(session, world.caller(consumer))
    steps = {
        "create": lambda: world.request(consumer),
        "dispatch": lambda: world.broker.dispatch(session, world.caller(consumer)),
        "accept": lambda: world.broker.accept(session, world.caller(operator), operator),
        "start": lambda: world.broker.start(session, world.caller(operator)),
    }
    await load(world.deps.payment_hold, SOME)
    refusal = await refusal_of(steps[step]())
    assert (refusal.code, refusal.detail, refusal.retry_after_s) == (Code.UNAVAILABLE, "payments:unknown", 60)
    assert "2 payments" in refusal.message
    await load(world.deps.payment_hold, NONE)
    await steps[step]()


async def test_a_live_session_goes_on_ends_and_is_settled(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await load(world.deps.payment_hold, SOME)
    await world.broker.end(session, world.caller(consumer), BOTH_SIDES)
    assert (await world.view(session, consumer)).state is SessionState.ENDED
    assert world.settlements == 1


async def test_a_request_can_be_withdrawn(world):
    consumer = await world.consumer()
    session = await world.request(consumer)
    await load(world.deps.payment_hold, SOME)
    await world.broker.cancel(session, world.caller(consumer))
    assert (await world.view(session, consumer)).state is SessionState.CANCELLED


async def test_a_repeated_call_gets_the_answer_of_the_first(world):
    consumer, _ = await world.consumer(), await world.operator()
    session = await world.request(consumer, key="create")
    answer = await world.broker.dispatch(session, world.caller(consumer, "dispatch"))
    await load(world.deps.payment_hold, SOME)
    assert await world.request(consumer, key="create") == session
    assert await world.broker.dispatch(session, world.caller(consumer, "dispatch")) == answer


async def test_no_session_begins_before_the_chain_was_read(world, autojump_clock):
    consumer = await world.consumer()
    hold = world.deps.payment_hold
    hold.is_chain_read = False
    answers = iter([False, False, True])

    async def is_read():
        refusal = await refusal_of(world.request(consumer))
        assert (refusal.code, refusal.detail) == (Code.UNAVAILABLE, "payments:unread")
        return next(answers)

    async def unknown():
        return SOME

    await hold.await_reading(is_read, unknown)
    assert (await refusal_of(world.request(consumer))).detail == "payments:unknown"
    await load(hold, NONE)
    await world.request(consumer)


async def test_an_error_is_logged_when_there_are_more_and_not_in_each_round():
    structlog.reset_defaults()  # the fixture of this folder keeps errors out of the log
    hold = PaymentHold()
    with capture_logs() as logged:
        await load(hold, NONE, SOME, SOME, UnknownPayments(count=3, amount_micro=701), SOME, NONE, NONE)
    assert [(line["event"], line["log_level"], line["payments"]) for line in logged] == [
        ("unknown_payments_found", "error", 2),
        ("unknown_payments_found", "error", 3),
        ("unknown_payments_adopted", "info", 2),
    ]
    assert "sightline reconcile" in logged[0]["advice"]
