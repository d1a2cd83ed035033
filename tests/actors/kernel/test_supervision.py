"""A crash is answered honestly and followed by a load from the store; too many park the actor."""

from itertools import pairwise

import pytest
import trio
import trio.testing

from sightline.actors.kernel import (
    ActorParkedError,
    ActorStoppedError,
    ReloadRequestedError,
    Sent,
    TurnLostError,
)
from sightline.domain.errors import DependencyRefusedError, OutcomeUnknownError, StoreUnavailableError, UnavailableError


def failing(times, error):
    """A load hook that raises the first few times."""
    left = [times]

    async def hook(actor):
        if left[0]:
            left[0] -= 1
            raise error

    return hook


async def test_a_crash_answers_outcome_unknown_and_restarts_from_the_store(stage, script):
    await stage.ref().ask(script.add(3), timeout_s=1)

    async def spoil_memory_and_crash(actor, envelope):
        actor.value = 999
        raise ValueError

    with pytest.raises(TurnLostError):
        await stage.ref().ask(spoil_memory_and_crash, timeout_s=1)
    assert await stage.ref().ask(script.add(0), timeout_s=1) == 3
    assert len(stage.lives["a"]) == 2
    assert stage.counts().restarts == 1


async def test_a_crash_leaves_other_actors_alone(stage, script):
    await stage.ref("b").ask(script.add(1), timeout_s=1)
    with pytest.raises(TurnLostError):
        await stage.ref("a").ask(script.crash(), timeout_s=1)
    assert await stage.ref("b").ask(script.add(1), timeout_s=1) == 2
    assert len(stage.lives["b"]) == 1


async def test_what_waits_behind_a_crash_is_handled_after_the_restart(stage, script):
    stage.ref().tell(script.crash())
    for number in range(5):
        stage.ref().tell(number)
    await stage.ref().ask("last", timeout_s=9)
    assert stage.heard["a"] == [0, 1, 2, 3, 4, "last"]


async def test_asks_held_over_turns_are_answered_when_the_actor_crashes(stage, script):
    entered = trio.Event()
    lost = []

    async def ask():
        with pytest.raises(TurnLostError):
            await stage.ref().ask(script.keep(entered), timeout_s=60)
        lost.append(trio.current_time())

    async with trio.open_nursery() as asking:
        asking.start_soon(ask)
        await entered.wait()
        crashed_at = trio.current_time()
        stage.ref().tell(script.crash())
    assert lost == [crashed_at]


async def test_a_crash_after_the_reply_does_not_change_the_answer(stage):
    async def reply_and_crash(actor, envelope):
        envelope.reply(envelope.message, "done")
        raise ValueError

    assert await stage.ref().ask(reply_and_crash, timeout_s=1) == "done"
    assert await stage.ref().ask("again", timeout_s=1) == "again"


async def test_nothing_is_published_between_a_crash_and_the_load(stage, script):
    await stage.ref().ask(script.add(3), timeout_s=1)
    stage.ref().tell(script.crash())
    await trio.testing.wait_all_tasks_blocked()
    assert stage.peek() is None
    await stage.ref().ask(script.add(0), timeout_s=9)
    assert stage.peek() == 3


async def test_a_snapshot_that_raises_is_a_crash(stage):
    async def spoil(actor, envelope):
        actor.snapshot = lambda: 1 / 0

    with pytest.raises(TurnLostError):
        await stage.ref().ask(spoil, timeout_s=1)


async def test_errors_of_a_nursery_inside_a_turn_are_one_crash(stage, script):
    async def message(actor, envelope):
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep, 10)
            raise ValueError

    with pytest.raises(TurnLostError):
        await stage.ref().ask(message, timeout_s=1)
    assert stage.counts().restarts == 1


async def test_three_crashes_within_the_window_restart_and_the_fourth_parks(stage, script):
    for _ in range(3):
        with pytest.raises(TurnLostError):
            await stage.ref().ask(script.crash(), timeout_s=9)
    assert await stage.ref().ask("alive", timeout_s=9) == "alive"
    with pytest.raises(TurnLostError):
        await stage.ref().ask(script.crash(), timeout_s=9)
    with pytest.raises(ActorParkedError, match="ValueError: boom") as caught:
        await stage.ref().ask("anybody?", timeout_s=9)
    assert caught.value.reason == "ValueError: boom"
    assert stage.counts().parked == {"a": "ValueError: boom"}
    assert stage.ref().tell("x") is Sent.PARKED
    assert stage.peek() is None


