"""Parsers of untrusted bytes return a value or raise their own error, and never anything else."""

import contextlib

from hypothesis import example, given
from hypothesis import strategies as st

from sightline.video.media.assembler import Assembler
from sightline.video.media.codecs import H264Format, PayloadFormat, Vp8Format, continuing
from sightline.video.media.ingest import Ingest, IngestPlan
from sightline.video.rtc.peer import usable_candidate
from sightline.video.rtc.rtp import RtpPacket, build_rtp, parse_rtcp, parse_rtp, read_nack
from sightline.video.rtc.sdp import SdpError, parse
from sightline.video.signalling import read_fragment
from sightline.video.tokens import TokenMint, session_of_ref
from sightline.video.worker.negotiate import agree_play, agree_publish
from tests.video.support.offers import an_obs_offer

LINES = st.sampled_from(
    [
        "m=video 9 UDP/TLS/RTP/SAVPF 96",
        "m=audio 0 X 111",
        "m=video 99999999999 X 1",
        "a=rtpmap:96 H264/90000",
        "a=rtpmap:96 H264",
        "a=rtpmap:999 VP8/90000",
        "a=fmtp:96 ;;=;profile-level-id",
        "a=ssrc-group:FID x y",
        "a=ssrc:-1 cname:x",
        "a=candidate:1 1 udp",
        "a=ice-ufrag:x",
        "a=ice-pwd:y",
        "a=fingerprint:sha-256",
        "a=setup:nonsense",
        "a=group:BUNDLE",
        "a=rtcp-fb:* nack",
        "a=mid:0",
        "a=sendonly",
        "a=rid:q send",
        "a=rid: send pt=1",
        "a=simulcast:send q;~h,,;",
        "a=simulcast:send",
        "a=extmap:1 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
    ]
)


@given(st.lists(LINES, max_size=30))
def test_any_mix_of_sdp_lines_is_read_or_refused(lines: list[str]):
    body = "\r\n".join(["v=0", *lines]).encode()
    with contextlib.suppress(SdpError):
        offer = parse(body)
        with contextlib.suppress(SdpError):
            agree_publish(offer)
        agree_play(offer, live="H264", profile=None, stream="s", ssrcs=(1, 2, 3))


@given(st.integers(0, 900), st.binary(max_size=8))
def test_an_offer_with_bytes_overwritten_is_read_or_refused(at: int, junk: bytes):
    offer = bytearray(an_obs_offer())
    offer[at : at + len(junk)] = junk
    with contextlib.suppress(SdpError):
        agree_publish(parse(bytes(offer)))


@given(st.binary(max_size=200))
@example(b"\x90\x60" + b"\x00" * 10 + b"\xbe\xde\xff\xff")
@example(b"\xb0\x60" + b"\x00" * 10 + b"\xff")
def test_any_bytes_are_a_packet_or_none(data: bytes):
    packet = parse_rtp(data)
    assert packet is None or len(packet.payload) <= len(data)
    for message in parse_rtcp(data):
        read_nack(message)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=12), st.sampled_from(["H264", "VP8"]))
@example([b"\x18\x00"], "H264")
@example([b"\x18\xff\xff\x67"], "H264")
@example([b"\x7c"], "H264")
@example([b"\x90\x80"], "VP8")
def test_any_payloads_are_assembled_without_an_error(payloads: list[bytes], codec: str):
    fmt: PayloadFormat = H264Format() if codec == "H264" else Vp8Format()
    assembler = Assembler(fmt, lambda frame: fmt.unpack(frame.payloads) and None)
    for index, payload in enumerate(payloads):
        packet = RtpPacket(
            marker=index % 3 == 2, payload_type=96, sequence=index, timestamp=index // 3, ssrc=1, payload=payload
        )
        assembler.push(packet, float(index))
        assembler.tick(float(index))


@given(st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=40), st.booleans()), max_size=60))
def test_a_publisher_may_send_anything_in_any_order(packets: list[tuple[int, bytes, bool]]):
    plan = IngestPlan(video={96: H264Format()}, video_rtx={97: 96}, audio=frozenset([111]))
    ingest = Ingest(plan, ssrc=1, bitrate_max_bps=1, on_frame=lambda *_: None, on_audio=lambda *_: None)
    for index, (sequence, payload, marker) in enumerate(packets):
        data = build_rtp(
            payload,
            marker=marker,
            payload_type=96 + sequence % 3,
            sequence=sequence,
            timestamp=index,
            ssrc=sequence % 2,
        )
        ingest.on_packet(data, False, float(index))
        ingest.on_packet(payload, True, float(index))
        ingest.tick(float(index))
    ingest.report(1e6)


@given(st.binary(max_size=12), st.binary(max_size=12), st.binary(max_size=12))
def test_running_numbers_of_any_payloads_are_shifted_without_an_error(before: bytes, after: bytes, other: bytes):
    assert len(continuing(before, after).apply(other)) == len(other)


@given(st.text(max_size=120))
@example("candidate:1 1 udp 1 host.local 1 typ host")
@example("1 1 udp x 192.0.2.1 1 typ host")
def test_any_candidate_line_is_used_or_dropped(line: str):
    candidate = usable_candidate(line, private=True)
    assert candidate is None or candidate.component == 1
    assert all(isinstance(each, str) for each in read_fragment(line.encode()).candidates)


@given(st.text(max_size=80))
@example("é" * 48)
@example("====")
def test_no_text_is_a_token_or_a_ref_by_accident(text: str):
    mint = TokenMint(b"0123456789abcdef")
    assert mint.session_of("whip", text) is None
    session_of_ref(text)
    session_of_ref("live_" + text)
