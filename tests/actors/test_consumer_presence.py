"""The consumer lease: a LIVE session ends when its consumer side is not seen for as long as it asked for.

And what is kept of its pictures: when the first and the last one reached it.
"""

from functools import partial

import pytest
import trio

from sightline.domain.session.model import Delivery
from sightline.ports.video import MediaKind
from tests.actors.world import World


async def a_leased_session(world: World, **terms):
    """Consumer, operator and LIVE session, which is filmed from now on."""
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator, **{"consumer_lease_s": 15, **terms})
    return consumer, operator, session


async def film_on(world, session, operator, seconds, act=None, every_s=10):
    """Film for this long, and let somebody act now and again."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.film, session, operator, seconds)
        for _ in range(0, seconds, every_s):
            if act is not None:
                await act()
            await trio.sleep(every_s)


async def test_a_session_whose_consumer_left_ends_at_its_lease_and_is_charged_until_then(world):
    _, operator, session = await a_leased_session(world)
    await film_on(world, session, operator, 20)
    ended = (await world.stored(session)).phase
    assert ended.reason == "CONSUMER_LOST"
    assert ended.ended_at_ms == ended.started_at_ms + 15_000
    assert ended.clean_seconds == 15
    assert await world.availability(operator) == "ONLINE"


def calls_of(world, session, workspace):
    reads = world.broker.reads
    return {
        "read": partial(reads.read_session, session, workspace),
        "frame or viewer token": partial(reads.live_feed, session, workspace),
        "meter": partial(reads.meter, session, workspace),
    }


@pytest.mark.parametrize("name", ["read", "frame or viewer token", "meter"])
async def test_each_call_of_the_consumer_renews_the_lease(world, name):
    consumer, operator, session = await a_leased_session(world)
    await film_on(world, session, operator, 60, calls_of(world, session, consumer)[name])
    assert (await world.stored(session)).state == "LIVE"


@pytest.mark.parametrize("name", ["read", "frame or viewer token", "meter"])
async def test_calls_of_the_operator_do_not_renew_the_lease(world, name):
    _, operator, session = await a_leased_session(world)
    await world.film(session, operator, 14)
    await calls_of(world, session, operator)[name]()
    await trio.sleep(2)
    assert (await world.stored(session)).phase.reason == "CONSUMER_LOST"


async def test_an_open_event_stream_renews_the_lease_while_nothing_changes(world):
    consumer, _, session = await a_leased_session(world)
    async with world.broker.updates.watch_session(session, consumer) as updates:
        with trio.move_on_after(30):
            async for _update in updates:
                pass
        assert (await world.stored(session)).state == "LIVE"
    await trio.sleep(16)
    assert (await world.stored(session)).phase.reason == "CONSUMER_LOST"


@pytest.mark.parametrize("watcher", ["consumer", "operator"])
async def test_only_viewers_of_the_consumer_renew_the_lease(world, watcher):
    consumer, operator, session = await a_leased_session(world)

    async def watched():
        world.frames(session, MediaKind.WATCHED, viewers=(consumer if watcher == "consumer" else operator,))

    await film_on(world, session, operator, 60, watched, every_s=5)
    assert (await world.stored(session)).state == ("LIVE" if watcher == "consumer" else "ENDED")


async def test_a_session_without_a_lease_goes_on_without_its_consumer(world):
    _, operator, session = await a_leased_session(world, consumer_lease_s=None)
    await world.film(session, operator, 60)
    assert (await world.stored(session)).state == "LIVE"


async def test_a_restart_gives_the_consumer_its_whole_lease_again(world, nursery):
    consumer, operator, session = await a_leased_session(world)
    await world.film(session, operator, 10)
    world.kill()
    await trio.sleep(8)
    await nursery.start(world.run)
    await trio.sleep(14)
    await world.broker.reads.read_session(session, consumer)
    assert (await world.stored(session)).state == "LIVE"
    await trio.sleep(16)
    assert (await world.stored(session)).phase.reason == "CONSUMER_LOST"


async def test_a_session_is_told_of_its_consumer_at_most_once_a_second(world):
    consumer, operator, session = await a_leased_session(world)
    await world.film(session, operator, 4)

    def handled():
        return world.registry.statistics().kinds["session"].handled

    before = handled()
    for _ in range(100):
        await world.broker.reads.live_feed(session, consumer)
        await trio.sleep(0.01)
    assert handled() - before <= 2


# Pictures that reached the consumer.


async def a_watched_session(world: World):
    consumer, operator = await world.consumer(), await world.operator()
    return consumer, operator, await world.live(consumer, operator)


async def delivery_of(world, session, workspace):
    return (await world.view(session, workspace)).delivery


async def film_watched(world, session, operator, seconds, *receiving, sequence=0):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.film, session, operator, seconds, sequence)
        for _ in range(0, seconds, 3):
            world.frames(session, MediaKind.WATCHED, viewers=receiving, receiving=receiving)
            await trio.sleep(3)


async def test_video_that_arrives_at_the_consumer_is_kept_and_that_of_the_operator_is_not(world):
    consumer, operator, session = await a_watched_session(world)
    await film_watched(world, session, operator, 6, operator)
    assert await delivery_of(world, session, consumer) is None
    first_ms = world.clock.now_ms()
    await film_watched(world, session, operator, 6, operator, consumer, sequence=10)
    delivery = Delivery(first_ms, first_ms + 3_000, 3_000)
    for workspace in (consumer, operator):
        assert await delivery_of(world, session, workspace) == delivery
    await world.film(session, operator, 6, 20)
    await world.broker.end_by_platform(session)
    assert await delivery_of(world, session, consumer) == delivery
    assert (await world.stored(session)).delivery == delivery


async def test_a_viewer_that_is_connected_and_gets_nothing_has_no_picture(world):
    consumer, operator, session = await a_watched_session(world)
    await world.film(session, operator, 4)
    world.frames(session, MediaKind.WATCHED, viewers=(consumer,))
    await world.film(session, operator, 4, 10)
    assert await delivery_of(world, session, consumer) is None


async def test_frames_that_are_answered_to_the_consumer_count(world):
    consumer, operator, session = await a_watched_session(world)
    await world.film(session, operator, 4)
    for workspace in (operator, consumer):
        at_ms = world.clock.now_ms()
        for _ in range(2):  # the second one within the same second is not told
            feed = await world.broker.reads.live_feed(session, workspace)
            world.broker.reads.note_picture(feed, workspace)
            await trio.sleep(0.1)
    assert await delivery_of(world, session, consumer) == Delivery(at_ms, at_ms)


async def test_pictures_before_a_crash_are_known_after_it(world, nursery):
    consumer, operator, session = await a_watched_session(world)
    first_ms = world.clock.now_ms()
    await film_watched(world, session, operator, 12, consumer)
    before = await delivery_of(world, session, consumer)
    assert before == Delivery(first_ms, first_ms + 9_000, 3_000)
    world.kill()
    await nursery.start(world.run)
    assert await delivery_of(world, session, consumer) == before
