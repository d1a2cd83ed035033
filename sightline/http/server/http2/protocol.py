"""Limits of one HTTP/2 connection that Hypercorn does not have: resets, frames without content, unread responses."""

from collections.abc import Set as AbstractSet
from typing import Any, Final

import h2.errors
import h2.events
import structlog
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import Body, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import BUFFER_HIGH_WATER, BufferCompleteError, H2Protocol, StreamBuffer

from sightline.http.server.options import Limits

log = structlog.get_logger()

PIECE_BYTES: Final = 16 * 1024
"""A body is queued in pieces: a stream that is not read holds two of them, and not a copy of the body."""
HEADER_OVERHEAD_BYTES: Final = 64
"""Frame header and lengths of a request, beside its fields."""
SENT_PER_OVERHEAD: Final = 100
"""A reader of a download answers each frame of 16 KB with two WINDOW_UPDATE frames of 13 bytes."""
PROGRESS_BYTES: Final = 1_024
"""A stream that takes less than this in `write_s` counts as not read."""


class FrameBudget:
    """A token bucket of one connection."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = burst
        self._counted_at_s = trio.current_time()

    def take(self, amount: float) -> bool:
        """Count an amount, and return whether it is within the budget. A negative amount is given back."""
        now_s = trio.current_time()
        refilled = self._left + (now_s - self._counted_at_s) * self._per_s
        self._left = min(self._burst, min(self._burst, refilled) - amount)
        self._counted_at_s = now_s
        return self._left >= 0


class Unread:
    """Bytes of responses that are not sent yet, of all connections of a server. The application holds most of them."""

    def __init__(self, *, own_max: int, all_max: int) -> None:
        self._own_max, self._all_max = own_max, all_max
        self._all = 0

    def add(self, count: int, own: int) -> bool:
        """Count bytes; False if neither the connection nor all of them have room.

        Args:
            own: Bytes that wait on this connection already.
        """
        if own + count > self._own_max and self._all + count > self._all_max:
            return False
        self._all += count
        return True

    def remove(self, count: int) -> None:
        """Count bytes that were sent or given up."""
        self._all -= count


class WatchedBuffer(StreamBuffer):
    """The bytes of a response that wait for the peer's flow control window, and since when they do."""

    def __init__(self, event_class: Any) -> None:
        super().__init__(event_class)
        self._taken = 0
        self._since_s = trio.current_time()

    async def push(self, data: bytes) -> None:
        """Add bytes, and wait until there is room for more."""
        if self._complete:
            raise BufferCompleteError
        if not self.buffer:
            self._restart()
        self.buffer.extend(data)
        await self._is_empty.clear()
        # Hypercorn waits once, and its `pop` ends the wait although it took nothing: the whole body would be held.
        while len(self.buffer) >= BUFFER_HIGH_WATER:
            await self._paused.clear()
            await self._paused.wait()

    async def pop(self, max_length: int) -> bytes:
        """Take bytes for a frame."""
        data = bytes(await super().pop(max_length))
        if len(self.buffer) < BUFFER_HIGH_WATER:
            await self._paused.set()
        self._taken += len(data)
        if self._taken >= PROGRESS_BYTES:
            self._restart()
        return data

    def is_stalled(self, most_s: float) -> bool:
        """Whether bytes have waited for longer than this."""
        return bool(self.buffer) and trio.current_time() - self._since_s > most_s

    def _restart(self) -> None:
        self._taken, self._since_s = 0, trio.current_time()


class WatchedBuffers(dict[int, StreamBuffer]):
    """The buffers of a connection. Hypercorn's own class is replaced when it adds one, before it starts the request."""

    def __init__(self, event_class: Any) -> None:
        super().__init__()
        self._event_class = event_class

    def __setitem__(self, stream_id: int, buffer: StreamBuffer) -> None:
        super().__setitem__(stream_id, WatchedBuffer(self._event_class))


