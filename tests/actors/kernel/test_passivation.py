"""An idle actor leaves memory; no message is lost on the way out or in."""

import gc
import weakref
from functools import partial

import trio
import trio.testing

from sightline.actors.kernel import KernelOptions


async def test_an_idle_actor_leaves_memory_and_comes_back_with_its_state(make_stage, script):
    stage = await make_stage(idle_s=60)
    await stage.ref().ask(script.add(3), timeout_s=1)
    await trio.sleep(50)
    assert stage.counts().active == 1
    await trio.sleep(25)
    assert stage.counts().active == 0
    assert stage.peek() is None
    assert await stage.ref().ask(script.add(0), timeout_s=1) == 3
    assert stage.counts().passivations == 1
    assert stage.counts().activations == 2


async def test_an_actor_that_left_is_freed_without_a_garbage_collection(make_stage, script):
    stage = await make_stage(idle_s=20)
    left = []
    gc.disable()
    try:
        await stage.ref().ask(script.call(lambda actor: left.append(weakref.ref(actor))), timeout_s=1)
        stage.lives.clear()
        await trio.sleep(40)
        assert stage.counts().active == 0
        assert [actor() for actor in left] == [None]
    finally:
        gc.enable()


async def test_a_busy_actor_and_one_that_objects_stay(make_stage, script):
    stage = await make_stage(idle_s=20)

    def object_to_it(actor):
        actor.passive = False

    await stage.ref("objects").ask(script.call(object_to_it), timeout_s=1)
    await stage.ref("owes").ask("x", timeout_s=1)
    stage.ref("works").tell(script.wait_for(trio.Event()))
    for _ in range(20):
        stage.ref("talks").tell("x")
        await trio.sleep(5)
    assert {cell for cell, _ in stage.registry.snapshots("actor")} >= {"objects", "talks", "works"}
    assert stage.peek("owes") is None


async def test_an_actor_that_cannot_say_whether_it_may_leave_stays(make_stage, script):
    stage = await make_stage(idle_s=1)

    def spoil(actor):
        actor.may_passivate = lambda: 1 / 0

    await stage.ref().ask(script.call(spoil), timeout_s=1)
    await trio.sleep(30)
    assert stage.counts().active == 1


async def test_an_actor_that_owes_an_answer_stays_until_it_is_given_up(make_stage, script):
    stage = await make_stage(idle_s=20)
    async with trio.open_nursery() as asking:

        async def ask():
            assert await stage.ref().ask(script.keep(), timeout_s=100) == "kept"

        asking.start_soon(ask)
        await trio.sleep(90)
        await stage.ref().ask(script.answer_kept("kept"), timeout_s=1)
    await trio.sleep(40)
    assert stage.counts().active == 0


async def test_an_ask_that_timed_out_while_held_does_not_keep_the_actor(make_stage, script):
    stage = await make_stage(idle_s=20)
    with trio.move_on_after(1):
        await stage.ref().ask(script.keep(), timeout_s=100)
    await trio.sleep(60)
    assert stage.counts().active == 0


async def test_an_actor_with_a_helper_under_way_stays(make_stage, script):
    stage = await make_stage(idle_s=20)

    def start(actor):
        actor.context.spawn(partial(trio.sleep, 100), on_value=lambda _: "done", on_error=repr)

    await stage.ref().ask(script.call(start), timeout_s=1)
    await trio.sleep(90)
    assert stage.counts().active == 1
    await trio.sleep(50)
    assert stage.heard["a"] == ["done"]
    assert stage.counts().active == 0


async def test_an_actor_may_ask_to_leave_at_once(stage, script):
    await stage.ref().ask(script.call(lambda actor: actor.context.passivate()), timeout_s=1)
    await trio.testing.wait_all_tasks_blocked()
    assert stage.counts().active == 0


async def test_leaving_at_once_waits_for_what_is_in_the_mailbox(stage, script):
    stage.ref().tell(script.call(lambda actor: actor.context.passivate()))
    for number in range(5):
        stage.ref().tell(number)
    await trio.testing.wait_all_tasks_blocked()
    assert stage.heard["a"] == [0, 1, 2, 3, 4]
    assert stage.counts().active == 0
    assert len(stage.lives["a"]) == 1


async def test_a_message_sent_at_every_instant_around_the_sweep_is_handled(make_stage):
    for offset in range(12):
        stage = await make_stage(kernel=KernelOptions(sweep_every_s=0.5), idle_s=0.3)
        sent = 0
        for step in range(200):
            stage.ref().tell(step)
            sent += 1
            await trio.sleep(0.9 + offset * 0.02 + (step % 3) * 0.05)
        assert stage.heard["a"] == list(range(sent))
        assert stage.counts().passivations > 0
        await stage.registry.close(drain_s=1)


async def test_a_message_sent_from_the_last_turn_of_a_leaving_actor_reaches_it_again(stage, script):
    async def leave_and_write_to_myself(actor, envelope):
        actor.context.passivate()
        actor.context.ref.tell("note to self")

    stage.ref().tell(leave_and_write_to_myself)
    await trio.testing.wait_all_tasks_blocked()
    assert stage.heard["a"] == ["note to self"]


async def test_activation_loads_without_a_message(stage):
    stage.disk["a"] = 9
    await stage.registry.activate("actor", "a")
    assert stage.registry.peek("actor", "a") == 9
    await stage.registry.activate("actor", "a")
    assert stage.registry.peek("actor", "a") == 9
    assert len(stage.lives["a"]) == 1


async def test_messages_that_come_during_the_load_wait_for_it(stage):
    gate = trio.Event()

    async def slow(actor):
        await gate.wait()

    stage.on_load.append(slow)
    answers = []

    async def ask(number):
        answers.append(await stage.ref().ask(number, timeout_s=60))

    async with trio.open_nursery() as asking:
        for number in range(3):
            asking.start_soon(ask, number)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        gate.set()
    assert sorted(answers) == [0, 1, 2]
    assert len(stage.lives["a"]) == 1


async def test_an_active_actor_is_one_task_and_a_passivated_one_is_none(make_stage):
    stage = await make_stage(idle_s=20)
    nursery = stage.registry._nursery
    before = nursery.child_tasks
    for number in range(100):
        await stage.registry.activate("actor", str(number))
    assert len(nursery.child_tasks - before) == 100
    await trio.sleep(60)
    assert nursery.child_tasks == before
