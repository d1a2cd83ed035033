"""Media facts on their way to the one reader: state changes are kept in order, FRAMES coalesce while it is slow."""

from collections import deque
from typing import final

import trio

from sightline.ports.video import MediaEvent, MediaKind


@final
class MediaEventQueue:
    """Between workers that must not wait and a reader that may be slow.

    Bounded by nature: FRAMES keep one entry per input, and an input cannot change its state more than a few
    times a second.
    """

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[MediaEvent](0)
        self._waiting: deque[MediaEvent] = deque()
        self._more = trio.Event()

    def put(self, event: MediaEvent) -> None:
        """Add a fact; never blocks."""
        if event.kind is MediaKind.FRAMES:
            for index, old in enumerate(self._waiting):
                if old.session_id == event.session_id and old.kind is MediaKind.FRAMES:
                    self._waiting[index] = event
                    return
        self._waiting.append(event)
        self._more.set()

    def channel(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """The reader's end."""
        return self._receive

    async def pump(self) -> None:
        """Hand facts over until cancelled; ends quietly when the reader has closed its end."""
        try:
            async with self._send:
                while True:
                    while self._waiting:
                        await self._send.send(self._waiting.popleft())
                    self._more = trio.Event()
                    await self._more.wait()
        except trio.BrokenResourceError:
            self._waiting.clear()
