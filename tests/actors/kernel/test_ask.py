"""An ask is answered exactly once, or its asker is told truthfully why not."""

import pytest
import trio

from sightline.actors.kernel import (
    ActorStoppedError,
    AskTimeoutError,
    Lane,
    OverloadedError,
    Sent,
    SupersededError,
)
from sightline.domain.errors import InvariantError


async def test_an_ask_gets_the_reply_and_the_state_is_published(stage, script):
    assert await stage.ref().ask(script.add(3), timeout_s=1) == 3
    assert stage.peek() == 3
    assert stage.registry.peek("actor", "a") == 3
    assert dict(stage.registry.snapshots("actor")) == {"a": 3}


async def test_an_actor_not_in_memory_publishes_nothing(stage):
    assert stage.peek() is None
    assert stage.registry.peek("actor", "a") is None


async def test_refs_to_one_actor_are_equal(stage):
    assert stage.ref("x") == stage.ref("x")
    assert len({stage.ref("x"), stage.ref("x"), stage.ref("y")}) == 2


async def test_messages_of_one_lane_are_handled_in_order(stage):
    for number in range(20):
        assert stage.ref().tell(number) is Sent.ADMITTED
    await stage.ref().ask("last", timeout_s=1)
    assert stage.heard["a"] == [*range(20), "last"]


async def test_turns_of_one_actor_never_overlap(stage, nursery):
    inside = 0
    worst = 0

    async def message(actor, envelope):
        nonlocal inside, worst
        inside += 1
        worst = max(worst, inside)
        await trio.sleep(0.1)
        inside -= 1
        envelope.reply(envelope.message, None)

    async with trio.open_nursery() as asking:
        for _ in range(10):
            asking.start_soon(lambda: stage.ref().ask(message, timeout_s=9))
    assert worst == 1


async def test_control_overtakes_data(stage, nursery, script):
    release, entered = trio.Event(), trio.Event()
    stage.ref().tell(script.wait_for(release, entered))
    await entered.wait()
    stage.ref().tell("data 1")
    stage.ref().tell("data 2")
    stage.ref().tell("control", lane=Lane.CONTROL)
    release.set()
    await stage.ref().ask("end", timeout_s=1)
    assert stage.heard["a"] == ["control", "data 1", "data 2", "end"]


async def test_an_ask_without_reply_times_out_at_its_deadline_and_not_before(stage, script):
    started = trio.current_time()
    with pytest.raises(AskTimeoutError):
        await stage.ref().ask(script.keep(), timeout_s=2)
    assert 2 <= trio.current_time() - started <= 2.021
    assert stage.counts().ask_timeouts == 1


async def test_a_later_ask_with_a_nearer_deadline_times_out_first(stage, script, nursery):
    order = []

    async def ask(name, timeout_s):
        with pytest.raises(AskTimeoutError):
            await stage.ref().ask(script.keep(), timeout_s=timeout_s)
        order.append(name)

    async with trio.open_nursery() as asking:
        asking.start_soon(ask, "long", 5)
        await trio.testing.wait_all_tasks_blocked()
        asking.start_soon(ask, "short", 1)
    assert order == ["short", "long"]


async def test_a_reply_after_the_timeout_goes_nowhere(stage, script):
    with pytest.raises(AskTimeoutError):
        await stage.ref().ask(script.keep(), timeout_s=1)
    await stage.ref().ask(script.answer_kept("late"), timeout_s=1)
    assert stage.counts().restarts == 0


async def test_an_ask_can_be_answered_in_a_later_turn(stage, script):
    answers = []

    async def ask():
        answers.append(await stage.ref().ask(script.keep(entered), timeout_s=9))

    entered = trio.Event()
    async with trio.open_nursery() as asking:
        asking.start_soon(ask)
        await entered.wait()
        await stage.ref().ask(script.answer_kept("at last"), timeout_s=1)
    assert answers == ["at last"]


async def test_answering_twice_is_a_bug_that_the_second_caller_sees(stage):
    caught = []

    async def message(actor, envelope):
        envelope.reply(envelope.message, 1)
        try:
            envelope.reply(envelope.message, 2)
        except InvariantError as error:
            caught.append(error)

    assert await stage.ref().ask(message, timeout_s=1) == 1
    await stage.ref().ask("next", timeout_s=1)
    assert len(caught) == 1


async def test_answering_a_tell_does_nothing(stage):
    async def message(actor, envelope):
        envelope.reply(envelope.message, 1)
        envelope.reply(envelope.message, 2)

    stage.ref().tell(message)
    await stage.ref().ask("next", timeout_s=1)
    assert stage.counts().restarts == 0


