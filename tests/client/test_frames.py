"""An agent does not take an old scene, or another publisher's picture, for the present one."""

import pytest

from sightline_client import AsyncSightline, FrameNotAvailableError
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
