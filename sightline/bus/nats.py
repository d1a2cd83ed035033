"""The bus on NATS: a client of core NATS on an asyncio loop in a thread of its own, called from trio.

Frames cross between the threads through deques. The first frame wakes the other thread up; frames that follow before
it has run go with it.

A frame is sent on the connection that existed when `send` returned, or not at all: when a connection ends, frames that
wait for it are discarded. What a NATS server still has from an earlier connection can arrive late: a frame whose serial
is not above the last one of its sender is dropped.

Subjects: `sl.<cluster>.n.<incarnation>` for one server, `sl.<cluster>.all` for all servers. Each frame names a subject
for replies, which ends with its sender and its serial. For a frame to one server it is
`sl.<cluster>.u.<sender>.<serial>`, where the NATS server answers if the receiver has no subscription.
"""

import asyncio
import random  # noqa: TID251  (jitter of reconnects only; seeded from the system's random source)
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

import nats.errors
import structlog
import trio
import uvloop

from sightline.bus.client import NatsClient, endpoint
from sightline.domain.errors import BusUnavailableError
from sightline.ports.bus import Arrival, Interrupted, Received, Undelivered
from sightline.system.loops import Backoff

CONNECT_TIMEOUT_S: Final = 3.0
PING_EVERY_S: Final = 1.0
PING_TIMEOUT_S: Final = 2
"""A connection that does not answer within this time is given up."""
FLUSH_TIMEOUT_S: Final = 1
"""How long closing waits until the frames that were sent have reached the NATS server."""
RECONNECT: Final = Backoff(first_s=0.1, max_s=2.0)
WRITE_BYTES: Final = 256 * 1024
"""Frames are written together up to this size."""
LOG_EVERY_S: Final = 10.0
SENDERS_MAX: Final = 1_024
"""How many senders are remembered; the first ones are forgotten."""
UNDELIVERED_BYTES: Final = 64
"""What an arrival without a frame counts in the queue of arrivals."""
MAX_PAYLOAD: Final = 1_048_576
"""What a NATS server accepts by default; used until the first connection."""

log = structlog.get_logger("sightline")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NatsOptions:
    """Where the NATS servers are, and who this server is."""

    servers: tuple[str, ...] = field(repr=False)
    """URLs of the servers of one NATS cluster. A user name and password, or a token, may be part of a URL."""
    cluster: str
    """Part of each subject: services with different names can share NATS servers."""
    incarnation: str
    tls: ssl.SSLContext | None = None
    """If set, or if a URL begins with tls://, a connection without TLS is refused."""
    credentials: Path | None = None
    """File with a JWT and a key, as `nsc` writes it."""
    outgoing_bytes_max: int = 16 * 1024 * 1024
    """Frames that wait to be sent; further frames are refused."""
    incoming_bytes_max: int = 64 * 1024 * 1024
    """Frames that were received and wait for `receive`; further frames are lost."""
    start_timeout_s: float = 10.0
    """How long opening waits for the first connection."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BusStatistics:
    """A snapshot for metrics."""

    is_connected: bool
    connections: int
    """Connections since the start."""
    frames_refused: int
    """Frames that were not sent: not connected, too large, or too many waited."""
    frames_lost: int
    """Frames that were dropped: too many had been received, they were late, or their connection ended before."""


@final
@dataclass(slots=True)
class _Outgoing:
    """A frame on its way to the loop's thread."""

    connection: int
    subject: str
    reply: str
    frame: bytes


