"""A kernel that owns some actors: the others are refused, and actors that are given up stop."""

import random

import pytest
import trio

from sightline.actors.kernel import ActorElsewhereError, ActorStoppedError, KernelOptions, Registry, Sent, TurnLostError

from .conftest import Script, Stage


@pytest.fixture
def owned():
    return {"a", "b"}


@pytest.fixture
async def stage(nursery, owned):
    stage = Stage()
    stage.registry = Registry(
        clock=stage.clock, rng=random.Random(7), options=KernelOptions(detect_ask_cycles=True), owns=owned.__contains__
    )
    stage.registry.register("actor", stage.make)
    await nursery.start(stage.registry.run)
    return stage


async def test_an_actor_of_another_server_is_neither_asked_nor_told_nor_loaded(stage):
    with pytest.raises(ActorElsewhereError):
        await stage.ref("other").ask("hello", timeout_s=5)
    assert stage.ref("other").tell("hello") is Sent.ELSEWHERE
    with pytest.raises(ActorElsewhereError):
        await stage.registry.activate("actor", "other")
    assert not stage.lives
    assert stage.counts().dead_letters == 1
    assert await stage.ref("a").ask("hello", timeout_s=5) == "hello"


async def test_a_snapshot_is_not_read_from_the_moment_an_actor_is_given_up(stage, owned):
    await stage.ref().ask(Script.add(3), timeout_s=5)
    assert stage.peek() == 3
    owned.remove("a")
    assert stage.peek() is None
    assert dict(stage.registry.snapshots("actor")) == {}


async def test_actors_that_are_given_up_stop_and_the_others_stay(stage, owned):
    for actor_id in ("a", "b"):
        await stage.ref(actor_id).ask(Script.add(3), timeout_s=5)
    owned.remove("a")
    await stage.registry.stop_where(lambda actor_id: actor_id == "a", grace_s=1)
    with pytest.raises(ActorElsewhereError):
        await stage.ref("a").ask("hello", timeout_s=5)
    assert stage.peek("b") == 3
    owned.add("a")
    assert await stage.ref("a").ask(Script.add(1), timeout_s=5) == 4
    assert len(stage.lives["a"]) == 2
    assert len(stage.lives["b"]) == 1


async def test_a_turn_in_progress_ends_within_its_grace_and_what_waits_is_refused(stage, owned, nursery):
    entered, goes_on = trio.Event(), trio.Event()
    answers = []

    async def ask(message):
        try:
            answers.append(await stage.ref().ask(message, timeout_s=60))
        except ActorStoppedError as error:
            answers.append(type(error))

    nursery.start_soon(ask, Script.wait_for(goes_on, entered))
    await entered.wait()
    nursery.start_soon(ask, "behind it")
    await trio.testing.wait_all_tasks_blocked()
    owned.remove("a")
    nursery.start_soon(lambda: stage.registry.stop_where(lambda _: True, grace_s=10))
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [ActorStoppedError]
    goes_on.set()
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [ActorStoppedError, "waited"]


async def test_a_turn_that_outlasts_its_grace_is_cancelled_and_its_outcome_unknown(stage, owned, nursery):
    entered = trio.Event()
    errors = []

    async def ask():
        with pytest.raises(TurnLostError) as caught:
            await stage.ref().ask(Script.wait_for(trio.Event(), entered), timeout_s=60)
        errors.append(caught)

    nursery.start_soon(ask)
    await entered.wait()
    owned.remove("a")
    before = trio.current_time()
    await stage.registry.stop_where(lambda _: True, grace_s=2)
    assert trio.current_time() - before == 2
    await trio.testing.wait_all_tasks_blocked()
    assert len(errors) == 1
