"""Our UDP sockets, ICE agent and DTLS, one against another on loopback."""

import asyncio
import datetime
import errno
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aioice.stun
import pytest
import structlog
from aiortc.rtcdtlstransport import SRTP_PROFILES
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from OpenSSL import SSL

from sightline.domain.value import replace
from sightline.system.clock import SystemClock
from sightline.video.options import NetOptions
from sightline.video.rtc.dtls import Certificate
from sightline.video.rtc.ice import IceConnection
from sightline.video.rtc.peer import CANDIDATES_MAX, Certificates, RtcPeer
from sightline.video.rtc.rtp import build_rtp
from sightline.video.rtc.sdp import LocalSection, LocalTransport, build, parse
from sightline.video.rtc.udp import SEGMENTS_MAX, ReadPace, Run, UdpTransport, bind_udp, equal_runs
from sightline.video.worker.whep_reader import offered_sections

LOOPBACK = NetOptions(bind_addresses=("127.0.0.1",))


def on_asyncio(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))  # type: ignore[arg-type]


def test_a_datagram_that_waited_in_the_socket_has_the_time_of_its_arrival():
    async def work() -> None:
        loop = asyncio.get_running_loop()
        heard: list[asyncio.Future[float]] = []
        ours = UdpTransport(
            bind_udp("127.0.0.1", 0),
            on_datagram=lambda data, source, arrived_ms: heard[-1].set_result(arrived_ms),
            on_lost=lambda: None,
            pace=ReadPace(1_000),
        )
        sender = bind_udp("127.0.0.1", 0)

        async def age_ms(busy_s: float) -> float:
            """How long after it was sent a datagram arrived, while the loop is busy, as an overloaded worker's is."""
            heard.append(loop.create_future())
            before_ms = loop.time() * 1000
            sender.sendto(b"media", ours.get_extra_info("sockname"))
            time.sleep(busy_s)  # noqa: ASYNC251
            arrived_ms = await heard[-1]
            assert loop.time() * 1000 - before_ms >= busy_s * 1000
            return arrived_ms - before_ms

        # The kernel stamps arrivals from a moment after the first socket has asked for it.
        while await age_ms(0.05) > 25:
            pass
        assert -5 <= await age_ms(1.0) < 500, "the age counts from the kernel's arrival"
        ours.close()
        sender.close()

    on_asyncio(work)


class CountingSocket(socket.socket):
    """A socket that counts system calls that send; `refuses` makes it one without UDP GSO."""

    calls = 0
    refuses = False

    def sendto(self, *arguments: Any) -> int:
        self.calls += 1
        return super().sendto(*arguments)

    def sendmsg(self, *arguments: Any) -> int:
        self.calls += 1
        if self.refuses:
            raise OSError(errno.EIO, "no checksums")
        return super().sendmsg(*arguments)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_frame_is_sent_in_few_calls_and_arrives_packet_by_packet(refuses: bool):
    async def work() -> None:
        plain = bind_udp("127.0.0.1", 0)
        sock = CountingSocket(fileno=plain.detach())
        sock.setblocking(False)
        sock.refuses = refuses
        ours = UdpTransport(sock, on_datagram=lambda *_: None, on_lost=lambda: None, pace=ReadPace(1_000))
        receiver = bind_udp("127.0.0.1", 0)
        receiver.setblocking(True)
        receiver.settimeout(60)
        frame = [bytes([index]) * 1200 for index in range(60)] + [b"end" * 100, b"sps" * 10, b"x" * 900]
        runs = [frame[first:end] for first, end in equal_runs([len(each) for each in frame])]
        ours.send_runs([Run(run, len(run[0]), len(run)) for run in runs], receiver.getsockname())
        assert [receiver.recv(2048) for _ in frame] == frame
        assert not ours.blocked
        assert sock.calls == (1 + 63 if refuses else 4), "44, 17, 1 and 1 datagrams; a refusal is not tried again"
        ours.close()
        receiver.close()

    on_asyncio(work)


@given(st.lists(st.integers(1, 4)))
def test_runs_keep_order_and_only_their_last_datagram_is_shorter(sizes: list[int]):
    runs = list(equal_runs(sizes))
    assert [at for first, end in runs for at in range(first, end)] == list(range(len(sizes)))
    for first, end in runs:
        assert len(set(sizes[first : end - 1])) <= 1
        assert sizes[end - 1] <= sizes[first]
        assert end - first <= SEGMENTS_MAX


