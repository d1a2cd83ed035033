"""The ICE agent of one peer: aioice's, with our own sockets, consent timers and a synchronous media path.

Uses private names of aioice. This module and `dtls` are the only ones that use private names of aioice and aiortc. Both
are pinned to minor versions, and tests/video/rtc/test_private_names.py checks each name: an upgrade fails there.
"""

import asyncio
import random  # noqa: TID251  (jitter of consent checks only)
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

import aioice.ice
import aioice.stun
import structlog
from aioice.candidate import Candidate, candidate_foundation, candidate_priority
from aioice.utils import random_string
from typing_extensions import override

from sightline.video.rtc.tcp import TcpTransport
from sightline.video.rtc.udp import Address, ReadPace, Run, UdpTransport, bind_udp

QUEUE_MAX_PACKETS: Final = 512
"""DTLS packets waiting for the handshake; media does not go through this queue."""
CONSENT_INTERVAL_S: Final = 5.0
"""RFC 7675, section 5.1: not less than 4 s between checks, and never in step with others."""
CONSENT_FAILURES: Final = 4
"""A vanished peer is noticed within 16 to 25 s; the RFC allows 30."""
MEDIA_LIFE_MS: Final = 5_000.0
"""A publisher whose authenticated media arrived within this time is alive, even if it answers no checks."""
FOLLOW_EVERY_MS: Final = 1_000.0
ROLE_CONFLICT: Final = 487
TCP_CONNECTIONS_MAX: Final = 8
"""TCP connections of one peer: browsers open one from each of their addresses to each of ours."""
TCP_PREFERENCE: Final = 90
PASSIVE_PREFERENCE: Final = 4
UFRAG_CHARACTERS: Final = 6
PASSWORD_CHARACTERS: Final = 22
CHECK_EVERY_S: Final = 0.02
"""Ta of RFC 8445, section 14, as in aioice."""
_system_random = random.SystemRandom()
log = structlog.get_logger()


def host_addresses(*, ipv6: bool) -> list[str]:
    """The machine's own addresses without loopback."""
    return list(aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=ipv6))


@final
class MediaSource:
    """Where a datagram came from: the socket that received it and the sender's address."""

    __slots__ = ("address", "protocol")

    def __init__(self, protocol: Any, address: Address) -> None:
        self.protocol = protocol
        self.address = address


MediaSink = Callable[[bytes, MediaSource, float], None]
"""Takes (SRTP or SRTCP as received, its source, arrival in ms on the loop's clock)."""


