"""Queue of media events for one reader. State changes keep their order; repeated events coalesce while it is slow."""

from collections import deque
from typing import Final, final

import trio

from sightline.domain.value import replace
from sightline.ports.video import MediaEvent, MediaKind

COALESCED: Final = frozenset({MediaKind.FRAMES, MediaKind.WATCHED})


@final
class MediaEventQueue:
    """Queue between workers, which must not block, and a reader, which may be slow.

    Its size is bounded: one entry of each repeated kind per input, and an input changes its state at most a few times
    a second.
    """

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[MediaEvent](0)
        self._waiting: deque[MediaEvent] = deque()
        self._more = trio.Event()

    def put(self, event: MediaEvent) -> None:
        """Add an event; never blocks."""
        if event.kind in COALESCED:
            for index, old in enumerate(self._waiting):
                if old.session_id == event.session_id and old.kind is event.kind:
                    # Who received video since the last event that was delivered; FRAMES has none.
                    receiving = tuple(dict.fromkeys((*old.receiving, *event.receiving)))
                    self._waiting[index] = replace(event, receiving=receiving)
                    return
        self._waiting.append(event)
        self._more.set()

    def channel(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """The reader's end."""
        return self._receive

    async def pump(self) -> None:
        """Deliver events until cancelled; returns when the reader has closed its end."""
        try:
            async with self._send:
                while True:
                    while self._waiting:
                        await self._send.send(self._waiting.popleft())
                    self._more = trio.Event()
                    await self._more.wait()
        except trio.BrokenResourceError:
            self._waiting.clear()
