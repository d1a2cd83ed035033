"""Every private name of aiortc and aioice that Sightline leans on, and nothing else.

aiortc and aioice are pinned to minor versions; tests/video/rtc/test_patches.py checks each name used here, so that
an upgrade fails there and not in the field. We use their transports (ICE agent, DTLS) and leave out
RTCPeerConnection: its receivers decode everything in threads with unbounded queues, and its senders encode.
"""

import asyncio
import random  # noqa: TID251  (jitter of consent checks only)
import socket
from collections.abc import Callable
from typing import Any, Final, final

import aioice.ice
import aioice.stun
import pylibsrtp
from aioice.candidate import Candidate, candidate_foundation, candidate_priority
from aiortc import RTCCertificate, RTCDtlsTransport, RTCIceGatherer, RTCIceTransport
from aiortc.rtcdtlstransport import RTCDtlsFingerprint, RTCDtlsParameters
from aiortc.rtcicetransport import RTCIceParameters

QUEUE_MAX_PACKETS: Final = 512
"""DTLS packets waiting for the handshake; media never goes through this queue."""
CONSENT_INTERVAL_S: Final = 2.5
CONSENT_FAILURES: Final = 4
"""A vanished peer is noticed within about 12 s; aioice's own values take more than 30 s."""
SOCKET_BUFFER_BYTES: Final = 1 << 20
_system_random = random.SystemRandom()


def host_addresses(*, ipv6: bool) -> list[str]:
    """The machine's own addresses without loopback."""
    return list(aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=ipv6))


def tune_stock_peers() -> None:
    """Let stock aiortc peers in this process (publisher, player) use 127.0.0.1 and notice a dead server in time."""
    aioice.ice.CONSENT_INTERVAL = 2
    aioice.ice.CONSENT_FAILURES = 3
    stock = aioice.ice.get_host_addresses

    def with_loopback(use_ipv4: bool, use_ipv6: bool) -> list[str]:
        found: list[str] = stock(use_ipv4, use_ipv6)
        return found if "127.0.0.1" in found or not use_ipv4 else [*found, "127.0.0.1"]

    aioice.ice.get_host_addresses = with_loopback


CIPHERS: Final = b":".join(
    f"ECDHE-{kind}-{cipher}".encode()
    for cipher in ("AES128-GCM-SHA256", "CHACHA20-POLY1305", "AES128-SHA", "AES256-SHA")
    for kind in ("ECDSA", "RSA")
)
"""aiortc offers the ECDSA half only, and GStreamer's certificates are RSA: no shared cipher when we are client."""


@final
class Certificate(RTCCertificate):
    """aiortc's certificate that also talks to peers with RSA ones."""

    def _create_ssl_context(self, srtp_profiles: list[Any]) -> Any:
        context = super()._create_ssl_context(srtp_profiles=srtp_profiles)
        context.set_cipher_list(CIPHERS)
        return context