@final
class IceConnection(aioice.ice.Connection):
    """aioice's agent with our sockets, our consent timers, a bounded queue and a synchronous media path.

    Args:
        sockets: Gives pairs of (address to bind, address to advertise), best first.
        ports: First and last UDP port to bind; zeros mean any free port.
        datagrams_per_s: Datagrams of the peer that are read in a second; the rest is dropped by the kernel.
        tcp_port: TCP port that is advertised too, whose connections come by `take_connection`; none below 1.
        ufrag_prefix: First characters of our username fragment.
    """

    def __init__(
        self,
        *,
        sockets: Callable[[], list[tuple[str, str]]],
        ports: tuple[int, int],
        datagrams_per_s: int = 5_000,
        tcp_port: int = -1,
        ufrag_prefix: str = "",
        **options: Any,
    ) -> None:
        super().__init__(local_username=ufrag_prefix + random_string(UFRAG_CHARACTERS), **options)
        self._ufrag_prefix = ufrag_prefix
        self._pace = ReadPace(datagrams_per_s)
        self._choose_addresses = sockets
        self._ports = ports
        self._tcp_port = tcp_port
        self._tcp: list[Any] = []
        self.media_sink: MediaSink | None = None
        """Takes media; called inside the socket's read callback."""
        self._media_ms: float | None = None
        self._followed_ms = -FOLLOW_EVERY_MS
        self._follow_task: asyncio.Task[None] | None = None
        self._check_task: asyncio.Task[None] | None = None
        self._unanswered = 0
        """Consent checks without an answer since the last answer or restart."""

    @override
    async def get_component_candidates(
        self,
        component: int,
        addresses: list[str],
        timeout: int = 5,  # aioice's signature
    ) -> list[Candidate]:
        """Bind one socket per chosen address inside the port range; advertise the addresses chosen for them."""
        del addresses, timeout
        candidates: list[Candidate] = []
        pairs = self._choose_addresses()
        for rank, (bind, advertise) in enumerate(pairs):
            sock = self._bind(bind)
            if sock is None:
                continue
            protocol = self._attach(sock)
            protocol.local_candidate = Candidate(
                foundation=candidate_foundation("host", "udp", bind),
                component=component,
                transport="udp",
                priority=candidate_priority(component, "host", 65535 - rank),
                host=advertise,
                port=sock.getsockname()[1],
                type="host",
            )
            candidates.append(protocol.local_candidate)
            self._protocols.append(protocol)
        if self._tcp_port > 0:
            candidates += [
                tcp_candidate(component, rank, bind, advertise, self._tcp_port)
                for rank, (bind, advertise) in enumerate(pairs)
            ]
        return candidates

    def _bind(self, address: str) -> socket.socket | None:
        """A bound socket, or None if no port of the range is free on that address."""
        low, high = self._ports
        choices = [0]
        if low:
            choices = list(range(low, high + 1))
            start = _system_random.randrange(len(choices))
            choices = choices[start:] + choices[:start]
        for port in choices:
            try:
                return bind_udp(address, port)
            except OSError:
                continue
        return None

    def _attach(self, sock: socket.socket) -> Any:
        """A StunProtocol that receives everything but media from the socket."""
        protocol = aioice.ice.StunProtocol(self)
        transport = UdpTransport(
            sock,
            on_datagram=self._receiver(protocol),
            on_lost=lambda: protocol.connection_lost(None),
            pace=self._pace,
        )
        protocol.connection_made(transport)
        return protocol

    def _receiver(self, protocol: Any) -> Callable[[bytes, Address, float], None]:
        def on_datagram(data: bytes, source: Address, arrived_ms: float) -> None:
            if self.media_sink is not None and 127 < data[0] < 192:
                self.media_sink(data, MediaSource(protocol, source), arrived_ms)
            else:
                protocol.datagram_received(data, source)

        return on_datagram

    def take_connection(self, sock: socket.socket, packet: bytes) -> bool:
        """Use an accepted TCP connection as a local socket of its own (RFC 6544).

        Returns:
            False, with the connection left to the caller, if its first packet is not signed with our password, if the
            peer has TCP_CONNECTIONS_MAX already, or if it is gone.
        """
        if self._closing or len(self._tcp) >= TCP_CONNECTIONS_MAX or not self._is_authentic(packet):
            return False
        try:
            protocol = aioice.ice.StunProtocol(self)
            transport = TcpTransport(
                sock,
                on_datagram=self._receiver(protocol),
                on_lost=lambda: self._connection_lost(protocol),
                pace=self._pace,
            )
        except OSError:
            return False
        host, port = transport.get_extra_info("sockname")[:2]
        protocol.local_candidate = tcp_candidate(1, 0, host, host, port)
        protocol.connection_made(transport)
        self._tcp.append(protocol)
        self._protocols.append(protocol)
        protocol.datagram_received(packet, transport.peer)
        return True

    def _is_authentic(self, packet: bytes) -> bool:
        try:
            message = aioice.stun.parse_message(packet)
        except (ValueError, struct.error, IndexError):
            return False
        key = self.local_password.encode()
        return "MESSAGE-INTEGRITY" in message.attributes and bool(message.check_message_integrity(key))

    def _connection_lost(self, protocol: Any) -> None:
        """Forget a closed TCP connection. Consent checks notice it if it was the path in use and no other comes."""
        protocol.connection_lost(None)
        self._tcp.remove(protocol)
        if protocol in self._protocols:
            self._protocols.remove(protocol)
        self._drop_pairs([each for each in self._check_list if each.protocol is protocol])

    def _drop_pairs(self, pairs: Sequence[Any]) -> None:
        for pair in pairs:
            if pair.task is not None:
                pair.task.cancel()
            self._check_list.remove(pair)

    def restart(self, *, ufrag: str, password: str) -> None:
        """Change the credentials of both sides and forget the peer's candidates (RFC 8445, section 9).

        The sockets stay. Media uses the present pair until the peer nominates another. TCP connections that are not in
        use are closed: those of a network that the peer has left would take the places of new ones.

        Args:
            ufrag: The peer's new one; so is the password.
        """
        self._drop_pairs(list(self._check_list))
        self._remote_candidates.clear()
        self._early_checks.clear()
        self._nominating.clear()
        self._local_username = self._ufrag_prefix + random_string(UFRAG_CHARACTERS)
        self._local_password = random_string(PASSWORD_CHARACTERS)
        self.remote_username, self.remote_password = ufrag, password
        self._unanswered = 0
        used = [pair.protocol for pair in self._nominated.values()]
        for protocol in [each for each in self._tcp if each not in used]:
            protocol.transport.close()

    def check_new_pairs(self) -> None:
        """Check the pairs of candidates that came after `connect` had ended, one every CHECK_EVERY_S."""
        if self._check_list_done and (self._check_task is None or self._check_task.done()):
            self._check_task = asyncio.create_task(self._check_pairs())

    async def _check_pairs(self) -> None:
        untried = (aioice.ice.CandidatePair.State.FROZEN, aioice.ice.CandidatePair.State.WAITING)
        while pair := next((each for each in self._check_list if each.state in untried), None):
            self.check_start_task(pair)
            await asyncio.sleep(CHECK_EVERY_S)

    @override
    def check_incoming(self, message: aioice.stun.Message, addr: tuple[str, int], protocol: Any) -> None:
        """FFmpeg before 8.1 sends checks without PRIORITY; aioice would raise KeyError on them."""
        message.attributes.setdefault("PRIORITY", candidate_priority(1, "prflx"))
        super().check_incoming(message, addr, protocol)

    @override
    def respond_error(
        self, request: aioice.stun.Message, addr: tuple[str, int], protocol: Any, error_code: tuple[int, str]
    ) -> None:
        """Answer only authenticated requests (a role conflict). Answers to others would be larger than the request
        and could be sent to a spoofed address."""
        if error_code[0] == ROLE_CONFLICT:
            super().respond_error(request, addr, protocol, error_code)

    @override
    async def query_consent(self) -> None:
        """Check consent (RFC 7675) and close the connection when the peer neither consents nor sends media.

        FFmpeg's WHIP muxer answers no checks. Its authenticated media proves that it is alive.
        """
        while True:
            await asyncio.sleep(CONSENT_INTERVAL_S * (0.8 + 0.4 * _system_random.random()))
            for pair in list(self._nominated.values()):
                self._unanswered = 0 if await self._answers(pair) else self._unanswered + 1
            if self._unanswered >= CONSENT_FAILURES and not self._media_arrives():
                self._query_consent_task = None
                await self.close()
                return

    async def _answers(self, pair: Any) -> bool:
        """True if the peer answers one authenticated check on a pair."""
        request = self.build_request(pair, nominate=False)
        key = (self.remote_password or "").encode()
        try:
            await pair.protocol.request(request, pair.remote_addr, integrity_key=key, retransmissions=0)
        except aioice.stun.TransactionError:
            return False
        return True

    def _media_arrives(self) -> bool:
        now_ms = asyncio.get_running_loop().time() * 1000
        return self._media_ms is not None and now_ms - self._media_ms < MEDIA_LIFE_MS

    def packet_authenticated(self, source: MediaSource, arrived_ms: float, *, is_media: bool) -> None:
        """Record an authenticated packet of the peer, whose source may be a new address (NAT rebinding).

        What is sent moves to a new address only after the peer has answered a check there.

        Args:
            is_media: True if the packet proves that the peer is alive, even if it answers no checks.
        """
        if is_media:
            self._media_ms = arrived_ms
        pair = self._nominated.get(1)
        if pair is None or (pair.remote_addr == source.address and pair.protocol is source.protocol):
            return
        if arrived_ms - self._followed_ms >= FOLLOW_EVERY_MS and not self._closing:
            self._followed_ms = arrived_ms
            self._follow_task = asyncio.create_task(self._follow(source))

    async def _follow(self, source: MediaSource) -> None:
        host, port = source.address
        candidate = remote_candidate(foundation="moved", priority=1, host=host, port=port, kind="prflx")
        candidate._network_host = host
        pair = aioice.ice.CandidatePair(source.protocol, candidate)
        if await self._answers(pair) and 1 in self._nominated:
            self._nominated[1] = pair
            log.info("peer_address_changed")

    @override
    async def close(self) -> None:
        for task in (self._follow_task, self._check_task):
            if task is not None:
                task.cancel()
        await super().close()

    @override
    def data_received(self, data: bytes, component: int) -> None:
        """Queue DTLS for the handshake; drops it when the queue is full."""
        if data and self._queue.qsize() < QUEUE_MAX_PACKETS:
            super().data_received(data, component)

    def send_now(self, runs: Iterable[Run]) -> bool:
        """Send without awaiting; False if there is no connection or the socket's buffer is full."""
        pair = self._nominated.get(1)
        if pair is None:
            return False
        transport: Any = pair.protocol.transport
        transport.send_runs(runs, pair.remote_addr)
        return not bool(transport.blocked)


def tcp_candidate(component: int, rank: int, bind: str, advertise: str, port: int) -> Candidate:
    """Our passive TCP candidate. Its type preference is below that of UDP (RFC 6544, section 4.2).

    Args:
        rank: 0 for the best address.
    """
    local_preference = (PASSIVE_PREFERENCE << 13) + 8191 - rank
    return Candidate(
        foundation=candidate_foundation("host", "tcp", bind),
        component=component,
        transport="tcp",
        priority=(TCP_PREFERENCE << 24) + (local_preference << 8) + 256 - component,
        host=advertise,
        port=port,
        type="host",
        tcptype="passive",
    )


def remote_candidate(*, foundation: str, priority: int, host: str, port: int, kind: str) -> Candidate:
    """A candidate of the other side."""
    return Candidate(
        foundation=foundation,
        component=1,
        transport="udp",
        priority=priority,
        host=host,
        port=port,
        type=kind,
    )
