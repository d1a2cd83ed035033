"""The server's end of one worker process: start it, ask it, notice that it died."""

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from subprocess import DEVNULL
from typing import Final, TypeAlias, final

import structlog
import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.video.ipc.framing import BrokenPipeMessageError, Decoder, Header, encode

READ_BYTES: Final = 256 * 1024
STOP_S: Final = 3.0
"""How long a worker may take to say goodbye to its peers."""
SEND_S: Final = 5.0
"""A worker that does not read for so long is stuck, and is replaced."""
log = structlog.get_logger()


OnFacts: TypeAlias = Callable[[list[list[object]], int], None]
"""Takes rows of session id, kind and instant, and how far the worker's clock is ahead of CLOCK_BOOTTIME."""


@final
class _Call:
    """One request that waits for its answer."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.reply: tuple[Header, bytes] | None = None


@final
class WorkerLink:
    """A running worker. Any task may ask; answers come in any order."""

    def __init__(self, stream: trio.SocketStream, pid: int, on_facts: OnFacts) -> None:
        self._stream = stream
        self._on_facts = on_facts
        self.pid = pid
        self.died = trio.Event()
        self._sending = trio.Lock()
        self._calls: dict[int, _Call] = {}
        self._next_id = 0

    async def read_all(self) -> None:
        """Deliver what the worker sends until it dies or is closed."""
        decoder = Decoder()
        try:
            while data := await self._stream.receive_some(READ_BYTES):
                for header, body in decoder.feed(bytes(data)):
                    self._deliver(header, body)
        except (trio.BrokenResourceError, trio.ClosedResourceError, BrokenPipeMessageError) as error:
            log.warning("media_worker_link_broken", pid=self.pid, error=repr(error))
        finally:
            self.died.set()
            for call in self._calls.values():
                call.done.set()
            self._calls.clear()

    def _deliver(self, header: Header, body: bytes) -> None:
        if "facts" in header:
            self._on_facts(header["facts"], header["clock_offset_ms"])
            return
        call = self._calls.pop(header["id"], None)
        if call is not None:  # else its caller gave up
            call.reply = (header, body)
            call.done.set()

    async def ask(self, header: Header, body: bytes = b"", *, within_ms: int) -> tuple[Header, bytes]:
        """Send a request and wait for its answer.

        Raises:
            VideoUnavailableError: The worker died, failed, or did not answer in time.

        Cancellation: the worker finishes the request all the same; its answer is dropped.
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

    def _write_now(self, message: bytes) -> bytes:
        """Write what the socket takes at once; returns what is left, nearly always nothing."""
        try:
            return message[os.write(self._stream.socket.fileno(), message) :]
        except BlockingIOError:
            return message
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def _send(self, message: bytes) -> None:
        # Half a message would garble every later one: once begun, a send is finished. Shielded, a free lock is taken
        # without letting anybody else run, so nobody gets in between what was written at once and the rest.
        with trio.CancelScope(shield=True), trio.move_on_after(SEND_S) as sending:
            async with self._sending:
                await self._stream.send_all(message)
        if sending.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise VideoUnavailableError("the media worker does not read its requests")


@asynccontextmanager
async def start_worker(on_facts: OnFacts) -> AsyncIterator[WorkerLink]:
    """Run a worker process for as long as the block; it dies with us, by kill -9 too, since its stdin closes.

    Raises:
        VideoUnavailableError: The operating system could not start it (descriptors, memory).
    """
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise VideoUnavailableError(f"a media worker cannot be started: {error}") from error
    with ours, theirs:
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "sightline.video.worker"],
                stdin=theirs.fileno(),
                stdout=DEVNULL,
                env=dict(os.environ),
            )
        except OSError as error:
            raise VideoUnavailableError(f"a media worker cannot be started: {error}") from error
        theirs.close()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        link = WorkerLink(stream, process.pid, on_facts)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.read_all)
                try:
                    yield link
                finally:
                    await stream.aclose()
        finally:
            with trio.CancelScope(shield=True):
                with trio.move_on_after(STOP_S):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
                    await process.wait()