async def test_an_error_given_as_the_answer_reaches_the_asker_and_is_no_crash(stage):
    async def message(actor, envelope):
        envelope.fail(KeyError("no such thing"))

    with pytest.raises(KeyError):
        await stage.ref().ask(message, timeout_s=1)
    assert stage.counts().restarts == 0


async def test_a_cancelled_asker_leaves_its_message_to_have_its_turn(stage, script):
    release, entered = trio.Event(), trio.Event()
    stage.ref().tell(script.wait_for(release, entered))
    await entered.wait()
    with trio.move_on_after(1):
        await stage.ref().ask(script.add(5), timeout_s=60)
    release.set()
    assert await stage.ref().ask(script.add(0), timeout_s=1) == 5


async def test_an_ask_in_a_cancelled_scope_still_sends(stage, script):
    with trio.CancelScope() as scope:
        scope.cancel()
        await stage.ref().ask(script.add(5), timeout_s=60)
    assert scope.cancelled_caught
    assert await stage.ref().ask(script.add(0), timeout_s=1) == 5


async def test_a_message_whose_deadline_passed_in_the_mailbox_is_not_handled(stage, script):
    release, entered = trio.Event(), trio.Event()
    stage.ref().tell(script.wait_for(release, entered))
    await entered.wait()
    with pytest.raises(AskTimeoutError):
        await stage.ref().ask(script.add(5), timeout_s=1)
    release.set()
    assert await stage.ref().ask(script.add(0), timeout_s=1) == 0
    assert stage.counts().expired == 1


async def test_the_deadline_travels_with_the_message(stage):
    seen = []

    async def message(actor, envelope):
        seen.append(envelope.deadline - trio.current_time())
        envelope.reply(envelope.message, None)

    await stage.ref().ask(message, timeout_s=4)
    assert seen == [4]


class TestOverload:
    async def fill(self, stage, script, **message):
        release, entered = trio.Event(), trio.Event()
        stage.ref().tell(script.wait_for(release, entered))
        await entered.wait()
        for number in range(3):
            assert stage.ref().tell(number, **message) is Sent.ADMITTED
        return release

    async def test_a_full_data_lane_refuses_at_once(self, make_stage, script):
        stage = await make_stage(data_max=3)
        release = await self.fill(stage, script)
        assert stage.ref().tell("one too many") is Sent.OVERLOADED
        with pytest.raises(OverloadedError):
            await stage.ref().ask("one too many", timeout_s=1)
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.heard["a"] == [0, 1, 2]
        assert stage.counts().overloaded == 2

    async def test_control_is_admitted_while_data_is_refused(self, make_stage, script):
        stage = await make_stage(data_max=3)
        release = await self.fill(stage, script)
        assert stage.ref().tell("end", lane=Lane.CONTROL) is Sent.ADMITTED
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.heard["a"] == ["end", 0, 1, 2]

    async def test_the_control_lane_has_a_bound_too(self, make_stage, script):
        stage = await make_stage(data_max=3, control_max=1)
        await self.fill(stage, script)
        assert stage.ref().tell("a", lane=Lane.CONTROL) is Sent.ADMITTED
        assert stage.ref().tell("b", lane=Lane.CONTROL) is Sent.OVERLOADED

    async def test_a_full_lane_keeps_the_newest_of_a_key(self, make_stage, script):
        stage = await make_stage(data_max=3)
        release = await self.fill(stage, script, conflate_key="fix")
        assert stage.ref().tell(3, conflate_key="fix") is Sent.CONFLATED
        assert stage.ref().tell(4, conflate_key="other") is Sent.OVERLOADED
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.heard["a"] == [1, 2, 3]
        assert stage.counts().conflated == 1

    async def test_the_asker_of_a_superseded_message_is_told(self, make_stage, script):
        stage = await make_stage(data_max=1)
        release, entered = trio.Event(), trio.Event()
        stage.ref().tell(script.wait_for(release, entered))
        await entered.wait()
        outcomes = {}

        async def ask(number):
            try:
                outcomes[number] = await stage.ref().ask(number, timeout_s=9, conflate_key="fix")
            except SupersededError:
                outcomes[number] = "superseded"

        async with trio.open_nursery() as asking:
            asking.start_soon(ask, 1)
            await trio.testing.wait_all_tasks_blocked()
            asking.start_soon(ask, 2)
            await trio.testing.wait_all_tasks_blocked()
            release.set()
        assert outcomes == {1: "superseded", 2: 2}


async def test_a_registry_that_does_not_run_refuses(make_stage, script):
    stage = await make_stage()
    await stage.registry.close(drain_s=1)
    assert stage.ref().tell("x") is Sent.STOPPED
    with pytest.raises(ActorStoppedError):
        await stage.ref().ask("x", timeout_s=1)
    assert stage.counts().dead_letters == 1