async def test_crashes_far_apart_never_park(stage, script):
    for _ in range(10):
        with pytest.raises(TurnLostError):
            await stage.ref().ask(script.crash(), timeout_s=9)
        await trio.sleep(5)
    assert await stage.ref().ask("alive", timeout_s=9) == "alive"


async def test_what_waits_when_an_actor_is_parked_is_answered(make_stage, script):
    stage = await make_stage(restarts_max=0)
    outcomes = []

    async def ask():
        try:
            outcomes.append(await stage.ref().ask("x", timeout_s=60))
        except ActorParkedError:
            outcomes.append("parked")

    async with trio.open_nursery() as asking:
        stage.ref().tell(script.crash())
        asking.start_soon(ask)
        asking.start_soon(ask)
    assert outcomes == ["parked", "parked"]


async def test_a_parked_actor_works_again_after_revive(make_stage, script):
    stage = await make_stage(restarts_max=0)
    await stage.ref().ask(script.add(4), timeout_s=1)
    stage.ref().tell(script.crash())
    await trio.testing.wait_all_tasks_blocked()
    await stage.registry.revive("actor", "a")
    assert stage.peek() == 4
    assert await stage.ref().ask(script.add(1), timeout_s=1) == 5
    assert stage.counts().parked == {}


async def test_an_actor_that_was_parked_by_a_dependency_works_again_when_that_is_repaired(make_stage, script):
    """A table that was renamed for a moment: nobody has to revive the sessions that met it."""
    stage = await make_stage(restarts_max=0)
    await stage.ref().ask(script.add(4), timeout_s=1)
    refusals = iter([DependencyRefusedError("no such table")] * 3)

    async def refuse_for_a_while(actor):
        if (refusal := next(refusals, None)) is not None:
            raise refusal
        stage.on_load.clear()

    stage.on_load.append(refuse_for_a_while)
    with pytest.raises(TurnLostError):
        await stage.ref().ask(script.crash(DependencyRefusedError("no such table")), timeout_s=1)
    with pytest.raises(ActorParkedError):
        await stage.ref().ask("anybody?", timeout_s=1)
    with trio.fail_after(10 * 60):
        while stage.peek() is None:  # noqa: ASYNC110  the kernel loads it
            await trio.sleep(1)
    assert stage.peek() == 4
    assert stage.counts().parked == {}
    assert stage.on_load == []


async def test_an_actor_that_was_revived_is_not_loaded_a_second_time_when_its_pause_is_over(make_stage, script):
    stage = await make_stage(restarts_max=0, idle_s=3_600)
    stage.ref().tell(script.crash(DependencyRefusedError("no such table")))
    await trio.testing.wait_all_tasks_blocked()
    supervisor = stage.registry._supervisors["actor"]
    (parked,) = supervisor.cells.values()
    await stage.registry.revive("actor", "a")
    (revived,) = supervisor.cells.values()
    await trio.sleep(60)
    supervisor.retry_if_due(parked)  # as a sweep that began before the revival
    assert supervisor.cells["a"] is revived


async def test_an_actor_that_was_parked_by_a_bug_waits_for_a_person(make_stage, script):
    stage = await make_stage(restarts_max=0)
    stage.ref().tell(script.crash())
    await trio.sleep(3_600)
    assert stage.counts().parked == {"a": "ValueError: boom"}


async def test_restarts_wait_longer_each_time_and_jitter_comes_from_the_injected_source(make_stage, script):
    stage = await make_stage(backoff_first_ms=1000, restarts_max=3, restart_window_s=60)
    born = []

    async def note(actor):
        born.append(trio.current_time())

    stage.on_load.append(note)
    for _ in range(3):
        stage.ref().tell(script.crash())
    await stage.ref().ask("end", timeout_s=60)
    pauses = [later - earlier for earlier, later in pairwise(born)]
    assert [0.5 <= pause / 2**i < 1.5 for i, pause in enumerate(pauses)] == [True] * 3
    assert len({round(pause / 2**i, 6) for i, pause in enumerate(pauses)}) == 3


async def test_a_load_that_crashes_is_tried_again_and_the_message_is_not_lost(stage):
    stage.on_load.append(failing(2, ValueError()))
    assert await stage.ref().ask("hello", timeout_s=9) == "hello"


async def test_a_load_that_always_crashes_parks(stage):
    stage.on_load.append(failing(99, ValueError("bad row")))
    with pytest.raises(ActorParkedError, match="bad row"):
        await stage.ref().ask("hello", timeout_s=60)


async def test_a_store_that_is_away_at_activation_answers_at_once_and_leaves_nothing_behind(stage):
    stage.on_load.append(failing(1, StoreUnavailableError("away")))
    with pytest.raises(StoreUnavailableError):
        await stage.ref().ask("hello", timeout_s=9)
    assert stage.counts().active == 0
    assert await stage.ref().ask("hello", timeout_s=9) == "hello"


