"""The counts are true, frozen, and cheap to keep."""

import pytest
import trio
import trio.testing

from sightline.actors.kernel import Lane, TurnLostError
from sightline.actors.kernel.statistics import Recorder
from sightline.domain.errors import StoreUnavailableError


async def test_waiting_and_handling_are_measured_apart(stage, script):
    async def slow(actor, envelope):
        await trio.sleep(1)
        envelope.reply(envelope.message, None)

    stage.ref().tell(slow)
    stage.ref().tell(slow)
    await stage.ref().ask(slow, timeout_s=9)
    counts = stage.counts()
    assert counts.handled == 3
    assert counts.wait.total_s == pytest.approx(0 + 1 + 2)
    assert counts.handle.total_s == pytest.approx(3)
    assert 1 <= counts.handle.quantile_s(0.5) <= 2.1


async def test_depth_and_age_of_what_waits_are_seen(stage, script):
    release, entered = trio.Event(), trio.Event()
    stage.ref().tell(script.wait_for(release, entered))
    await entered.wait()
    stage.ref().tell("x")
    await trio.sleep(2)
    stage.ref().tell("y", lane=Lane.CONTROL)
    counts = stage.counts()
    assert (counts.depth, counts.depth_max, counts.running) == (2, 2, 1)
    assert counts.oldest_wait_s == pytest.approx(2)


async def test_every_count_of_a_life_is_there(stage, script):
    with pytest.raises(TurnLostError):
        await stage.ref().ask(script.crash(), timeout_s=1)
    await stage.ref().ask("x", timeout_s=1)
    counts = stage.counts()
    assert (counts.activations, counts.restarts, counts.handled, counts.active) == (1, 1, 2, 1)


async def test_statistics_cannot_be_changed(stage):
    with pytest.raises(AttributeError, match="immutable"):
        stage.counts().handled = 7


def test_a_histogram_counts_by_powers_of_two_and_never_loses_one():
    recorder = Recorder()
    for duration_s in (-1, 0, 1e-6, 3e-6, 1e-3, 1, 1e9):
        recorder.add(duration_s)
    histogram = recorder.freeze()
    assert histogram.count == 7
    assert histogram.counts[0] == 2
    assert histogram.counts[-1] == 1
    assert histogram.quantile_s(0.0) == 1e-6


def test_an_empty_histogram_has_quantile_zero():
    assert Recorder().freeze().quantile_s(0.99) == 0.0


async def test_every_dead_letter_is_counted_and_a_flood_of_them_is_not_logged(make_stage, script):
    stage = await make_stage(restarts_max=0)
    logged = []
    stage.registry.log = type(
        "Log", (), {"warning": lambda self, event, **fields: logged.append(fields["total"]), "error": lambda *a, **k: 0}
    )()
    stage.ref().tell(script.crash())
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(1_000):
        stage.ref().tell("nobody hears this")
    assert stage.counts().dead_letters == 1_001
    assert len(logged) == 109


async def test_a_turn_that_waits_holds_up_no_actor_that_came_with_it(make_stage):
    stage = await make_stage()
    done = trio.Event()

    async def wait(actor, envelope):
        await done.wait()

    for number in range(200):
        stage.ref(f"waits {number}").tell(wait)
        stage.ref(f"goes on {number}").tell("heard")
    await trio.testing.wait_all_tasks_blocked()
    assert all(stage.heard[f"goes on {number}"] == ["heard"] for number in range(200))
    done.set()


async def test_an_endless_chain_of_turns_lets_other_tasks_run(make_stage):
    stage = await make_stage()
    is_over = False

    async def pass_on(actor, envelope):
        if not is_over:
            other = "b" if actor.context.id == "a" else "a"
            stage.ref(other).tell(pass_on)

    stage.ref("a").tell(pass_on)
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    is_over = True
    await trio.testing.wait_all_tasks_blocked()
    assert stage.counts().handled > 1


async def test_an_actor_that_retries_its_load_is_listed_until_it_loads(stage, script):
    async def is_away(actor):
        raise StoreUnavailableError("read-only")

    await stage.ref().ask(script.add(1), timeout_s=1)
    stage.on_load.append(is_away)
    stage.ref().tell(script.crash())
    await trio.sleep(60)
    assert stage.counts().retrying == {"a": "StoreUnavailableError: read-only"}
    assert stage.counts().parked == {}
    stage.on_load.clear()
    await trio.sleep(10)
    assert stage.counts().retrying == {}
    assert stage.peek() == 1