@final
class IceConnection(aioice.ice.Connection):
    """aioice's agent with our sockets, our consent timers, a bounded queue and a synchronous media path."""

    def __init__(self, *, sockets: Callable[[], list[tuple[str, str]]], ports: tuple[int, int], **options: Any) -> None:
        super().__init__(**options)
        self._choose_addresses = sockets
        self._ports = ports
        self.media_sink: Callable[[bytes], None] | None = None
        """Takes SRTP and SRTCP as they come; called inside the socket's callback."""

    async def get_component_candidates(
        self,
        component: int,
        addresses: list[str],
        timeout: int = 5,  # noqa: ASYNC109  # aioice's signature
    ) -> list[Candidate]:
        """Bind one socket per chosen address inside the port range; advertise what the chooser says."""
        del addresses, timeout
        candidates: list[Candidate] = []
        for rank, (bind, advertise) in enumerate(self._choose_addresses()):
            protocol = await self._bind(bind)
            if protocol is None:
                continue
            sockname = protocol.transport.get_extra_info("sockname")
            protocol.local_candidate = Candidate(
                foundation=candidate_foundation("host", "udp", bind),
                component=component,
                transport="udp",
                priority=candidate_priority(component, "host", 65535 - rank),
                host=advertise,
                port=sockname[1],
                type="host",
            )
            candidates.append(protocol.local_candidate)
            self._protocols.append(protocol)
        return candidates

    async def _bind(self, address: str) -> Any:
        """A bound StunProtocol, or None if no port of the range is free on that address."""
        loop = asyncio.get_running_loop()
        low, high = self._ports
        choices = [0]
        if low:
            choices = list(range(low, high + 1))
            start = _system_random.randrange(len(choices))
            choices = choices[start:] + choices[:start]
        for port in choices:
            try:
                transport, protocol = await loop.create_datagram_endpoint(
                    lambda: aioice.ice.StunProtocol(self), local_addr=(address, port)
                )
            except OSError:
                continue
            sock = transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
            return protocol
        return None

    def check_incoming(self, message: aioice.stun.Message, addr: tuple[str, int], protocol: Any) -> None:
        """FFmpeg before 8.1 sends checks without PRIORITY; aioice would raise KeyError on them."""
        message.attributes.setdefault("PRIORITY", candidate_priority(1, "prflx"))
        super().check_incoming(message, addr, protocol)

    async def query_consent(self) -> None:
        """RFC 7675 with shorter timers; closes the connection when consent has expired."""
        failures = 0
        while True:
            await asyncio.sleep(CONSENT_INTERVAL_S * (0.8 + 0.4 * _system_random.random()))
            for pair in list(self._nominated.values()):
                request = self.build_request(pair, nominate=False)
                try:
                    await pair.protocol.request(
                        request,
                        pair.remote_addr,
                        integrity_key=(self.remote_password or "").encode(),
                        retransmissions=0,
                    )
                    failures = 0
                except aioice.stun.TransactionError:
                    failures += 1
            if failures >= CONSENT_FAILURES:
                self._query_consent_task = None
                await self.close()
                return

    def data_received(self, data: bytes, component: int) -> None:
        """Media goes straight to the sink, DTLS to the bounded queue."""
        if self.media_sink is not None and data and 127 < data[0] < 192:
            self.media_sink(data)
        elif data and self._queue.qsize() < QUEUE_MAX_PACKETS:
            super().data_received(data, component)

    def send_now(self, data: bytes) -> int:
        """Send one datagram without awaiting; returns the bytes waiting in the socket's buffer, -1 if unsent."""
        pair = self._nominated.get(1)
        if pair is None:
            return -1
        transport: Any = pair.protocol.transport
        transport.sendto(data, pair.remote_addr)
        return int(transport.get_write_buffer_size())


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


@final
class RtcTransport:
    """One ICE and DTLS transport with its private handles gathered in one place."""

    def __init__(self, connection: IceConnection, certificate: RTCCertificate) -> None:
        gatherer = RTCIceGatherer(iceServers=[])
        gatherer._connection = connection
        self.connection = connection
        self._gatherer = gatherer
        self._ice = RTCIceTransport(gatherer)
        self._dtls = RTCDtlsTransport(self._ice, [certificate])

    @property
    def state(self) -> str:
        """new, connecting, connected, closed or failed."""
        return str(self._dtls.state)

    def on_state_change(self, callback: Callable[[], None]) -> None:
        """Call back at every change of the DTLS state."""
        self._dtls.on("statechange", callback)

    async def gather(self) -> None:
        """Bind the sockets."""
        await self._gatherer.gather()

    async def start(
        self, *, ufrag: str, password: str, ice_lite: bool, fingerprints: list[tuple[str, str]], role: str
    ) -> None:
        """Run ICE, then DTLS in the given role (client or server); look at `state` afterwards."""
        self._dtls._set_role(role)
        await self._ice.start(RTCIceParameters(usernameFragment=ufrag, password=password, iceLite=ice_lite))
        if self._ice.state == "completed":
            known = [RTCDtlsFingerprint(algorithm=name, value=digest) for name, digest in fingerprints]
            await self._dtls.start(RTCDtlsParameters(fingerprints=known, role=role))

    async def stop(self) -> None:
        """Say goodbye and close the sockets."""
        await self._dtls.stop()
        await self._ice.stop()

    def unprotect(self, data: bytes, *, rtcp: bool) -> bytes | None:
        """Decrypt; None for what is not authentic."""
        try:
            session = self._dtls._rx_srtp
            return bytes(session.unprotect_rtcp(data) if rtcp else session.unprotect(data))
        except pylibsrtp.Error:
            return None

    def protect(self, data: bytes, *, rtcp: bool) -> bytes:
        """Encrypt for the wire."""
        session = self._dtls._tx_srtp
        return bytes(session.protect_rtcp(data) if rtcp else session.protect(data))