class GuardedProtocol(H2Protocol):
    """Closes a connection with GOAWAY and ENHANCE_YOUR_CALM in two cases, and ends streams that are not read.

    Streams are reset too often: a client that opens streams and resets them at once makes the server start a request
    for each, and the limit on concurrent streams never counts them (CVE-2023-44487). Streams that the server resets
    after an invalid frame count as well (CVE-2025-8671).

    Frames carry too little: PING, SETTINGS, WINDOW_UPDATE, PRIORITY and empty DATA frames cost the sender 9 to 17
    bytes each, and are parsed and often answered (CVE-2019-9512, 9515, 9513, 9518). Bytes that are neither header
    fields nor content count.
    """

    def __init__(self, limits: Limits, unread: Unread, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._unread = unread
        self._held: dict[int, int] = {}
        self._resets = FrameBudget(limits.h2_resets_max, limits.h2_resets_per_s)
        self._overhead = FrameBudget(limits.h2_overhead_bytes_max, limits.h2_overhead_bytes_per_s)
        self._write_s = limits.write_s
        self._last_stream = 0
        self._received_bytes = 0
        self.stream_buffers = WatchedBuffers(self.context.event_class)

    async def initiate(self, headers: Any = None, settings: bytes | None = None) -> None:
        """Send our settings, and watch for streams that are not read."""
        await super().initiate(headers, settings)
        self.task_group.spawn(self._end_stalled)

    async def handle(self, event: Event) -> None:
        """Take bytes of the peer."""
        if isinstance(event, RawData):
            self._received_bytes = len(event.data)
        await super().handle(event)

    async def stream_send(self, event: StreamEvent) -> None:
        """Take a part of a response."""
        if isinstance(event, Body) and len(event.data) > PIECE_BYTES:
            for start in range(0, len(event.data), PIECE_BYTES):
                await super().stream_send(Body(event.stream_id, event.data[start : start + PIECE_BYTES]))
        elif isinstance(event, Response) and not self._hold(event.stream_id, _content_length(event.headers)):
            await self._reset(event.stream_id, "http2_too_much_unread")
        else:
            await super().stream_send(event)

    def _hold(self, stream_id: int, size: int) -> bool:
        """Count a response until its stream ends; False if there is no room for it."""
        if not self._unread.add(size, sum(self._held.values())):
            return False
        self._held[stream_id] = size
        return True

    async def _close_stream(self, stream_id: int) -> None:
        self._unread.remove(self._held.pop(stream_id, 0))
        await super()._close_stream(stream_id)

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        resets = sum(isinstance(event, h2.events.StreamReset) for event in events)
        opened = {event.stream_id or 0 for event in events if isinstance(event, h2.events.RequestReceived)}
        overhead = self._received_bytes - _content_bytes(events, self.streams.keys() | opened)
        is_within = self._resets.take(resets) if resets else True
        if not self._overhead.take(overhead) or not is_within:
            log.info("http2_flood", resets=resets, overhead_bytes=overhead)
            # GOAWAY names the last stream whose request was started: the client can repeat the later ones safely.
            self.connection.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, last_stream_id=self._last_stream)
            await self._flush()
            await self.send(Closed())
            return
        self._last_stream = max(opened, default=self._last_stream)
        for event in events:
            if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                # The response was sent before the request was complete. Hypercorn would end the connection.
                self.connection.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            else:
                await super()._handle_events([event])
        await self._flush()

    async def _flush(self) -> None:
        data = self.connection.data_to_send()
        if data:
            self._overhead.take(-len(data) / SENT_PER_OVERHEAD)
            # A request that ends while it waits for the lock of the socket would take frames of other streams with it.
            with trio.CancelScope(shield=True):
                await self.send(RawData(data=data))

    async def _end_stalled(self) -> None:
        """Reset streams whose peer does not read: each holds a request, a task and a part of its response."""
        while not self.closed:
            await trio.sleep(self._write_s / 4)
            for stream_id, buffer in tuple(self.stream_buffers.items()):
                if isinstance(buffer, WatchedBuffer) and buffer.is_stalled(self._write_s):
                    await self._reset(stream_id, "http2_stream_not_read")

    async def _reset(self, stream_id: int, event: str) -> None:
        """End a stream and what runs for it."""
        log.info(event, stream=stream_id)
        self.connection.reset_stream(stream_id, h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
        if stream_id in self.stream_buffers:
            await self.stream_buffers[stream_id].close()
        await self._close_stream(stream_id)
        await self._window_updated(stream_id)
        await self._flush()


def _content_bytes(events: list[h2.events.Event], streams: AbstractSet[int]) -> int:
    """Bytes of header fields, and of content for these streams. What is sent for other ones is overhead."""
    content = 0
    for event in events:
        if isinstance(event, h2.events.DataReceived) and event.stream_id in streams:
            content += len(event.data or b"")
        elif isinstance(event, h2.events.RequestReceived):
            content += HEADER_OVERHEAD_BYTES + sum(len(name) + len(value) for name, value in event.headers or ())
    return content


def _content_length(headers: list[tuple[bytes, bytes]]) -> int:
    """Size of a response as its application says it; 0 for one without end."""
    return next((int(value) for name, value in headers if name == b"content-length" and value.isdigit()), 0)
