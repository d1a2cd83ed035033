"""An agent does not take an old scene, or another publisher's picture, for the present one."""

import logging
import re

import httpx2
import pytest
import trio

from sightline_client import AsyncSightline, Frame, FrameNotAvailableError, NotReachedError, RetryPolicy, SightlineError
from sightline_client._async.frames import SILENT_S, AsyncFrames
from sightline_client.models import Session
from tests.http.world import open_world


async def test_a_frame_older_than_two_seconds_is_refused_unless_the_caller_asks_for_it() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            world.video.show(session_id, 41)
            fresh = await sl.sessions.frame(session_id)
            assert fresh is not None
            assert (fresh.state, fresh.publisher_epoch) == ("live", 7)
            world.video.lose(session_id)
            world.clock.advance(3)
            with pytest.raises(FrameNotAvailableError, match="frame:stale"):
                await sl.sessions.frame(session_id)
            last = await sl.sessions.frame(session_id, max_age_ms=10_000)
            assert last is not None
            assert last.state == "lost"


async def test_a_loop_says_once_that_no_picture_comes_and_that_they_come_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sightline_client")
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            world.video.show(session_id, 1)
            loop = sl.sessions.frames(session_id)
            assert (await anext(loop)).sequence == 1
            world.video.lose(session_id)
            world.clock.advance(3)

            async def show_when_it_is_told() -> None:
                while not said():
                    await trio.lowlevel.checkpoint()
                world.clock.advance(10)  # now the server knows that the meter is paused
                while len(said()) < 2:
                    await trio.lowlevel.checkpoint()
                world.video.show(session_id, 2)

            def said() -> list[tuple[int, str]]:
                own = [each for each in caplog.records if each.name == "sightline_client"]
                return [(each.levelno, each.getMessage()) for each in own]

            nursery.start_soon(show_when_it_is_told)
            with trio.fail_after(30):
                assert (await anext(loop)).sequence == 2
        (lost, lost_text), paused, back = said()
    assert lost == logging.WARNING
    told = rf"No picture has come for \d+ s\. Session {session_id} is LIVE\. Waiting for the next one\."
    assert re.fullmatch(told, lost_text), lost_text
    pause = f"Session {session_id} is LIVE, paused (LOCATION_STALE): you are not charged meanwhile."
    assert paused == (logging.WARNING, pause)
    assert back == (logging.INFO, "Pictures come again.")


async def test_a_loop_goes_on_when_the_state_of_its_session_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            world.video.show(session_id, 1)
            picture = await anext(sl.sessions.frames(session_id))
        answers = iter((None, picture))

        async def fetch(_after: int | None) -> Frame | None:
            answer = next(answers)
            if answer is None:  # as a call that waits for a picture in vain
                await trio.sleep(SILENT_S)
            return answer

        async def read() -> Session:
            raise SightlineError("the server is away")

        with trio.fail_after(60):
            assert await anext(AsyncFrames(fetch, read, fps=None, width=None)) is picture
    assert re.search(r"No picture has come for \d+ s\. Waiting for the next one\.", caplog.text)


@pytest.mark.parametrize(("attempts", "outlives"), [(2, True), (1, False)], ids=["by default", "without retries"])
async def test_a_loop_outlives_a_server_that_is_away_for_longer_than_other_calls_wait(
    attempts: int, outlives: bool
) -> None:
    away = [True] * 30

    class Restarting(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if away:
                away.pop()
                raise httpx2.ConnectError("refused", request=request)
            return await super().handle_async_request(request)

    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        world.video.show(session_id, 1)
        retry = RetryPolicy(attempts=attempts, first_delay_s=0.001, longest_delay_s=0.001)
        async with httpx2.AsyncClient(transport=Restarting()) as http:
            sl = AsyncSightline(world.base_url, consumer.plaintext, http=http, retry=retry)
            with pytest.raises(NotReachedError):
                await sl.sessions.get(session_id)
            assert len(away) == 30 - attempts
            if outlives:
                assert (await anext(sl.sessions.frames(session_id))).sequence == 1
            else:
                with pytest.raises(NotReachedError):
                    await anext(sl.sessions.frames(session_id))
