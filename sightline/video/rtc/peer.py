"""One remote WebRTC peer, as offerer or answerer."""

import asyncio
import ipaddress
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, final

import structlog
from aiortc.rtcicetransport import RTCIceCandidate
from aiortc.sdp import candidate_from_sdp

from sightline.domain.value import replace
from sightline.ports.clock import Clock
from sightline.video.options import NetOptions
from sightline.video.rtc.dtls import Certificate, RtcTransport
from sightline.video.rtc.ice import IceConnection, MediaSource, host_addresses, remote_candidate
from sightline.video.rtc.rtp import is_rtcp
from sightline.video.rtc.sdp import Description, LocalTransport, SdpError, Section
from sightline.video.rtc.udp import Run, one_datagram

CERTIFICATE_RENEW: Final = timedelta(days=10)
"""aiortc's certificates are valid for 30 days; a worker may run longer."""
PUBLISHED_PER_S: Final = 5_000
"""Datagrams of a publisher that are read in a second: 46 Mbit/s in packets of 1,150 bytes."""
FEEDBACK_PER_S: Final = 400
"""Datagrams of a viewer: reports, requests, checks."""
EARLY_MAX_PACKETS: Final = 256
RESOLVE_S: Final = 2.0
CANDIDATES_MAX: Final = 16
"""Remote candidates that are checked; each costs several datagrams to an address that the client names."""
CANDIDATE_LINES_MAX: Final = 64
"""Maximum number of remote candidate lines that are parsed."""
log = structlog.get_logger()


@final
class Certificates:
    """The DTLS certificate of this process, renewed before it expires. Generating one takes a millisecond."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._current = Certificate.generateCertificate()

    def current(self) -> Certificate:
        """A certificate that is valid for at least ten days."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC)
        if self._current.expires - now < CERTIFICATE_RENEW:
            self._current = Certificate.generateCertificate()
        return self._current


async def with_resolved_names(net: NetOptions) -> NetOptions:
    """The options with an address in place of each advertised host name.

    A name that cannot be resolved within RESOLVE_S is replaced by the bound address.
    """
    bound = list(net.bind_addresses) or host_addresses(ipv6=net.ipv6)
    pairs = zip(bound, net.advertised_addresses, strict=False)
    return replace(
        net, advertised_addresses=tuple([await resolved(name, address) or address for address, name in pairs])
    )


