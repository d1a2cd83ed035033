"""Work beside the turns: its outcome comes back as a message, unless the actor lost its memory meanwhile."""

import pytest
import trio
import trio.testing

from sightline.actors.kernel import TurnLostError
from sightline.domain.errors import StoreUnavailableError


def spawning(work, on_value=lambda value: ("value", value), on_error=lambda error: ("error", type(error))):
    async def message(actor, envelope):
        actor.context.spawn(work, on_value=on_value, on_error=on_error)
        envelope.reply(envelope.message, None)

    return message


async def give(value, delay_s=1):
    await trio.sleep(delay_s)
    return value


async def fail():
    await trio.sleep(1)
    raise StoreUnavailableError


async def test_the_value_of_a_helper_comes_back_as_a_message_and_turns_go_on_meanwhile(stage):
    await stage.ref().ask(spawning(lambda: give(7)), timeout_s=1)
    assert await stage.ref().ask("meanwhile", timeout_s=0.5) == "meanwhile"
    await trio.sleep(2)
    assert stage.heard["a"] == ["meanwhile", ("value", 7)]


async def test_the_error_of_a_helper_comes_back_as_a_message_and_is_no_crash(stage):
    await stage.ref().ask(spawning(fail), timeout_s=1)
    await trio.sleep(2)
    assert stage.heard["a"] == [("error", StoreUnavailableError)]
    assert stage.counts().restarts == 0


async def test_an_outcome_that_makes_no_message_sends_nothing(stage):
    await stage.ref().ask(spawning(lambda: give(7), on_value=lambda _: None), timeout_s=1)
    await trio.sleep(2)
    assert stage.heard["a"] == []


async def test_a_full_mailbox_does_not_lose_an_outcome(make_stage, script):
    stage = await make_stage(data_max=1)
    release, entered = trio.Event(), trio.Event()
    await stage.ref().ask(spawning(lambda: give(7)), timeout_s=1)
    stage.ref().tell(script.wait_for(release, entered))
    await entered.wait()
    stage.ref().tell("fills it")
    await trio.sleep(2)
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert stage.heard["a"] == ["fills it", ("value", 7)]


@pytest.mark.parametrize("how", ["crash", "stop"])
async def test_a_crash_or_a_stop_cancels_helpers_and_their_outcomes(stage, script, how):
    cancelled = trio.Event()

    async def work():
        try:
            await trio.sleep(60)
        finally:
            cancelled.set()

    await stage.ref().ask(spawning(work), timeout_s=1)
    await trio.testing.wait_all_tasks_blocked()
    if how == "crash":
        with pytest.raises(TurnLostError):
            await stage.ref().ask(script.crash(), timeout_s=1)
    else:
        await stage.registry.stop("actor", "a")
    await trio.testing.wait_all_tasks_blocked()
    assert cancelled.is_set()
    await trio.sleep(100)
    assert stage.heard["a"] == []
    assert stage.counts().helpers == 0


async def test_the_next_life_starts_when_the_helpers_of_the_last_one_have_ended(stage, script):
    gate = trio.Event()

    async def stubborn():
        with trio.CancelScope(shield=True):
            await gate.wait()
        return "from a former life"

    await stage.ref().ask(spawning(stubborn), timeout_s=1)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(TurnLostError):
        await stage.ref().ask(script.crash(), timeout_s=1)
    stage.ref().tell("new life")
    await trio.sleep(9)
    assert len(stage.lives["a"]) == 1
    gate.set()
    await trio.sleep(9)
    assert stage.heard["a"] == ["new life"]


async def test_a_helper_that_cannot_even_say_what_went_wrong_hurts_nobody_else(stage):
    await stage.ref().ask(spawning(fail, on_error=lambda error: 1 / 0), timeout_s=1)
    await trio.sleep(2)
    assert await stage.ref().ask("alive", timeout_s=1) == "alive"
    assert stage.counts().helpers == 0


async def test_helpers_of_one_actor_are_bounded(make_stage):
    stage = await make_stage(helpers_max=2)
    for _ in range(2):
        await stage.ref().ask(spawning(lambda: give(1, 60)), timeout_s=1)
    with pytest.raises(TurnLostError):
        await stage.ref().ask(spawning(lambda: give(1, 60)), timeout_s=1)


async def test_many_helpers_at_once_all_come_back(stage):
    async def message(actor, envelope):
        for number in range(50):
            actor.context.spawn(lambda n=number: give(n, n / 10), on_value=lambda n: n, on_error=repr)

    stage.ref().tell(message)
    await trio.sleep(10)
    assert stage.heard["a"] == list(range(50))


async def test_an_outcome_whose_turn_failed_is_the_first_thing_the_next_life_handles(stage):
    handled = []

    async def outcome(actor, envelope):
        handled.append((actor, list(stage.heard["a"])))
        stage.ref().tell("behind")
        if len(handled) == 1:
            raise StoreUnavailableError

    await stage.ref().ask(spawning(lambda: give(outcome), on_value=lambda value: value), timeout_s=1)
    await trio.sleep(60)
    assert handled == [(life, []) for life in stage.lives["a"]]
    assert len(handled) == 2


async def test_an_outcome_that_waits_while_the_memory_is_lost_is_dropped(stage, script):
    release, entered = trio.Event(), trio.Event()

    async def wait_and_reload(actor, envelope):
        entered.set()
        await release.wait()
        raise StoreUnavailableError

    await stage.ref().ask(spawning(lambda: give(7)), timeout_s=1)
    async with trio.open_nursery() as asking:
        asking.start_soon(release_after, release, 3)
        with pytest.raises(StoreUnavailableError):
            await stage.ref().ask(wait_and_reload, timeout_s=9)
    await trio.sleep(5)
    assert stage.heard["a"] == []


async def release_after(event, delay_s):
    await trio.sleep(delay_s)
    event.set()
