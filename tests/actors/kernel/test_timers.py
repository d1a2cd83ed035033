"""Timers fire once, at their time, in order; what was re-set or cancelled is never delivered."""

import random

import pytest
import trio
import trio.testing

from sightline.actors.kernel import KernelOptions, Lane, TurnLostError


def set_timer(stage, delay_s, message="due", **named):
    stage.registry.timers.set(stage.ref(), stage.now_ms() + round(delay_s * 1000), message, **named)


async def test_a_timer_fires_once_at_its_time(stage):
    set_timer(stage, 10)
    assert len(stage.registry.timers) == 1
    await trio.sleep(9.99)
    assert stage.heard["a"] == []
    await trio.sleep(0.02)
    assert stage.heard["a"] == ["due"]
    await trio.sleep(100)
    assert stage.heard["a"] == ["due"]
    assert len(stage.registry.timers) == 0


async def test_a_timer_in_the_past_fires_now(stage):
    set_timer(stage, -10)
    await trio.testing.wait_all_tasks_blocked()
    assert stage.heard["a"] == ["due"]


async def test_timers_of_different_names_are_apart(stage):
    set_timer(stage, 1, "one", name="one")
    set_timer(stage, 2, "two", name="two")
    stage.registry.timers.cancel(stage.ref(), "one")
    await trio.sleep(3)
    assert stage.heard["a"] == ["two"]


async def test_setting_again_replaces_whether_later_or_earlier(stage):
    set_timer(stage, 10, "first")
    set_timer(stage, 20, "later")
    await trio.sleep(15)
    assert stage.heard["a"] == []
    set_timer(stage, 1, "earlier")
    await trio.sleep(1.01)
    assert stage.heard["a"] == ["earlier"]
    await trio.sleep(60)
    assert stage.heard["a"] == ["earlier"]


async def test_a_new_first_timer_wakes_the_driver_in_time(stage):
    set_timer(stage, 0.9, "far", name="far")
    await trio.sleep(0.1)
    set_timer(stage, 0.1, "near", name="near")
    await trio.sleep(0.11)
    assert stage.heard["a"] == ["near"]


async def test_timers_fire_in_the_order_of_their_due_times(stage):
    delays = list(range(1, 300))
    random.Random(3).shuffle(delays)
    for delay in delays:
        set_timer(stage, delay / 1000, delay, name=str(delay))
    await trio.sleep(1)
    assert stage.heard["a"] == sorted(delays)


async def test_pushing_a_deadline_out_does_not_grow_the_heap(stage):
    for actor in range(10):
        for _ in range(1000):
            stage.registry.timers.set(stage.ref(str(actor)), stage.now_ms() + 10_000, "stale")
            await trio.sleep(0.001)
    assert stage.registry.timers.heap_size == 10
    assert len(stage.registry.timers) == 10


async def test_setting_and_cancelling_for_ever_keeps_the_heap_small(stage):
    for number in range(10_000):
        set_timer(stage, 60 + number % 7)
        stage.registry.timers.cancel(stage.ref())
    assert len(stage.registry.timers) == 0
    assert stage.registry.timers.heap_size < 600


async def test_a_heartbeat_keeps_a_deadline_from_firing(stage):
    for _ in range(100):
        set_timer(stage, 10)
        await trio.sleep(2)
    assert stage.heard["a"] == []
    await trio.sleep(9)
    assert stage.heard["a"] == ["due"]


@pytest.mark.parametrize("act", ["cancel", "set again"])
async def test_a_fired_timer_whose_message_still_waits_is_dropped_when_it_no_longer_counts(stage, script, act):
    release, entered = trio.Event(), trio.Event()
    stage.ref().tell(script.wait_for(release, entered))
    await entered.wait()
    set_timer(stage, 1)
    await trio.sleep(2)
    assert stage.counts().depth == 1
    if act == "cancel":
        stage.registry.timers.cancel(stage.ref())
    else:
        set_timer(stage, 60, "second")
    release.set()
    await trio.sleep(50)
    assert stage.heard["a"] == []
    await trio.sleep(50)
    assert stage.heard["a"] == ([] if act == "cancel" else ["second"])


async def test_a_timer_waits_its_turn_behind_data_that_came_before(stage, script):
    release, entered = trio.Event(), trio.Event()
    stage.ref().tell(script.wait_for(release, entered))
    await entered.wait()
    set_timer(stage, 1, "stale", name="stale")
    set_timer(stage, 1, "end", name="end", lane=Lane.CONTROL)
    stage.ref().tell("heartbeat")
    await trio.sleep(2)
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert stage.heard["a"] == ["end", "heartbeat", "stale"]


