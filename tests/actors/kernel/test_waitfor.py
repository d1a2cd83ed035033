"""In test mode actors that wait for each other in a circle get an error that names it."""

import pytest
import trio

from sightline.actors.kernel import AskCycleError, KernelOptions, TurnLostError
from sightline.actors.kernel.waitfor import turn_of


def asking(actor_id, message, caught):
    async def turn(actor, envelope):
        try:
            envelope.reply(
                envelope.message, await actor.context.registry.ref("actor", actor_id).ask(message, timeout_s=5)
            )
        except AskCycleError as error:
            caught.append(str(error))
            raise

    return turn


async def test_two_actors_that_ask_each_other_are_named(stage):
    caught = []
    with pytest.raises(TurnLostError):
        await stage.ref("a").ask(asking("b", asking("a", "x", caught), caught), timeout_s=9)
    assert caught == ["actor/b -> actor/a -> actor/b"]


async def test_an_actor_that_asks_itself_is_named(stage):
    caught = []
    with pytest.raises(TurnLostError):
        await stage.ref("a").ask(asking("a", "x", caught), timeout_s=9)
    assert caught == ["actor/a -> actor/a"]


async def test_a_chain_without_a_circle_is_fine_and_leaves_no_edges(stage):
    for _ in range(2):
        assert await stage.ref("a").ask(asking("b", asking("c", "x", []), []), timeout_s=9) == "x"
    assert stage.registry.wait_for._path(("actor", "a"), ("actor", "c")) is None


async def test_a_circle_of_three_through_a_nursery_inside_a_turn_is_found(stage):
    caught = []

    async def fan_out(actor, envelope):
        async with trio.open_nursery() as inner:
            for name in "bc":
                inner.start_soon(
                    lambda n=name: actor.context.registry.ref("actor", n).ask(asking("a", "x", caught), timeout_s=5)
                )

    with pytest.raises(TurnLostError):
        await stage.ref("a").ask(fan_out, timeout_s=9)
    assert caught
    assert set(caught) <= {"actor/b -> actor/a -> actor/b", "actor/c -> actor/a -> actor/c"}


async def test_a_helper_may_ask_its_own_actor_back(stage):
    async def turn(actor, envelope):
        ref = actor.context.ref
        actor.context.spawn(lambda: ref.ask("from helper", timeout_s=5), on_value=lambda v: v, on_error=repr)
        envelope.reply(envelope.message, None)

    await stage.ref().ask(turn, timeout_s=1)
    await trio.sleep(1)
    assert stage.heard["a"] == ["from helper", "from helper"]


async def test_outside_of_test_mode_nothing_is_tracked(make_stage):
    stage = await make_stage(kernel=KernelOptions())
    assert stage.registry.wait_for is None
    assert await stage.ref("a").ask(asking("b", "x", []), timeout_s=9) == "x"


async def test_a_task_outside_of_turns_leaves_no_edge(stage, script):
    assert turn_of.get() is None
    assert await stage.ref("a").ask(script.add(1), timeout_s=9) == 1
    assert stage.registry.wait_for._waits == {}