async def test_an_unknown_outcome_while_loading_is_a_plain_refusal(stage):
    stage.on_load.append(failing(1, OutcomeUnknownError("lost")))
    with pytest.raises(UnavailableError):
        await stage.ref().ask("hello", timeout_s=9)


async def test_a_store_that_is_away_never_parks_and_tells_survive_it(stage):
    stage.on_load.append(failing(20, StoreUnavailableError("away")))
    stage.ref().tell("kept")
    await trio.sleep(300)
    assert stage.heard["a"] == ["kept"]
    assert stage.counts().parked == {}
    assert stage.counts().load_failures == 20


async def test_asks_during_an_outage_are_answered_without_waiting_for_their_deadline(stage, script):
    await stage.ref().ask(script.add(1), timeout_s=1)
    stage.on_load.append(failing(3, StoreUnavailableError("away")))
    stage.ref().tell(script.crash())
    started = trio.current_time()
    with pytest.raises(StoreUnavailableError):
        await stage.ref().ask("x", timeout_s=60)
    assert trio.current_time() - started < 1
    await trio.sleep(60)
    assert await stage.ref().ask(script.add(0), timeout_s=9) == 1


class TestStoreErrorsInATurn:
    async def test_surely_not_written_reaches_the_asker_and_is_no_crash(self, stage, script):
        for _ in range(10):
            with pytest.raises(StoreUnavailableError):
                await stage.ref().ask(script.crash(StoreUnavailableError("away")), timeout_s=60)
        counts = stage.counts()
        assert (counts.restarts, counts.reloads, counts.parked) == (0, 10, {})

    async def test_an_unknown_commit_reaches_the_asker_and_the_next_turn_sees_what_is_true(self, stage, script):
        async def commit_whose_answer_is_lost(actor, envelope):
            actor.stage.disk["a"] = 42
            raise OutcomeUnknownError

        with pytest.raises(OutcomeUnknownError):
            await stage.ref().ask(commit_whose_answer_is_lost, timeout_s=1)
        assert await stage.ref().ask(script.add(0), timeout_s=1) == 42

    @pytest.mark.parametrize("error", [StoreUnavailableError("away"), OutcomeUnknownError("lost")])
    async def test_a_tell_is_handled_again_before_what_waits_behind_it(self, stage, error):
        seen = []

        async def flaky(actor, envelope):
            seen.append(len(actor.stage.heard["a"]))
            if len(seen) < 3:
                raise error

        stage.ref().tell(flaky)
        stage.ref().tell("behind")
        await stage.ref().ask("end", timeout_s=60)
        assert seen == [0, 0, 0]
        assert stage.heard["a"] == ["behind", "end"]

    async def test_a_tell_that_never_succeeds_becomes_a_dead_letter(self, make_stage, script):
        stage = await make_stage(tell_retries_max=2)
        stage.ref().tell(script.crash(StoreUnavailableError("away")))
        assert await stage.ref().ask("end", timeout_s=60) == "end"
        counts = stage.counts()
        assert (counts.dead_letters, counts.reloads) == (1, 3)

    async def test_a_version_conflict_is_retried_after_a_load_without_the_asker_noticing(self, stage, script):
        lives = []

        async def conflict_once(actor, envelope):
            lives.append(actor)
            if len(lives) == 1:
                raise ReloadRequestedError("version", retry=True)
            envelope.reply(envelope.message, "second try")

        assert await stage.ref().ask(conflict_once, timeout_s=1) == "second try"
        assert lives[0] is not lives[1]
        assert stage.counts().restarts == 0

    async def test_a_reload_without_retry_answers_outcome_unknown(self, stage, script):
        with pytest.raises(TurnLostError):
            await stage.ref().ask(script.crash(ReloadRequestedError("unsure")), timeout_s=1)
        assert stage.counts().restarts == 0

    async def test_a_conflict_that_never_ends_is_given_up(self, stage, script):
        with pytest.raises(TurnLostError):
            await stage.ref().ask(script.crash(ReloadRequestedError("version", retry=True)), timeout_s=60)
        assert stage.counts().reloads == 4

    async def test_a_real_crash_beside_a_store_error_counts_as_a_crash(self, stage, script):
        group = ExceptionGroup("two", [StoreUnavailableError("away"), ValueError()])
        with pytest.raises(TurnLostError):
            await stage.ref().ask(script.crash(group), timeout_s=1)
        assert stage.counts().restarts == 1