async def test_a_full_mailbox_does_not_lose_a_timer(make_stage, script):
    stage = await make_stage(data_max=1, control_max=1)
    release, entered = trio.Event(), trio.Event()
    stage.ref().tell(script.wait_for(release, entered))
    await entered.wait()
    stage.ref().tell("data")
    set_timer(stage, 1)
    await trio.sleep(2)
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert stage.heard["a"] == ["data", "due"]


async def test_a_timer_outlives_passivation_and_wakes_the_actor(make_stage, script):
    stage = await make_stage(idle_s=20)
    await stage.ref().ask(script.add(1), timeout_s=1)
    set_timer(stage, 300)
    await trio.sleep(200)
    assert stage.counts().active == 0
    await trio.sleep(101)
    assert stage.heard["a"] == ["due"]


async def test_a_crash_cancels_the_timers_and_load_arms_them_again(stage, script):
    set_timer(stage, 10, "armed in memory only", name="lost")

    async def arm(actor):
        actor.context.timers.set(actor.context.ref, 1_700_000_020_000, "armed by load", name="durable")

    stage.on_load.append(arm)
    with pytest.raises(TurnLostError):
        await stage.ref().ask(script.crash(), timeout_s=1)
    await trio.sleep(30)
    assert stage.heard["a"] == ["armed by load"]


async def test_stopping_an_actor_cancels_its_timers(stage, script):
    await stage.ref().ask(script.add(1), timeout_s=1)
    set_timer(stage, 10)
    await stage.registry.stop("actor", "a")
    await trio.sleep(30)
    assert stage.heard["a"] == []
    assert len(stage.registry.timers) == 0


async def test_a_timer_for_a_parked_actor_becomes_a_dead_letter(make_stage, script):
    stage = await make_stage(restarts_max=0)
    stage.ref().tell(script.crash())
    await trio.testing.wait_all_tasks_blocked()
    before = stage.counts().dead_letters
    set_timer(stage, 1)
    await trio.sleep(2)
    assert stage.counts().dead_letters == before + 1
    assert len(stage.registry.timers) == 0


async def test_a_step_of_the_wall_clock_forward_is_noticed_within_the_check(make_stage):
    stage = await make_stage(kernel=KernelOptions(clock_check_s=1.0))
    set_timer(stage, 3600)
    await trio.sleep(5)
    stage.clock.offset_ms += 3_600_000
    await trio.sleep(1.01)
    assert stage.heard["a"] == ["due"]


async def test_a_step_of_the_wall_clock_backward_fires_by_wall_time_and_only_once(stage):
    set_timer(stage, 10)
    await trio.sleep(5)
    stage.clock.offset_ms -= 60_000
    await trio.sleep(64)
    assert stage.heard["a"] == []
    await trio.sleep(2)
    assert stage.heard["a"] == ["due"]


async def test_a_burst_of_timers_does_not_keep_other_tasks_waiting(stage):
    for number in range(5_000):
        stage.registry.timers.set(stage.ref(str(number)), stage.now_ms() + 1000, "due")
    turns = 0

    async def count_turns():
        nonlocal turns
        await trio.sleep(1)
        while sum(map(len, stage.heard.values())) < 5_000:
            turns += 1
            await trio.lowlevel.checkpoint()

    await count_turns()
    assert turns > 5_000 / 256 / 2


async def test_random_setting_and_cancelling_delivers_exactly_what_a_list_would(stage):
    rng = random.Random(11)
    expected = {}
    heard = []

    async def note(name, at):
        heard.append((name, at))

    for _ in range(2_000):
        name = str(rng.randrange(8))
        now = stage.now_ms()
        for other, at in list(expected.items()):
            if (other, at) in heard:
                assert at <= now
                del expected[other]
            else:
                assert at > now - 2, "a timer is at most a tick of the wall clock late"
        if rng.random() < 0.3:
            stage.registry.timers.cancel(stage.ref(), name)
            expected.pop(name, None)
        else:
            at = now + rng.randrange(1, 400)
            stage.registry.timers.set(stage.ref(), at, lambda a, e, n=name, t=at: note(n, t), name=name)
            expected[name] = at
        assert len(stage.registry.timers) == len(expected)
        await trio.sleep(rng.randrange(1, 100) / 1000)
        await trio.testing.wait_all_tasks_blocked()
    assert len(heard) == len(set(heard))