def test_only_authenticated_stun_requests_are_answered():
    async def work() -> None:
        agent = IceConnection(sockets=lambda: [("127.0.0.1", "127.0.0.1")], ports=(0, 0), ice_controlling=False)
        await agent.gather_candidates()
        agent.remote_username, agent.remote_password = "abcd", "x" * 22
        address = ("127.0.0.1", agent.local_candidates[0].port)
        client = bind_udp("127.0.0.1", 0)

        def request(password: str) -> aioice.stun.Message:
            message = aioice.stun.Message(aioice.stun.Method.BINDING, aioice.stun.Class.REQUEST)
            message.attributes["USERNAME"] = f"{agent.local_username}:abcd"
            message.attributes["PRIORITY"] = 1
            message.attributes["ICE-CONTROLLING"] = 1
            message.add_message_integrity(password.encode())
            return message

        bare = aioice.stun.Message(aioice.stun.Method.BINDING, aioice.stun.Class.REQUEST)
        good = request(agent.local_password)
        for message in (bare, request("y" * 22), good):
            client.sendto(bytes(message), address)
        reply = await asyncio.get_running_loop().sock_recv(client, 2048)
        assert aioice.stun.parse_message(reply).transaction_id == good.transaction_id, (
            "the first answer is the good one's"
        )
        await agent.close()
        client.close()

    on_asyncio(work)


def test_only_authenticated_encryption_is_offered_to_dtls_peers():
    context = Certificate.generateCertificate()._create_ssl_context(srtp_profiles=SRTP_PROFILES)
    dtls_1_2 = [name for name in SSL.Connection(context).get_cipher_list() if name.startswith("ECDHE")]
    assert dtls_1_2
    assert all("GCM" in name or "POLY1305" in name for name in dtls_1_2), dtls_1_2


