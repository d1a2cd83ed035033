"""Closing drains what was taken in; whatever cannot finish is answered before the kernel is gone."""

from functools import partial

import pytest
import trio
import trio.testing

from sightline.actors.kernel import ActorStoppedError, Sent, TurnLostError


async def outcome_of(stage, message, outcomes, name, actor_id="a"):
    try:
        outcomes[name] = await stage.ref(actor_id).ask(message, timeout_s=600)
    except (ActorStoppedError, TurnLostError) as error:
        outcomes[name] = type(error)


async def slow(actor, envelope):
    await trio.sleep(3)
    envelope.reply(envelope.message, "slow but done")


async def test_what_was_taken_in_is_finished(stage, nursery):
    outcomes = {}
    async with trio.open_nursery() as asking:
        asking.start_soon(outcome_of, stage, slow, outcomes, "turn")
        await trio.testing.wait_all_tasks_blocked()
        asking.start_soon(outcome_of, stage, slow, outcomes, "queued")
        await trio.testing.wait_all_tasks_blocked()
        assert await stage.registry.close(drain_s=60)
    assert outcomes == {"turn": "slow but done", "queued": "slow but done"}


async def test_asks_are_refused_while_draining_and_actors_may_still_talk(stage, nursery):
    async def write_to_b(actor, envelope):
        await trio.sleep(3)
        actor.context.registry.ref("actor", "b").tell("from a")

    stage.ref().tell(write_to_b)
    await trio.testing.wait_all_tasks_blocked()
    async with trio.open_nursery() as closing:
        closing.start_soon(lambda: stage.registry.close(drain_s=60))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ActorStoppedError):
            await stage.ref().ask("too late", timeout_s=1)
    assert stage.heard["b"] == ["from a"]


async def test_what_does_not_finish_in_time_is_answered(stage, script):
    outcomes = {}
    async with trio.open_nursery() as asking:
        asking.start_soon(outcome_of, stage, script.keep(), outcomes, "held", "b")
        asking.start_soon(outcome_of, stage, script.wait_for(trio.Event()), outcomes, "turn")
        await trio.testing.wait_all_tasks_blocked()
        asking.start_soon(outcome_of, stage, "x", outcomes, "queued")
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        assert not await stage.registry.close(drain_s=5)
        assert trio.current_time() - started == pytest.approx(5)
    assert outcomes == {"turn": TurnLostError, "queued": ActorStoppedError, "held": TurnLostError}


async def test_a_kernel_that_is_cancelled_answers_everything(script, stage, nursery):
    outcomes = {}
    async with trio.open_nursery() as asking:
        asking.start_soon(outcome_of, stage, script.wait_for(trio.Event()), outcomes, "turn")
        await trio.testing.wait_all_tasks_blocked()
        asking.start_soon(outcome_of, stage, "x", outcomes, "queued")
        await trio.testing.wait_all_tasks_blocked()
        stage.registry._nursery.cancel_scope.cancel()
    assert outcomes == {"turn": TurnLostError, "queued": ActorStoppedError}
    assert stage.ref().tell("late") is Sent.STOPPED


async def test_helpers_are_waited_for_and_their_outcome_is_handled(stage):
    async def spawn(actor, envelope):
        actor.context.spawn(partial(trio.sleep, 3), on_value=lambda _: "came back", on_error=repr)

    stage.ref().tell(spawn)
    await trio.testing.wait_all_tasks_blocked()
    assert await stage.registry.close(drain_s=60)
    assert stage.heard["a"] == ["came back"]


async def test_timers_do_not_fire_any_more_while_draining(stage, nursery):
    stage.registry.timers.set(stage.ref("b"), stage.now_ms() + 1000, "due")
    stage.ref().tell(slow)
    await trio.testing.wait_all_tasks_blocked()
    await stage.registry.close(drain_s=60)
    assert stage.heard["b"] == []


async def test_an_idle_kernel_closes_at_once_and_closing_twice_is_fine(stage, script):
    await stage.ref().ask(script.add(1), timeout_s=1)
    started = trio.current_time()
    assert await stage.registry.close(drain_s=60)
    assert await stage.registry.close(drain_s=60)
    assert trio.current_time() == started


async def test_an_actor_in_back_off_does_not_hold_up_the_end_beyond_the_drain(stage, script):
    async def always(actor):
        raise ValueError

    await stage.ref().ask("x", timeout_s=1)
    stage.on_load.append(always)
    stage.ref().tell(script.crash())
    outcomes = {}
    async with trio.open_nursery() as asking:
        asking.start_soon(outcome_of, stage, "x", outcomes, "queued")
        await trio.testing.wait_all_tasks_blocked()
        await stage.registry.close(drain_s=0.01)
    assert outcomes == {"queued": ActorStoppedError}


async def test_crash_and_cancellation_in_one_turn_answer_once(stage, nursery):
    async def crash_when_cancelled(actor, envelope):
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError

    outcomes = {}
    async with trio.open_nursery() as asking:
        asking.start_soon(outcome_of, stage, crash_when_cancelled, outcomes, "turn")
        await trio.testing.wait_all_tasks_blocked()
        await stage.registry.close(drain_s=1)
    assert outcomes == {"turn": TurnLostError}
