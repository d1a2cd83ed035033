"""The bus on NATS: subjects, reconnects, and limits of what waits.

A frame is sent on the connection that existed when `send` returned, or not at all: when a connection ends, frames that
wait for it are discarded. What a NATS server still has from an earlier connection can arrive late: a frame whose serial
is not above the last one of its sender is dropped. So is every message that no server of this service has sealed for
this one (`cluster/bus/seal.py`): whoever reaches NATS can publish here.

Subjects: `sl.<cluster>.n.<incarnation>` for the frames to a server. Each names `sl.<cluster>.u.<sender>.<serial>` for
replies, where the NATS server answers if the receiver has no subscription.
"""

import random  # noqa: TID251  (jitter of reconnects only; seeded from the system's random source)
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, final

import structlog
import trio

from sightline.cluster.bus.nats_connection import FAILURES, Hello, NatsConnection, connect_to
from sightline.cluster.bus.nats_wire import NatsError, endpoint
from sightline.cluster.bus.seal import OVERHEAD, Seal
from sightline.domain.errors import BusUnavailableError
from sightline.domain.value import Value, hiding
from sightline.ports.bus import Arrival, BusStatistics, Interrupted, Received, Undelivered
from sightline.system.loops import Backoff

CONNECT_TIMEOUT_S: Final = 3.0
FLUSH_TIMEOUT_S: Final = 1.0
"""How long closing waits until the frames that were sent have reached the NATS server."""
RECONNECT: Final = Backoff(first_s=0.1, max_s=2.0)
LOG_EVERY_S: Final = 10.0
SERIAL_DIGITS_MAX: Final = 19
UNDELIVERED_BYTES: Final = 64
"""What an arrival without a frame counts in the queue of arrivals."""
MAX_PAYLOAD: Final = 1_048_576
"""What a NATS server accepts by default; used until the first connection."""

log = structlog.get_logger("sightline")


@final
class NatsOptions(Value, kw_only=True):
    """Where the NATS servers are, and who this server is."""

    servers: tuple[str, ...]
    """URLs of the servers of one NATS cluster. A user name and password, or a token, may be part of a URL."""
    cluster: str
    """Part of each subject: services with different names can share NATS servers."""
    incarnation: str
    key: bytes
    """Seals the frames: a secret of the servers of this service."""
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

    __repr__ = hiding("servers", "key")