class TestStop:
    async def test_what_waits_is_answered_and_the_turn_in_progress_ends_well(self, stage, script):
        release, entered = trio.Event(), trio.Event()
        outcomes = []

        async def ask(message):
            try:
                outcomes.append(await stage.ref().ask(message, timeout_s=60))
            except ActorStoppedError:
                outcomes.append("stopped")

        async with trio.open_nursery() as asking:
            asking.start_soon(ask, script.wait_for(release, entered))
            await entered.wait()
            asking.start_soon(ask, "behind")
            await trio.testing.wait_all_tasks_blocked()
            asking.start_soon(stage.registry.stop, "actor", "a")
            await trio.testing.wait_all_tasks_blocked()
            assert stage.ref().tell("late") is Sent.STOPPED
            release.set()
        assert outcomes == ["stopped", "waited"]
        assert stage.counts().active == 0

    async def test_a_turn_that_does_not_end_is_cancelled_and_answered(self, stage, script):
        entered = trio.Event()
        async with trio.open_nursery() as asking:
            asking.start_soon(stop_after, stage, entered)
            with pytest.raises(TurnLostError):
                await stage.ref().ask(script.wait_for(trio.Event(), entered), timeout_s=60)
            assert trio.current_time() == pytest.approx(5)
        assert stage.counts().active == 0

    async def test_a_stopped_actor_comes_back_with_its_next_message(self, stage, script):
        await stage.ref().ask(script.add(2), timeout_s=1)
        await stage.registry.stop("actor", "a")
        assert stage.peek() is None
        assert await stage.ref().ask(script.add(0), timeout_s=1) == 2

    async def test_stopping_during_a_back_off_or_a_load_ends_it(self, stage):
        stage.on_load.append(failing(99, StoreUnavailableError("away")))
        stage.ref().tell("x")
        await trio.sleep(30)
        await stage.registry.stop("actor", "a")
        assert (stage.counts().active, stage.counts().running) == (0, 0)

    async def test_a_stop_whose_caller_is_cancelled_still_stops(self, stage, script):
        release, entered = trio.Event(), trio.Event()
        stage.ref().tell(script.wait_for(release, entered))
        await entered.wait()
        with trio.move_on_after(1):
            await stage.registry.stop("actor", "a")
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.counts().active == 0

    async def test_stopping_a_parked_or_an_unknown_actor_is_fine(self, make_stage, script):
        stage = await make_stage(restarts_max=0)
        await stage.registry.stop("actor", "nobody")
        stage.ref().tell(script.crash())
        await trio.testing.wait_all_tasks_blocked()
        await stage.registry.stop("actor", "a")
        assert stage.counts().parked == {}
        assert await stage.ref().ask("x", timeout_s=1) == "x"


class DriverError(Exception):
    """An error of a library, as a database driver raises it."""


@pytest.mark.parametrize("error", [OSError("disk full"), DriverError("read-only transaction")])
async def test_an_error_of_a_dependency_is_no_strike_and_the_actor_comes_back_by_itself(stage, script, error):
    await stage.ref().ask(script.add(3), timeout_s=1)
    for _ in range(20):
        with pytest.raises(TurnLostError):
            await stage.ref().ask(script.crash(error), timeout_s=60)
    assert await stage.ref().ask(script.add(0), timeout_s=60) == 3
    stage.on_load.append(failing(12, error))
    stage.ref().tell(script.crash(error))
    await trio.sleep(1)
    with pytest.raises(UnavailableError):
        await stage.ref().ask("while it is away", timeout_s=60)
    await trio.sleep(120)
    counts = stage.counts()
    assert (counts.parked, counts.retrying, counts.restarts) == ({}, {}, 0)
    assert stage.peek() == 3


async def test_stopping_one_actor_leaves_the_turns_of_others_alone(stage, script):
    """The stopped turn ends by itself, behind a shield, after it was cancelled: the next actor's turn goes on."""
    entered, release = trio.Event(), trio.Event()

    async def shielded(actor, envelope):
        entered.set()
        with trio.CancelScope(shield=True):
            await release.wait()
        stage.ref("b").tell(waits)

    async def waits(actor, envelope):
        await trio.sleep(1)
        stage.heard["b"].append("done")

    stage.ref("a").tell(shielded)
    await entered.wait()
    async with trio.open_nursery() as stopping:
        stopping.start_soon(stage.registry.stop, "actor", "a")
        await trio.sleep(stage.registry.options.stop_grace_s + 1)
        release.set()
    await trio.sleep(2)
    assert stage.heard["b"] == ["done"]
    assert stage.counts().dead_letters == 0


async def stop_after(stage, event):
    await event.wait()
    await stage.registry.stop("actor", "a")