@final
class NatsBus:
    """Implements `Bus`. Open it with `open_nats_bus`."""

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        prefix = f"sl.{options.cluster}"
        self._to_one = f"{prefix}.n."
        self._to_all = f"{prefix}.all"
        self._undelivered = f"{prefix}.u.{options.incarnation}."
        self._undelivered_prefix = self._undelivered.encode()
        self._not_for_replies = f"{prefix}.b.{options.incarnation}."
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="sightline-bus", daemon=True)
        self._token = trio.lowlevel.current_trio_token()
        self._random = random.Random()  # noqa: S311  jitter
        # Written by the loop's thread, read by trio's; assignments are atomic.
        self._connection: int | None = None
        self._frame_max = MAX_PAYLOAD
        self._failure: Exception | None = None
        self._reason = "no answer"
        # Written by trio's thread.
        self._serial = 0
        self._refused = 0
        self._queued_bytes = 0
        self._outgoing: deque[_Outgoing] = deque()
        self._wake_due = False
        self._delivered_bytes = 0
        self._arrived = trio.Event()
        # Written by the loop's thread.
        self._taken_bytes = 0
        self._connections = 0
        self._lost = 0
        self._latest: dict[bytes, int] = {}
        self._lost_logged_at = float("-inf")
        self._arrived_bytes = 0
        self._arrivals: deque[tuple[Arrival, int]] = deque()
        self._delivery_due = False
        self._stopping = False
        self._ended = asyncio.Event()
        self._to_send = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether a NATS server is connected."""
        return self._connection is not None

    @property
    def frame_max(self) -> int:
        """The limit of the NATS server, in bytes."""
        return self._frame_max

    def statistics(self) -> BusStatistics:
        """Current counts. Each is exact; they are not taken at one instant."""
        return BusStatistics(
            is_connected=self.is_connected,
            connections=self._connections,
            frames_refused=self._refused,
            frames_lost=self._lost,
        )

    def send(self, to: str, frame: bytes) -> int | None:
        """Send a frame to one server; None if it was surely not sent."""
        return self._hand_over(self._to_one + to, self._undelivered, frame)

    def broadcast(self, frame: bytes) -> bool:
        """Send a frame to every other server; False if it was surely not sent."""
        return self._hand_over(self._to_all, self._not_for_replies, frame) is not None

    async def receive(self) -> Arrival:
        """Wait for the next arrival.

        Raises:
            Exception: What ended the loop's thread, which is a bug.

        Cancellation: no arrival is lost.
        """
        await trio.lowlevel.checkpoint()
        while not self._arrivals:
            if self._failure is not None:
                raise self._failure
            await self._arrived.wait()
        arrival, size = self._arrivals.popleft()
        self._delivered_bytes += size
        return arrival

    def _hand_over(self, subject: str, reply_prefix: str, frame: bytes) -> int | None:
        # Read once: the other thread writes it.
        connection = self._connection
        queued = self._queued_bytes - self._taken_bytes
        if connection is None or len(frame) > self._frame_max or queued + len(frame) > self._options.outgoing_bytes_max:
            self._refused += 1
            return None
        self._serial += 1
        self._queued_bytes += len(frame)
        self._outgoing.append(_Outgoing(connection, subject, f"{reply_prefix}{self._serial}", frame))
        if not self._wake_due:
            self._wake_due = True
            self._loop.call_soon_threadsafe(self._wake)
        return self._serial

    # --- on the loop's thread ---

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._keep_connected())
        except Exception as error:  # noqa: BLE001  a bug, which `receive` raises
            self._connection = None
            self._failure = error
            self._tell()
        finally:
            self._loop.close()

    def _wake(self) -> None:
        # Reset first: a frame that is appended from here on wakes the loop up again.
        self._wake_due = False
        self._to_send.set()

    async def _keep_connected(self) -> None:
        failures = 0
        while not self._stopping:
            for url in self._random.sample(self._options.servers, len(self._options.servers)):
                before = self._connections
                try:
                    await self._serve(url)
                except (OSError, TimeoutError, nats.errors.Error) as error:
                    reason = str(error) or type(error).__name__
                    self._reason = f"{endpoint(url)}: {reason}"
                    was_connected = self._connections > before
                    event = "bus_disconnected" if was_connected else "bus_not_connected"
                    log.warning(event, server=endpoint(url), error=reason)
                if self._connections > before:
                    failures = 0
            failures += 1
            await self._pause(RECONNECT.wait_s(failures) * self._random.uniform(0.5, 1.0))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    async def _serve(self, url: str) -> None:
        """Connect to a server, and carry frames until the connection ends."""
        self._ended.clear()
        if self._stopping:
            return
        errors: list[Exception] = []
        is_connecting = True

        async def on_error(error: Exception) -> None:
            if is_connecting:
                raise error  # otherwise the library tries again, forever
            errors.append(error)
            self._ended.set()

        async def on_end() -> None:
            self._ended.set()

        needs_tls = self._options.tls is not None or url.startswith("tls:")
        client = NatsClient(self._take, needs_tls=needs_tls)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await client.connect(
                    [url],
                    name=f"sightline {self._options.incarnation}",
                    allow_reconnect=False,
                    no_echo=True,
                    ping_interval=3_600,  # `_watch` checks the connection
                    error_cb=on_error,
                    closed_cb=on_end,
                    lame_duck_mode_cb=on_end,
                    tls=self._options.tls,
                    user_credentials=self._options.credentials,
                )
                for subject in (f"{self._to_one}{self._options.incarnation}", self._to_all, f"{self._undelivered}*"):
                    await client.subscribe(subject)
                await client.flush()
            is_connecting = False
            self._frame_max = client.max_payload
            self._connections += 1
            self._connection = self._connections
            log.info("bus_connected", server=endpoint(url))
            await self._carry(client)
        finally:
            if self._connection is not None:
                self._arrive(Interrupted(), UNDELIVERED_BYTES)
            self._connection = None
            self._discard()
            await client.abort()
        if errors:
            raise errors[-1]

    async def _carry(self, client: NatsClient) -> None:
        tasks = [asyncio.create_task(task) for task in (self._pump(client), self._watch(client), self._ended.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._stopping:
                self._connection = None
                await self._send_queued(client)
                await client.flush(FLUSH_TIMEOUT_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, client: NatsClient) -> None:
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            await self._send_queued(client)

    async def _send_queued(self, client: NatsClient) -> None:
        while self._outgoing:
            size = 0
            messages: list[tuple[str, str, bytes]] = []
            while self._outgoing and size < WRITE_BYTES:
                next_ = self._outgoing.popleft()
                size += len(next_.frame)
                if next_.connection == self._connections:
                    messages.append((next_.subject, next_.reply, next_.frame))
                else:
                    self._lost += 1
            await client.write(messages)
            self._taken_bytes += size

    async def _watch(self, client: NatsClient) -> None:
        """Raise TimeoutError when the server does not answer any more."""
        while True:
            await asyncio.sleep(PING_EVERY_S)
            await client.flush(PING_TIMEOUT_S)

    def _discard(self) -> None:
        while self._outgoing:
            self._taken_bytes += len(self._outgoing.popleft().frame)
            self._lost += 1

    def _take(self, subject: bytes, reply: bytes, payload: bytes, is_undelivered: bool) -> None:
        arrival: Arrival
        if is_undelivered:
            arrival, size = Undelivered(int(subject[len(self._undelivered_prefix) :])), UNDELIVERED_BYTES
        elif self._is_next(reply):
            arrival, size = Received(payload), len(payload)
        else:
            self._lost += 1
            return
        if self._arrived_bytes - self._delivered_bytes + size > self._options.incoming_bytes_max:
            self._lose()
            return
        self._arrive(arrival, size)

    def _arrive(self, arrival: Arrival, size: int) -> None:
        self._arrived_bytes += size
        self._arrivals.append((arrival, size))
        self._tell()

    def _is_next(self, reply: bytes) -> bool:
        """Whether a frame follows what was received from its sender; remember it."""
        parts = reply.rsplit(b".", 2)
        if len(parts) != 3 or not parts[2].isdigit():
            return False  # not sent by a server
        sender, serial = parts[1], int(parts[2])
        if serial <= self._latest.get(sender, 0):
            return False
        if sender not in self._latest and len(self._latest) == SENDERS_MAX:
            del self._latest[next(iter(self._latest))]
        self._latest[sender] = serial
        return True

    def _lose(self) -> None:
        self._lost += 1
        now = self._loop.time()
        if now - self._lost_logged_at >= LOG_EVERY_S:
            self._lost_logged_at = now
            log.warning("bus_frames_lost", total=self._lost, reason="frames arrive faster than they are handled")

    def _tell(self) -> None:
        if not self._delivery_due:
            self._delivery_due = True
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._deliver)

    # --- on trio's thread ---

    def _deliver(self) -> None:
        # Reset first: an arrival that is appended from here on schedules another delivery.
        self._delivery_due = False
        self._arrived.set()
        self._arrived = trio.Event()

    async def _open(self) -> None:
        self._thread.start()
        with trio.move_on_after(self._options.start_timeout_s):
            while not self.is_connected:  # noqa: ASYNC110 - once, at the start; the other thread sets no trio event
                await trio.sleep(0.02)
            return
        raise BusUnavailableError(f"NATS was not reached: {self._reason}")

    def _stop(self) -> None:
        def ask() -> None:
            self._stopping = True
            self._ended.set()

        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(ask)
        self._thread.join()


def client_tls(authority: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Settings of TLS connections to NATS servers.

    Args:
        authority: Certificates that sign the servers' certificates; None trusts those of the system.
        certificate: Certificate of this server, if the NATS servers ask for one.

    Raises:
        OSError: A file cannot be read; ssl.SSLError if its content is wrong.
    """
    context = ssl.create_default_context(cafile=authority)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


@asynccontextmanager
async def open_nats_bus(options: NatsOptions) -> AsyncIterator[NatsBus]:
    """Connect to NATS, and stay connected until the end of the context. Closing sends what was accepted.

    Raises:
        BusUnavailableError: No server was connected within `start_timeout_s`.
    """
    bus = NatsBus(options)
    try:
        await bus._open()  # noqa: SLF001  one module, two halves
        yield bus
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(bus._stop)  # noqa: SLF001
