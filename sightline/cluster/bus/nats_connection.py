"""One connection to a NATS server."""

import json
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlsplit

import trio

from sightline.cluster.bus import nats_wire
from sightline.cluster.bus.nats_wire import NatsError, OnMessage, Parser
from sightline.domain.value import Value

PING_EVERY_S: Final = 1.0
ANSWER_WITHIN_S: Final = 2.0
"""A connection that does not answer a PING within this time is given up."""
RECEIVE_BYTES: Final = 65_536
_TICKS: Final = 20
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

FAILURES: Final = (NatsError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""How a connection fails."""


@final
class Hello(Value, kw_only=True):
    """What a client says when it connects."""

    name: str
    subjects: Sequence[str]
    """What it subscribes to."""
    tls: ssl.SSLContext | None
    """If set, or if the URL begins with tls://, a connection without TLS is refused."""
    credentials: Path | None


@final
class NatsConnection:
    """A connection to one NATS server. Open it with `connect_to`, then run it. It ends at its first failure."""

    def __init__(self, stream: trio.SocketStream, on_message: OnMessage) -> None:
        self._socket = stream
        self._stream: trio.abc.Stream = stream
        self._parser = Parser(on_message, self._take)
        self._queue: list[bytes] = []
        self._queue_filled = trio.Event()
        self._pings: deque[trio.Event] = deque()
        self._failure: Exception | None = None
        self.frame_max = 0
        """Maximum size of a payload in bytes."""
        self.queued_bytes = 0
        """Bytes that the kernel has not yet taken."""
        self.unsent = 0
        """Messages that the kernel has not yet been given."""

    def publish(self, subject: str, reply: str, payload: bytes) -> None:
        """Send a message with the next write; never blocks."""
        self.unsent += 1
        self._enqueue(nats_wire.publish(subject, reply, payload))

    async def run(self) -> None:
        """Send and receive until the connection ends.

        Raises:
            NatsError, OSError, trio.BrokenResourceError: Why it ended; see `FAILURES`.
        """
        async with trio.open_nursery() as nursery:

            async def until_failure(task: Callable[[], Awaitable[None]]) -> None:
                try:
                    await task()
                except FAILURES as error:
                    self._failure = self._failure or error
                    nursery.cancel_scope.cancel()

            for task in (self._receive, self._send, self._check):
                nursery.start_soon(until_failure, task)
        assert self._failure is not None
        raise self._failure

    async def flush(self) -> None:
        """Wait until the NATS server has what was published. `run` must be running.

        Raises:
            NatsError: It does not answer.
        """
        answered = trio.Event()
        self._pings.append(answered)
        self._enqueue(nats_wire.PING)
        # Counted in short waits: if this process is suspended, one wait ends, and then what has arrived is read.
        for _ in range(_TICKS):
            with trio.move_on_after(ANSWER_WITHIN_S / _TICKS):
                await answered.wait()
                return
        raise NatsError("the NATS server does not answer")

    async def abort(self) -> None:
        """Close the connection at once. What was not sent is discarded, in the kernel too."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        await trio.aclose_forcefully(self._stream)

    async def shake_hands(self, url: str, hello: Hello) -> None:
        """Log in and subscribe; see `connect_to`."""
        info = await self._read_info()
        self.frame_max = info["max_payload"]
        if hello.tls is not None or urlsplit(url).scheme == "tls" or info.get("tls_required"):
            await self._start_tls(url, hello.tls, info)
        parts = [nats_wire.connect(info, url, hello.name, hello.credentials)]
        parts += [nats_wire.subscribe(subject, number) for number, subject in enumerate(hello.subjects, 1)]
        await self._stream.send_all(b"".join(parts) + nats_wire.PING)
        answered = trio.Event()
        self._pings.append(answered)
        while not answered.is_set():
            await self._receive_once()

    async def _read_info(self) -> dict[str, Any]:
        line = b""
        while not line.endswith(b"\r\n"):
            data = await self._stream.receive_some(RECEIVE_BYTES)
            line += data
            if not data or len(line) > nats_wire.LINE_MAX:
                raise NatsError("the server does not speak the NATS protocol")
        info = _read_json(line.removeprefix(b"INFO "))
        # More bytes than this line can have been injected on the way, to be read as if they had come through TLS.
        is_alone = line.startswith(b"INFO ") and line.count(b"\n") == 1
        if not is_alone or not isinstance(info.get("max_payload"), int):
            raise NatsError("the server does not speak the NATS protocol")
        return info

    async def _start_tls(self, url: str, tls: ssl.SSLContext | None, info: dict[str, Any]) -> None:
        if not (info.get("tls_required") or info.get("tls_available")):
            raise NatsError("the NATS server does not offer TLS")
        host, _ = nats_wire.host_and_port(url)
        stream = trio.SSLStream(
            self._socket, tls or ssl.create_default_context(), server_hostname=host, https_compatible=True
        )
        await stream.do_handshake()
        self._stream = stream

    async def _receive(self) -> None:
        while True:
            await self._receive_once()

    async def _receive_once(self) -> None:
        data = await self._stream.receive_some(RECEIVE_BYTES)
        if not data:
            raise NatsError("the NATS server closed the connection")
        self._parser.feed(bytes(data))

    async def _send(self) -> None:
        while True:
            await self._queue_filled.wait()
            self._queue_filled = trio.Event()
            data = b"".join(self._queue)
            self._queue.clear()
            self.unsent = 0
            await self._stream.send_all(data)
            self.queued_bytes -= len(data)

    async def _check(self) -> None:
        while True:
            await trio.sleep(PING_EVERY_S)
            await self.flush()

    def _enqueue(self, data: bytes) -> None:
        self.queued_bytes += len(data)
        self._queue.append(data)
        self._queue_filled.set()

    def _take(self, operation: bytes, rest: bytes) -> None:
        match operation:
            case b"PING":
                self._enqueue(nats_wire.PONG)
            case b"PONG" if self._pings:
                self._pings.popleft().set()
            case b"INFO":
                if _read_json(rest).get("ldm"):
                    raise NatsError("the NATS server is ending")
            case b"-ERR":
                raise NatsError(rest.decode(errors="replace").strip("'"))
            case _:
                raise NatsError("the NATS server sent an operation that is not known")


async def connect_to(url: str, hello: Hello, on_message: OnMessage) -> NatsConnection:
    """Connect to a NATS server, log in and subscribe.

    Raises:
        NatsError, OSError, trio.BrokenResourceError: It did not work; see `FAILURES`.
    """
    stream = await trio.open_tcp_stream(*nats_wire.host_and_port(url))
    connection = NatsConnection(stream, on_message)
    try:
        await connection.shake_hands(url, hello)
    except BaseException:
        await connection.abort()
        raise
    return connection


def _read_json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise NatsError("the server does not speak the NATS protocol") from error
    if not isinstance(value, dict):
        raise NatsError("the server does not speak the NATS protocol")
    return value
