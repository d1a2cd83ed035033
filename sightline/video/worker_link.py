"""Connection of the server to one worker process: start, requests, detection of its death."""

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias, final

import structlog
import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.video.ipc.framing import BrokenPipeMessageError, Decoder, Header, encode
from sightline.video.worker_template import WorkerTemplate

READ_BYTES: Final = 256 * 1024
STOP_S: Final = 3.0
"""How long a worker may take to close its peers before it is killed."""
SEND_S: Final = 5.0
"""A worker that does not read its socket for this long is replaced."""
log = structlog.get_logger()


OnEvents: TypeAlias = Callable[[list[list[object]], int], None]
"""Takes rows of session id, kind and instant, and how far the worker's clock is ahead of CLOCK_BOOTTIME."""


@final
class _Call:
    """A request in flight."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.reply: tuple[Header, bytes] | None = None


@final
class WorkerLink:
    """A running worker. Any task may send requests; answers arrive in any order."""

    def __init__(self, stream: trio.SocketStream, connections: socket.socket, pid: int, on_events: OnEvents) -> None:
        self._stream = stream
        self._connections = connections
        self._on_events = on_events
        self.pid = pid
        self.died = trio.Event()
        self._has_exited = False
        self._sending = trio.Lock()
        self._calls: dict[int, _Call] = {}
        self._next_id = 0

    async def read_all(self) -> None:
        """Deliver what the worker sends until it dies or is closed."""
        decoder = Decoder()
        try:
            with trio.CancelScope(shield=True):  # its end says that the worker has exited
                while data := await self._stream.receive_some(READ_BYTES):
                    for header, body in decoder.feed(bytes(data)):
                        self._deliver(header, body)
            self._has_exited = True
        except (trio.BrokenResourceError, trio.ClosedResourceError, BrokenPipeMessageError) as error:
            log.warning("media_worker_link_broken", pid=self.pid, error=repr(error))
        finally:
            self.died.set()
            for call in self._calls.values():
                call.done.set()
            self._calls.clear()

    def _deliver(self, header: Header, body: bytes) -> None:
        if "events" in header:
            self._on_events(header["events"], header["clock_offset_ms"])
            return
        call = self._calls.pop(header["id"], None)
        if call is not None:  # else its caller timed out or was cancelled
            call.reply = (header, body)
            call.done.set()

    async def ask(self, header: Header, body: bytes = b"", *, within_ms: int) -> tuple[Header, bytes]:
        """Send a request and wait for its answer.

        Raises:
            VideoUnavailableError: The worker died, failed, or did not answer in time.

        Cancellation: the worker still finishes the request; its answer is dropped.
        """
        if self.died.is_set():
            raise VideoUnavailableError("the media worker has died")
        self._next_id += 1
        call_id, call = self._next_id, _Call()
        self._calls[call_id] = call
        message = encode({**header, "id": call_id}, body)
        try:
            with trio.move_on_after(within_ms / 1000):
                if not self._sending.locked():
                    message = self._write_now(message)
                if message:
                    await self._send(message)
                await call.done.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise VideoUnavailableError("the media worker has died") from error
        finally:
            self._calls.pop(call_id, None)
        if call.reply is None:
            raise VideoUnavailableError("the media worker did not answer")
        if not call.reply[0]["ok"]:
            raise VideoUnavailableError(f"the media worker failed: {call.reply[0]['error']}")
        return call.reply

    def pass_connection(self, descriptor: int, first_packet: bytes) -> None:
        """Give the worker a copy of a TCP connection; drops it if the worker is behind or dead."""
        with suppress(OSError):
            socket.send_fds(self._connections, [first_packet], [descriptor])

    async def end(self) -> None:
        """Let the worker close its peers and exit; kill it if it does not in time, or if the link is broken."""
        with trio.CancelScope(shield=True):
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                await self._stream.send_eof()
            with trio.move_on_after(STOP_S):
                await self.died.wait()
            if not self._has_exited:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                await self.died.wait()
            await self._stream.aclose()

    def _write_now(self, message: bytes) -> bytes:
        """Write without blocking; returns the unsent rest, which is nearly always empty."""
        try:
            return message[os.write(self._stream.socket.fileno(), message) :]
        except BlockingIOError:
            return message
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def _send(self, message: bytes) -> None:
        # A partial message would corrupt the stream, so a send that has begun is shielded from cancellation. In a
        # shield trio acquires a free lock without a checkpoint: no other task writes between the two parts.
        with trio.CancelScope(shield=True), trio.move_on_after(SEND_S) as sending:
            async with self._sending:
                await self._stream.send_all(message)
        if sending.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise VideoUnavailableError("the media worker does not read its requests")


@asynccontextmanager
async def start_worker(template: WorkerTemplate, on_events: OnEvents) -> AsyncIterator[WorkerLink]:
    """Run a worker process during the block. It exits when its socket closes, also if this process is killed.

    Raises:
        VideoUnavailableError: The operating system could not start it (descriptors, memory, processes).
    """
    try:
        ours, theirs = socket.socketpair()
        passing, taking = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError as error:
        raise VideoUnavailableError(f"a media worker cannot be started: {error}") from error
    passing.setblocking(False)
    with ours, theirs, passing, taking:
        pid = await template.fork(theirs, taking)
        theirs.close()
        taking.close()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        link = WorkerLink(stream, passing, pid, on_events)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.read_all)
            try:
                yield link
            finally:
                await link.end()