async def resolved(name: str, bound: str) -> str | None:
    """The address of an advertised host name, of the same kind as the bound one; None if there is none in RESOLVE_S."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(name))
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    try:
        async with asyncio.timeout(RESOLVE_S):
            rows = await asyncio.get_running_loop().getaddrinfo(name, None, family=family, type=socket.SOCK_DGRAM)
    except (OSError, TimeoutError) as error:
        log.warning("media_name_unresolved", advertised=name, error=repr(error))
        return None
    return str(rows[0][4][0])


def choose_addresses(net: NetOptions, prefer: str) -> list[tuple[str, str]]:
    """Pairs of (address to bind, address to advertise), best first.

    Args:
        prefer: The host by which the client reached our HTTP port. It goes first, because some clients (FFmpeg) try
            only the first candidate.
    """
    bind = list(net.bind_addresses) or host_addresses(ipv6=net.ipv6)
    advertised = list(net.advertised_addresses)
    pairs = [(address, advertised[index] if index < len(advertised) else address) for index, address in enumerate(bind)]
    if net.loopback and "127.0.0.1" not in bind:
        pairs.append(("127.0.0.1", "127.0.0.1"))
    host = "127.0.0.1" if prefer in ("localhost", "") else prefer
    return sorted(pairs, key=lambda pair: pair[1] != host)


def usable_candidate(line: str, *, private: bool) -> RTCIceCandidate | None:
    """A remote candidate that we send checks to: UDP with a literal address; None for others and malformed lines.

    Args:
        private: Also take loopback, link-local and private addresses.
    """
    try:
        candidate = candidate_from_sdp(line.removeprefix("a=").removeprefix("candidate:"))
        address = ipaddress.ip_address(candidate.ip)
    except (ValueError, AssertionError, IndexError):
        return None
    if candidate.protocol.lower() != "udp" or not 0 < candidate.port < 65536:
        return None
    if address.is_multicast or address.is_unspecified or not (private or address.is_global):
        return None
    candidate.component = 1
    return candidate


def transport_section(description: Description) -> Section:
    """The section that carries the transport of everything bundled.

    Raises:
        SdpError: Audio and video are not on one transport.
    """
    media = [section for section in description.sections if section.kind in ("audio", "video") and section.port]
    if not media:
        raise SdpError("every m-line is refused")
    if len(media) > 1 and not all(section.mid in description.bundle for section in media):
        raise SdpError("audio and video must be bundled on one transport (a=group:BUNDLE with both mids)")
    return next((section for section in media if section.mid in description.bundle[:1]), media[0])


@final
class RtcPeer:
    """Transport of one peer: handshakes, decrypted packets in, encrypted packets out, one notification at its end.

    Args:
        publishes: True if the peer sends media to us: its arriving media then proves that it is alive.
        on_packet: Takes (decrypted packet, is it RTCP, arrival in ms on the loop's clock). Runs in the socket's read
            callback: must be quick.
        on_connected: Called once when media can flow.
        on_closed: Called once with a reason.
    """

    def __init__(
        self,
        *,
        net: NetOptions,
        certificates: Certificates,
        prefer: str,
        controlling: bool,
        publishes: bool,
        on_packet: Callable[[bytes, bool, float], None],
        on_connected: Callable[[], None],
        on_closed: Callable[[str], None],
    ) -> None:
        self._net = net
        self._on_packet = on_packet
        self._on_connected = on_connected
        self._on_closed = on_closed
        connection = IceConnection(
            sockets=lambda: choose_addresses(self._net, prefer),
            ports=(net.udp_port_min, net.udp_port_max),
            tcp_port=net.tcp_port,
            ufrag_prefix=net.ufrag_prefix,
            datagrams_per_s=PUBLISHED_PER_S if publishes else FEEDBACK_PER_S,
            ice_controlling=controlling,
        )
        certificate = certificates.current()
        self._fingerprint = next(
            print_.value for print_ in certificate.getFingerprints() if print_.algorithm == "sha-256"
        )
        self._transport = RtcTransport(connection, certificate)
        self._connection = connection
        self._publishes = publishes
        self._candidates = self._candidate_lines = 0
        self._local: LocalTransport | None = None
        self._early: deque[tuple[bytes, MediaSource, float]] = deque(maxlen=EARLY_MAX_PACKETS)
        self._task: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.connected = False
        self.closed = False
        self.congested = False
        self._sealed: list[Run] = []
        """True while the socket's send buffer is full."""

    @property
    def ufrag(self) -> str:
        """Our ICE username fragment."""
        return self._connection.local_username

    def take_connection(self, sock: socket.socket, packet: bytes) -> bool:
        """Use a TCP connection whose first packet names this peer; False if the packet is not authentic."""
        return not self.closed and self._connection.take_connection(sock, packet)

    async def gather(self, setup: str) -> LocalTransport:
        """Bind sockets and describe our side.

        Raises:
            OSError: No socket could be bound (port range used up).
        """
        self._net = await with_resolved_names(self._net)
        await self._transport.gather()
        candidates = self._connection.local_candidates
        if not candidates:
            await self._transport.stop()
            raise OSError("no UDP port could be bound and no TCP port is open")
        self._local = LocalTransport(
            ufrag=self._connection.local_username,
            password=self._connection.local_password,
            fingerprint=self._fingerprint,
            setup=setup,
            candidates=tuple(candidate.to_sdp() for candidate in candidates),
        )
        return self._local

    async def restart_ice(self, *, ufrag: str, password: str, candidates: Sequence[str]) -> LocalTransport:
        """Take the peer's new ICE credentials and candidates, and describe our side with new credentials.

        Sockets, DTLS and SRTP stay. Media uses the present path until the peer nominates another.
        """
        assert self._local is not None
        self._connection.restart(ufrag=ufrag, password=password)
        self._local = replace(
            self._local, ufrag=self._connection.local_username, password=self._connection.local_password
        )
        self._candidates = self._candidate_lines = 0
        for line in candidates[:CANDIDATE_LINES_MAX]:
            await self.add_candidate(line)
        return self._local

    async def connect(self, remote: Description, *, role: str, handshake_ms: int) -> None:
        """Begin the handshakes in the background.

        Raises:
            SdpError: The remote description has no usable transport.
        """
        section = transport_section(remote)
        self._connection.media_sink = lambda data, source, arrived_ms: self._early.append((data, source, arrived_ms))
        for line in [line for one in remote.sections for line in one.candidates][:CANDIDATE_LINES_MAX]:
            await self.add_candidate(line)
        self._transport.on_state_change(self._state_changed)
        self._task = asyncio.create_task(self._handshake(section, remote.ice_lite, role, handshake_ms / 1000))

    async def add_candidate(self, line: str) -> None:
        """Take a candidate; unusable ones and those over the limit are dropped silently (RFC 9725, section 4.3.2)."""
        if self.closed or self._candidates >= CANDIDATES_MAX or self._candidate_lines >= CANDIDATE_LINES_MAX:
            return
        self._candidate_lines += 1
        candidate = usable_candidate(line, private=self._net.private_candidates)
        if candidate is None:
            return
        self._candidates += 1
        await self._connection.add_remote_candidate(
            remote_candidate(
                foundation=candidate.foundation,
                priority=candidate.priority,
                host=candidate.ip,
                port=candidate.port,
                kind=candidate.type,
            )
        )
        self._connection.check_new_pairs()

    async def _handshake(self, section: Section, ice_lite: bool, role: str, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._transport.start(
                    ufrag=section.ufrag,
                    password=section.password,
                    ice_lite=ice_lite,
                    fingerprints=section.fingerprints,
                    role=role,
                )
        except TimeoutError:
            self._handshake_failed(f"timed out after {timeout_s:g} s, {self._transport.failure}")
            return
        except Exception as error:  # noqa: BLE001  # any error that a peer provokes ends this peer only
            self._handshake_failed(repr(error))
            return
        if self._transport.state != "connected":
            self._handshake_failed(self._transport.failure)
        elif not self.closed:
            self.connected = True
            self._on_connected()
            self._connection.media_sink = self._take
            while self._early:
                self._take(*self._early.popleft())

    def _handshake_failed(self, reason: str) -> None:
        if not self.closed:
            log.warning("peer_handshake_failed", reason=reason)
            self.close(reason)

    def _state_changed(self) -> None:
        if self.connected and self._transport.state in ("closed", "failed"):
            self.close("peer has gone")

    def _take(self, data: bytes, source: MediaSource, arrived_ms: float) -> None:
        if self.closed:
            return
        rtcp = is_rtcp(data)
        clear = self._transport.unprotect(data, rtcp=rtcp)
        if clear is not None:
            self._connection.packet_authenticated(source, arrived_ms, is_media=self._publishes)
            self._on_packet(clear, rtcp, arrived_ms)

    def send(self, data: bytes, *, rtcp: bool = False) -> None:
        """Encrypt and send one packet; does nothing while not connected."""
        if self.connected and not self.closed:
            packet = one_datagram(self._transport.protect(data, rtcp=rtcp))
            self.congested = not self._connection.send_now([packet])

    def seal_frame(
        self, payloads: Sequence[bytes], *, payload_type: int, sequence: int, timestamp: int, ssrc: int
    ) -> None:
        """Encrypt the RTP packets of a frame for `send_sealed`; does nothing while not connected."""
        if self.connected and not self.closed:
            self._sealed += self._transport.protect_frame(
                payloads, payload_type=payload_type, sequence=sequence, timestamp=timestamp, ssrc=ssrc
            )

    def send_sealed(self) -> None:
        """Send what `seal_frame` encrypted, in few system calls."""
        sealed, self._sealed = self._sealed, []
        if sealed and not self.closed:
            self.congested = not self._connection.send_now(sealed)

    def close(self, reason: str) -> None:
        """Close the connection and call `on_closed` once. The sockets close in the background, see `wait_closed`."""
        if self.closed:
            return
        self.closed = True
        self._connection.media_sink = None
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self._stopping = asyncio.create_task(self._stop())
        self._on_closed(reason)

    async def _stop(self) -> None:
        try:
            async with asyncio.timeout(5):
                await self._transport.stop()
        except Exception as error:  # noqa: BLE001  # an error while closing must not keep the peer
            log.warning("peer_stop_failed", error=repr(error))

    async def wait_closed(self) -> None:
        """Wait until the sockets are closed."""
        if self._stopping is not None:
            await self._stopping