@final
class NatsBus:
    """Implements `Bus`. Open it with `open_nats_bus`."""

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        prefix = f"sl.{options.cluster}"
        self._to_one = f"{prefix}.n."
        self._seal = Seal(options.key, options.incarnation)
        self._undelivered = f"{prefix}.u.{options.incarnation}."
        self._undelivered_prefix = self._undelivered.encode()
        self._random = random.Random()  # noqa: S311  jitter
        self._connection: NatsConnection | None = None
        self._connected = trio.Event()
        self._connections = 0
        self._frame_max = MAX_PAYLOAD
        self._reason = "no answer"
        self._serial = 0
        self._refused = 0
        self._lost = 0
        self._not_authentic = 0
        self._logged_at: dict[str, float] = {}
        self._arrivals: deque[tuple[Arrival, int]] = deque()
        self._arrived_bytes = 0
        self._arrived = trio.Event()
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._failure: Exception | None = None

    @property
    def is_connected(self) -> bool:
        """Whether a NATS server is connected."""
        return self._connection is not None

    @property
    def frame_max(self) -> int:
        """The limit of the NATS server without what the seal adds, in bytes."""
        return self._frame_max - OVERHEAD

    def statistics(self) -> BusStatistics:
        """Current counts."""
        return BusStatistics(
            is_connected=self.is_connected,
            connections=self._connections,
            frames_refused=self._refused,
            frames_lost=self._lost,
            frames_not_authentic=self._not_authentic,
        )

    def send(self, to: str, frame: bytes) -> int | None:
        """Send a frame to one server; None if it was surely not sent."""
        connection = self._connection
        if (
            connection is None
            or len(frame) > self.frame_max
            or connection.queued_bytes + len(frame) > self._options.outgoing_bytes_max
        ):
            self._refused += 1
            return None
        self._serial += 1
        sealed = self._seal.seal(to, self._serial, frame)
        connection.publish(self._to_one + to, f"{self._undelivered}{self._serial}", sealed)
        return self._serial

    async def receive(self) -> Arrival:
        """Wait for the next arrival.

        Raises:
            Exception: What ended `run`, which is a bug.

        Cancellation: no arrival is lost.
        """
        # Without a turn of the scheduler for each: what has arrived is soon received, and then this waits.
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._arrivals:
            if self._failure is not None:
                raise self._failure
            self._arrived = trio.Event()
            await self._arrived.wait()
        arrival, size = self._arrivals.popleft()
        self._arrived_bytes -= size
        return arrival

    async def wait_connected(self) -> None:
        """Wait for the first connection.

        Raises:
            BusUnavailableError: There was none within `start_timeout_s`.
        """
        with trio.move_on_after(self._options.start_timeout_s):
            await self._connected.wait()
            return
        raise BusUnavailableError(f"NATS was not reached: {self._reason}")

    async def run(self) -> None:
        """Connect, and connect again after each failure, until `close`."""
        try:
            with self._scope:
                await self._keep_connected()
        except Exception as error:  # noqa: BLE001  a bug, which `receive` raises
            self._failure = error
            self._arrived.set()
        finally:
            self._ended.set()

    async def close(self) -> None:
        """Wait until the NATS server has what was sent, for at most `FLUSH_TIMEOUT_S`, and disconnect."""
        if self._connection is not None:
            with trio.move_on_after(FLUSH_TIMEOUT_S), suppress(NatsError):
                await self._connection.flush()
        self._scope.cancel()
        await self._ended.wait()

    async def _keep_connected(self) -> None:
        failures = 0
        while True:
            for url in self._random.sample(self._options.servers, len(self._options.servers)):
                before = self._connections
                try:
                    await self._serve(url)
                except (*FAILURES, trio.TooSlowError) as error:
                    cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else None
                    reason = str(cause or error) or "no answer"
                    self._reason = f"{endpoint(url)}: {reason}"
                    was_connected = self._connections > before
                    event = "bus_disconnected" if was_connected else "bus_not_connected"
                    log.warning(event, server=endpoint(url), error=reason)
                if self._connections > before:
                    failures = 0
            failures += 1
            await trio.sleep(RECONNECT.wait_s(failures) * self._random.uniform(0.5, 1.0))

    async def _serve(self, url: str) -> None:
        """Connect to a server, and carry frames until the connection ends."""
        subjects = (f"{self._to_one}{self._options.incarnation}", f"{self._undelivered}*")
        name = f"sightline {self._options.incarnation}"
        hello = Hello(name=name, subjects=subjects, tls=self._options.tls, credentials=self._options.credentials)
        with trio.fail_after(CONNECT_TIMEOUT_S):
            connection = await connect_to(url, hello, self._take)
        self._connection = connection
        self._connections += 1
        self._frame_max = connection.frame_max
        log.info("bus_connected", server=endpoint(url))
        self._connected.set()
        try:
            await connection.run()
        finally:
            self._connection = None
            self._lost += connection.unsent
            self._arrive(Interrupted(), UNDELIVERED_BYTES)
            await connection.abort()

    def _take(self, subject: bytes, _reply: bytes, payload: bytes, is_undelivered: bool) -> None:
        """Take a message from anybody who reaches the NATS server. Must not raise."""
        arrival: Arrival
        serial = subject[len(self._undelivered_prefix) :]
        if is_undelivered and serial.isdigit() and len(serial) <= SERIAL_DIGITS_MAX:
            arrival, size = Undelivered(int(serial)), UNDELIVERED_BYTES
        elif (opened := self._seal.open(payload)) is not None:
            sender, frame = opened
            arrival, size = Received(frame, sender), len(payload)
        else:
            self._not_authentic += 1
            self._warn(
                "bus_frame_not_authentic", self._not_authentic, "no server of this service sent it, or it is late"
            )
            return
        if self._arrived_bytes + size > self._options.incoming_bytes_max:
            self._lost += 1
            self._warn("bus_frames_lost", self._lost, "frames arrive faster than they are handled")
        else:
            self._arrive(arrival, size)

    def _arrive(self, arrival: Arrival, size: int) -> None:
        self._arrived_bytes += size
        self._arrivals.append((arrival, size))
        self._arrived.set()

    def _warn(self, event: str, total: int, reason: str) -> None:
        """Log, at most once in `LOG_EVERY_S` for each event."""
        now = trio.current_time()
        if now - self._logged_at.get(event, float("-inf")) >= LOG_EVERY_S:
            self._logged_at[event] = now
            log.warning(event, total=total, reason=reason)


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
    # A system task is not cancelled with its opener: what was accepted is sent also if this context is cancelled.
    trio.lowlevel.spawn_system_task(bus.run)
    try:
        await bus.wait_connected()
        yield bus
    finally:
        with trio.CancelScope(shield=True):
            await bus.close()
