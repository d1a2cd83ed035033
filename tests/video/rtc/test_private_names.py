"""Contract with the private names of aiortc and aioice that sightline.video.rtc uses."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import aioice.ice
import aioice.stun
import pylibsrtp
import pytest
from aiortc import RTCCertificate, RTCDtlsTransport, RTCIceGatherer, RTCIceTransport
from aiortc.rtcdtlstransport import SRTP_PROFILES
from OpenSSL import SSL

from sightline.video.options import NetOptions
from sightline.video.rtc import dtls, ice
from sightline.video.rtc.peer import choose_addresses
from sightline.video.rtc.rtp import build_rtp, parse_rtp
from sightline.video.rtc.srtp import protect, protect_frame
from sightline.video.rtc.udp import one_datagram


def on_asyncio(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "get_component_candidates",
        "check_incoming",
        "query_consent",
        "data_received",
        "build_request",
        "gather_candidates",
        "add_remote_candidate",
        "check_start_task",
    ],
)
def test_the_ice_agent_has_the_methods_we_override_or_call(name: str):
    assert callable(getattr(aioice.ice.Connection, name))


def test_overridden_methods_take_the_same_arguments():
    for name in ("get_component_candidates", "check_incoming", "query_consent", "data_received", "respond_error"):
        theirs = inspect.signature(getattr(aioice.ice.Connection, name)).parameters
        ours = inspect.signature(getattr(ice.IceConnection, name)).parameters
        assert list(theirs) == list(ours), name


def test_the_function_that_lists_addresses_takes_our_arguments():
    assert list(inspect.signature(aioice.ice.get_host_addresses).parameters) == ["use_ipv4", "use_ipv6"]


def test_transports_have_the_private_handles():
    async def work() -> None:
        gatherer = RTCIceGatherer(iceServers=[])
        assert isinstance(gatherer._connection, aioice.ice.Connection)
        ice = RTCIceTransport(gatherer)
        assert ice._connection is gatherer._connection
        dtls = RTCDtlsTransport(ice, [RTCCertificate.generateCertificate()])
        dtls._set_role("client")
        assert dtls._role == "client"
        assert dtls._rx_srtp is None
        assert dtls._tx_srtp is None
        assert dtls.state == "new"
        connection = gatherer._connection
        for name in (
            "_nominated",
            "_protocols",
            "_queue",
            "_query_consent_task",
            "_check_list",
            "_check_list_done",
            "_remote_candidates",
            "_early_checks",
            "_nominating",
            "_local_username",
            "_local_password",
        ):
            assert hasattr(connection, name), name
        assert {"FROZEN", "WAITING"} <= set(aioice.ice.CandidatePair.State.__members__)

    on_asyncio(work)


def test_certificates_make_the_tls_context_where_we_add_ciphers():
    certificate = dtls.Certificate.generateCertificate()
    assert isinstance(certificate, dtls.Certificate)
    assert list(inspect.signature(RTCCertificate._create_ssl_context).parameters) == ["self", "srtp_profiles"]
    context = certificate._create_ssl_context(srtp_profiles=SRTP_PROFILES)
    names = SSL.Connection(context).get_cipher_list()
    assert {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"} <= set(names)


def test_srtp_sessions_take_and_give_bytes():
    for name in ("protect", "protect_rtcp", "unprotect", "unprotect_rtcp"):
        assert list(inspect.signature(getattr(pylibsrtp.Session, name)).parameters) == ["self", "packet"]


def a_session(key: bytes, *, outbound: bool, profile: str = "AEAD_AES_256_GCM") -> pylibsrtp.Session:
    direction = pylibsrtp.Policy.SSRC_ANY_OUTBOUND if outbound else pylibsrtp.Policy.SSRC_ANY_INBOUND
    number = getattr(pylibsrtp.Policy, f"SRTP_PROFILE_{profile}")
    return pylibsrtp.Session(pylibsrtp.Policy(key=key, ssrc_type=direction, srtp_profile=number))


PROFILES = {"AEAD_AES_256_GCM": 44, "AEAD_AES_128_GCM": 28, "AES128_CM_SHA1_80": 30}
"""Profiles that are offered to peers, with the length of key and salt."""


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("sizes", [[1200] * 6 + [700], [1], [30, 1340, 1340], [1440] * 400, []])
def test_a_frame_is_encrypted_as_its_packets_are_one_by_one(sizes: list[int], profile: str):
    key = bytes(range(PROFILES[profile]))
    payloads = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    packets = [
        build_rtp(
            payload, marker=at == len(payloads) - 1, payload_type=96, sequence=(65_530 + at) & 0xFFFF, timestamp=7,
            ssrc=9,
        )
        for at, payload in enumerate(payloads)
    ]  # fmt: skip
    frame_wise, one_by_one = (a_session(key, outbound=True, profile=profile) for _ in range(2))
    runs = protect_frame(frame_wise, payloads, payload_type=96, sequence=65_530, timestamp=7, ssrc=9)
    protected = [bytes(each) for run in runs for each in run.datagrams()]
    assert protected == [protect(one_by_one, each) for each in packets]
    assert [run.segments for run in runs] == [len(list(run.datagrams())) for run in runs]
    receiver = a_session(key, outbound=False, profile=profile)
    assert [receiver.unprotect(each) for each in protected] == packets


def test_viewers_of_one_frame_get_their_own_numbers_and_the_same_payloads():
    key, payloads = bytes(44), (bytes(1200), bytes(1200), b"end")
    viewers = [a_session(key, outbound=True) for _ in range(2)]
    for at, viewer in enumerate(viewers):
        runs = protect_frame(viewer, payloads, payload_type=96 + at, sequence=at, timestamp=at, ssrc=9 + at)
        receiver = a_session(key, outbound=False)
        clear = [parse_rtp(receiver.unprotect(bytes(each))) for run in runs for each in run.datagrams()]
        assert [(each.payload, each.sequence, each.payload_type, each.ssrc) for each in clear if each] == [
            (payload, at + index, 96 + at, 9 + at) for index, payload in enumerate(payloads)
        ]


def test_a_packet_is_encrypted_as_by_the_session():
    packet = build_rtp(bytes(100), marker=True, payload_type=96, sequence=1, timestamp=2, ssrc=3)
    ours, theirs = (a_session(bytes(44), outbound=True) for _ in range(2))
    assert protect(ours, packet) == theirs.protect(packet)


def test_a_packet_without_a_header_is_refused_as_by_the_session():
    with pytest.raises(pylibsrtp.Error):
        protect(a_session(bytes(44), outbound=True), b"short")


def a_connection(net: NetOptions, **options: object) -> ice.IceConnection:
    return ice.IceConnection(
        sockets=lambda: choose_addresses(net, "127.0.0.1"),
        ports=(net.udp_port_min, net.udp_port_max),
        ice_controlling=False,
        **options,
    )


def test_sockets_are_bound_in_the_port_range_and_advertised_as_told():
    async def work() -> None:
        net = NetOptions(
            bind_addresses=("127.0.0.1",), advertised_addresses=("203.0.113.7",), udp_port_min=47310, udp_port_max=47312
        )
        connections = [a_connection(net) for _ in range(3)]
        ports = set()
        for connection in connections:
            await connection.gather_candidates()
            (candidate,) = connection.local_candidates
            assert candidate.host == "203.0.113.7"
            ports.add(candidate.port)
        assert ports == {47310, 47311, 47312}
        late = a_connection(net)
        await late.gather_candidates()
        assert late.local_candidates == [], "the range is used up"
        for connection in [*connections, late]:
            await connection.close()

    on_asyncio(work)


def test_a_check_without_priority_connects_as_with_ffmpeg_before_8_1():
    class OldFfmpeg(aioice.ice.Connection):  # type: ignore[misc]
        def build_request(self, pair: object, nominate: bool) -> aioice.stun.Message:
            request = super().build_request(pair, nominate)
            del request.attributes["PRIORITY"]
            return request

    async def work() -> None:
        ours = a_connection(NetOptions(bind_addresses=("127.0.0.1",)))
        await ours.gather_candidates()
        theirs = OldFfmpeg(ice_controlling=True)
        theirs._local_candidates_start = theirs._local_candidates_end = True
        theirs._local_candidates += await OldFfmpeg.get_component_candidates(theirs, 1, ["127.0.0.1"])
        for candidate in ours.local_candidates:
            await theirs.add_remote_candidate(candidate)
        await theirs.add_remote_candidate(None)
        theirs.remote_username, theirs.remote_password = ours.local_username, ours.local_password
        ours.remote_username, ours.remote_password = theirs.local_username, theirs.local_password
        # As with OBS and FFmpeg: our side receives no remote candidate.
        await asyncio.gather(ours.connect(), theirs.connect())
        seen: list[bytes] = []
        ours.media_sink = lambda data, source, arrived_ms: seen.append(data)
        await theirs.send(b"\x80media")
        await theirs.send(b"\x16dtls")
        assert await ours.recv() == b"\x16dtls", "DTLS goes through the queue"
        assert seen == [b"\x80media"], "media goes straight to the sink"
        assert ours.send_now([one_datagram(b"\x16back")])
        assert await theirs.recv() == b"\x16back"
        await asyncio.gather(ours.close(), theirs.close())
        assert not ours.send_now([one_datagram(b"\x16late")])

    on_asyncio(work)