class FixedCertificate(Certificates):
    """The certificates of a peer that uses its own one."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(SystemClock())
        self._current = certificate


def a_certificate(curve: ec.EllipticCurve) -> Certificate:
    key = ec.generate_private_key(curve)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "peer")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=30))
    return Certificate(key=key, cert=builder.sign(key, hashes.SHA256()))


@pytest.mark.parametrize("fault", ["curve", "fingerprint"])
def test_a_failed_dtls_handshake_is_logged_with_its_reason(fault: str):
    async def work() -> None:
        closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def a_peer(certificates: Certificates, controlling: bool, on_closed: Callable[[str], None]) -> RtcPeer:
            return RtcPeer(
                net=replace(LOOPBACK, private_candidates=True),
                certificates=certificates,
                prefer="127.0.0.1",
                controlling=controlling,
                publishes=False,
                on_packet=lambda data, rtcp, arrived_ms: None,
                on_connected=lambda: None,
                on_closed=on_closed,
            )

        theirs_certificate = a_certificate(ec.SECP224R1() if fault == "curve" else ec.SECP256R1())
        ours = a_peer(Certificates(SystemClock()), False, closed.set_result)
        theirs = a_peer(FixedCertificate(theirs_certificate), True, lambda reason: None)
        ours_local, theirs_local = await ours.gather("active"), await theirs.gather("passive")
        if fault == "fingerprint":
            theirs_local = LocalTransport(
                ufrag=theirs_local.ufrag,
                password=theirs_local.password,
                fingerprint=ours_local.fingerprint,
                setup="passive",
                candidates=theirs_local.candidates,
            )
        with structlog.testing.capture_logs() as logs:
            await theirs.connect(described(ours_local), role="server", handshake_ms=8_000)
            await ours.connect(described(theirs_local), role="client", handshake_ms=8_000)
            reason = await closed
        wanted = "fingerprint" if fault == "fingerprint" else "alert"
        assert "DTLS" in reason
        assert wanted in reason, reason
        assert {"event": "peer_handshake_failed", "reason": reason, "log_level": "warning"} in logs
        theirs.close("the test is over")
        await ours.wait_closed()
        await theirs.wait_closed()

    on_asyncio(work)


def test_few_candidates_and_none_at_private_addresses_are_checked():
    async def work() -> None:
        peer = RtcPeer(
            net=LOOPBACK,
            certificates=Certificates(SystemClock()),
            prefer="127.0.0.1",
            controlling=False,
            publishes=False,
            on_packet=lambda data, rtcp, arrived_ms: None,
            on_connected=lambda: None,
            on_closed=lambda reason: None,
        )
        local = await peer.gather("passive")
        hosts = ["127.0.0.1", "169.254.1.1", "10.0.0.5", "192.168.1.9", "224.0.0.1", "0.0.0.0", "::1", "fe80::1"]
        hosts += [f"8.8.{index // 250}.{index % 250}" for index in range(1000)]
        candidates = tuple(f"{index} 1 udp 1 {host} 9 typ host" for index, host in enumerate(hosts))
        remote = LocalTransport(
            ufrag="abcd", password="x" * 22, fingerprint=local.fingerprint, setup="active", candidates=candidates
        )
        await peer.connect(described(remote), role="server", handshake_ms=5_000)
        checked = [candidate.host for candidate in peer._connection.remote_candidates]
        peer.close("the test is over")
        await peer.wait_closed()
        assert len(checked) == CANDIDATES_MAX
        assert all(host.startswith("8.8.") for host in checked), checked

    on_asyncio(work)


def test_ice_restarts_on_a_new_path_while_dtls_and_srtp_go_on():
    async def work() -> None:
        loop = asyncio.get_running_loop()
        connected: list[asyncio.Future[None]] = [loop.create_future(), loop.create_future()]
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        ends: list[str] = []

        def a_peer(index: int, bind: str) -> RtcPeer:
            return RtcPeer(
                net=NetOptions(bind_addresses=(bind,), private_candidates=True, loopback=False),
                certificates=Certificates(SystemClock()),
                prefer=bind,
                controlling=index == 1,
                publishes=index == 0,
                on_packet=lambda data, rtcp, arrived_ms: heard.put_nowait(data),
                on_connected=lambda: connected[index].set_result(None),
                on_closed=ends.append,
            )

        server, phone = a_peer(0, "127.0.0.1"), a_peer(1, "127.0.0.1")
        ours, theirs = await server.gather("active"), await phone.gather("passive")
        await phone.connect(described(ours), role="server", handshake_ms=20_000)
        await server.connect(described(theirs), role="client", handshake_ms=20_000)
        await asyncio.gather(*connected)
        old_path = server._connection._nominated[1].remote_addr

        # The phone leaves the network: its socket closes without a word, and another one is in its place.
        agent = phone._connection
        (protocol,) = agent._protocols
        protocol.transport._loop.remove_reader(protocol.transport._sock.fileno())
        protocol.transport._sock.close()
        sock = bind_udp("127.0.0.1", 0)
        protocol.transport = UdpTransport(
            sock, on_datagram=agent._receiver(protocol), on_lost=lambda: None, pace=ReadPace(1_000)
        )
        agent.restart(ufrag="unknown", password="u" * 22)
        answer = await server.restart_ice(ufrag=agent.local_username, password=agent.local_password, candidates=())
        assert (answer.ufrag, answer.password) != (ours.ufrag, ours.password)
        assert (answer.fingerprint, answer.candidates) == (ours.fingerprint, ours.candidates)
        agent.remote_username, agent.remote_password = answer.ufrag, answer.password
        for line in answer.candidates:
            await phone.add_candidate(line)
        while server._connection._nominated[1].remote_addr == old_path:  # noqa: ASYNC110  # the agent has no event
            await asyncio.sleep(0)
        assert server._connection._nominated[1].remote_addr == sock.getsockname()

        packet = build_rtp(b"after", marker=True, payload_type=96, sequence=1, timestamp=1, ssrc=7)
        for sender in (phone, server):
            while heard.empty():  # SRTP counts: one packet may be sent before the path is nominated
                sender.send(packet)
                await asyncio.sleep(0.01)
            assert await heard.get() == packet
            while not heard.empty():
                heard.get_nowait()
        assert ends == []
        for peer in (server, phone):
            peer.close("the test is over")
            await peer.wait_closed()

    on_asyncio(work)


def described(local: LocalTransport) -> object:
    sections: list[LocalSection] = offered_sections()
    return parse(build(sections, local, session_number=1))
