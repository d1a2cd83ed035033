"""Events of media for a reader that is slow."""

import trio

from sightline.ports.video import MediaEvent, MediaKind
from sightline.video.media_events import MediaEventQueue


def watched(at_ms: int, *receiving: str) -> MediaEvent:
    viewers = ("consumer", "guest")
    return MediaEvent(
        ref="r", session_id="s", kind=MediaKind.WATCHED, at_ms=at_ms, viewers=viewers, receiving=receiving
    )


async def test_events_that_are_joined_keep_who_received_video_since_the_last_one_that_was_delivered() -> None:
    queue = MediaEventQueue()
    for event in (watched(1, "consumer"), watched(2, "guest"), watched(3)):
        queue.put(event)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.pump)
        async with queue.channel() as events:
            assert await events.receive() == watched(3, "consumer", "guest")
            queue.put(watched(4))
            assert await events.receive() == watched(4)
        nursery.cancel_scope.cancel()
