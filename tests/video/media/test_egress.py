"""Sending to one viewer: retransmissions are limited, and a viewer below the stream's bitrate gets keyframes only."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sightline.domain.value import replace
from sightline.video.media.codecs import H264Format, Vp8Format, vp8_numbers
from sightline.video.media.egress import HISTORY_PACKETS, RESEND_MAX, VideoLeg, Viewer
from sightline.video.media.layers import Layer
from sightline.video.media.stream import StreamFrame
from sightline.video.media.viewer_link import HOLD_FIRST_MS, RTT_FIRST_MS, THIN_FIRST_MS
from sightline.video.rtc.rtp import build_nack, build_receiver_report, build_rtp, parse_rtp, unwrap_rtx

VIDEO, RTX, THEIRS = 100, 101, 102
FMT = H264Format()


@dataclass
class Wire:
    """The receiving end of a viewer's connection; records what is sent."""

    sent: list[bytes] = field(default_factory=list)
    sealed: list[bytes] = field(default_factory=list)
    closed: bool = False
    congested: bool = False

    def send(self, data: bytes, *, rtcp: bool = False) -> None:
        if not rtcp:
            self.sent.append(data)

    def seal_frame(self, payloads: Sequence[bytes], *, sequence: int, **header: int) -> None:
        last = len(payloads) - 1
        self.sealed += [
            build_rtp(payload, marker=at == last, sequence=(sequence + at) & 0xFFFF, **header)
            for at, payload in enumerate(payloads)
        ]

    def send_sealed(self) -> None:
        self.sent += self.sealed
        self.sealed.clear()


def on_asyncio(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))  # type: ignore[arg-type]


def a_frame(index: int, *, key: bool, packets: int = 1) -> StreamFrame:
    return StreamFrame(
        sequence=index + 1,
        timestamp=index * 3000,
        payloads=tuple(b"\x65" + bytes(99) for _ in range(packets)),
        key=key,
        size=100 * packets,
        received_at_ms=index * 33,
        captured_at_ms=index * 33,
        captured_by_rtcp=False,
        publisher_epoch=1,
        format=FMT,
        layer=1,
    )


def forward(leg: VideoLeg, frame: StreamFrame, now_ms: float) -> None:
    leg.live(frame, now_ms)
    leg.flush()


def a_viewer() -> tuple[Viewer, VideoLeg, Wire, list[Viewer]]:
    wire: Any = Wire()
    asked: list[Viewer] = []
    viewer = Viewer("r", workspace_id="w", needs_key=asked.append, choose_layer=asked.append)
    viewer.peer = wire
    leg = viewer.video = VideoLeg(
        peer=wire, formats={"H264": (96, 97), "VP8": (98, 99)}, ssrc=VIDEO, rtx_ssrc=RTX, origin=0
    )
    return viewer, leg, wire, asked


def test_a_packet_is_sent_again_once_a_round_trip_and_a_few_times_in_all():
    viewer, leg, wire, _ = a_viewer()
    forward(leg, a_frame(0, key=True), 0.0)
    del wire.sent[:]
    request = build_nack(THEIRS, VIDEO, [0])
    for now_ms in range(0, 60, 5):
        viewer.on_packet(request, True, float(now_ms))
    assert len(wire.sent) == 1, "asked twelve times within one round trip"
    for now_ms in range(1_000, 60_000, 1_000):
        viewer.on_packet(request, True, float(now_ms))
    assert len(wire.sent) == RESEND_MAX


def test_a_retransmission_carries_the_packet_as_it_was_sent():
    viewer, leg, wire, _ = a_viewer()
    frame = replace(a_frame(0, key=True), payloads=(b"\x65first", b"\x65second", b"\x65last"))
    forward(leg, frame, 0.0)
    sent = [parse_rtp(data) for data in wire.sent]
    del wire.sent[:]
    viewer.on_packet(build_nack(THEIRS, VIDEO, [0, 1, 2]), True, 0.0)
    for data, original in zip(wire.sent, sent, strict=True):
        outer = parse_rtp(data)
        assert outer is not None
        assert original is not None
        assert (outer.ssrc, outer.payload_type, outer.timestamp) == (RTX, 97, original.timestamp)
        again = unwrap_rtx(outer, 96, VIDEO)
        assert again is not None
        assert (again.sequence, again.marker, again.payload) == (original.sequence, original.marker, original.payload)


def test_what_is_kept_for_retransmission_is_shared_by_all_viewers():
    frames = [replace(a_frame(index, key=True), payloads=(bytes(1200),) * 8) for index in range(HISTORY_PACKETS // 8)]
    legs = [a_viewer() for _ in range(10)]
    tracemalloc.start()
    for frame in frames:
        for _, leg, wire, _ in legs:
            forward(leg, frame, 0.0)
            del wire.sent[:]
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept / len(legs) < 250_000, "the packets alone are 1.2 MB"


@pytest.mark.parametrize(("lost", "arrives"), [(0, True), (100, True), (255, False)])
def test_a_report_says_that_video_arrives_unless_nothing_was_sent_or_all_is_lost(lost, arrives):
    viewer, leg, _, _ = a_viewer()
    report = build_receiver_report(
        ssrc=THEIRS, media_ssrc=VIDEO, lost_fraction=lost, lost=0, highest=0, jitter=0, lsr=0, dlsr=0
    )
    viewer.on_packet(report, True, 1_000.0)
    assert not viewer.receives, "nothing was sent"
    forward(leg, a_frame(0, key=True), 1_000.0)
    viewer.on_packet(report, True, 2_000.0)
    assert viewer.receives is arrives
    viewer.receives = False
    viewer.on_packet(report, True, 3_000.0)
    assert not viewer.receives, "nothing was sent since"


def test_the_round_trip_is_measured_by_the_viewers_reports():
    viewer, leg, wire, _ = a_viewer()
    forward(leg, a_frame(0, key=True), 0.0)
    for round_trip in range(20):
        sent_ms = round_trip * 1000.0
        viewer.report(1_700_000_000_000.0 + sent_ms, sent_ms, 0.0)
        (lsr,) = [ntp for ntp, at in viewer._reports_sent.items() if at == sent_ms]
        report = build_receiver_report(
            ssrc=THEIRS, media_ssrc=VIDEO, lost_fraction=0, lost=0, highest=0, jitter=0, lsr=lsr, dlsr=6554
        )
        viewer.on_packet(report, True, sent_ms + 100 + 40)  # held for 100 ms, 40 ms on the way
    del wire.sent[:]
    assert RTT_FIRST_MS > 60
    viewer.on_packet(build_nack(THEIRS, VIDEO, [0]), True, 30_000.0)
    viewer.on_packet(build_nack(THEIRS, VIDEO, [0]), True, 30_030.0)
    viewer.on_packet(build_nack(THEIRS, VIDEO, [0]), True, 30_060.0)
    assert len(wire.sent) == 2, "again after 40 ms"


def test_a_number_that_comes_round_again_starts_anew():
    viewer, leg, wire, _ = a_viewer()
    forward(leg, a_frame(0, key=True, packets=HISTORY_PACKETS + 1), 0.0)
    for _ in range(RESEND_MAX + 1):
        viewer.on_packet(build_nack(THEIRS, VIDEO, [HISTORY_PACKETS]), True, 1e6)
    del wire.sent[:]
    viewer.on_packet(build_nack(THEIRS, VIDEO, [0]), True, 2e6)
    assert wire.sent == [], "packet 0 is not kept any more"


def loses(viewer: Viewer, fraction: float, now_ms: float) -> None:
    report = build_receiver_report(
        ssrc=THEIRS, media_ssrc=VIDEO, lost_fraction=int(fraction * 256), lost=0, highest=0, jitter=0, lsr=0, dlsr=0
    )
    viewer.on_packet(report, True, now_ms)


def test_a_viewer_that_loses_much_gets_keyframes_only_and_then_everything_again():
    async def work() -> None:
        viewer, leg, wire, asked = a_viewer()

        def frames_sent() -> set[int]:
            return {packet.timestamp // 3000 for packet in map(parse_rtp, wire.sent) if packet is not None}

        forward(leg, a_frame(0, key=True), 0.0)
        loses(viewer, 0.5, 1_000.0)
        loses(viewer, 0.1, 2_000.0)
        forward(leg, a_frame(1, key=False), 2_100.0)
        assert frames_sent() == {0, 1}, "one bad report is not enough"
        loses(viewer, 0.5, 3_000.0)
        loses(viewer, 0.5, 4_000.0)
        forward(leg, a_frame(2, key=False), 4_100.0)
        forward(leg, a_frame(3, key=True), 4_200.0)
        forward(leg, a_frame(4, key=False), 4_300.0)
        assert frames_sent() == {0, 1, 3}
        assert viewer.wants_key(9_000.0)
        assert not viewer.wants_key(9_500.0), "not at every look"
        over_ms = 4_000.0 + THIN_FIRST_MS
        forward(leg, a_frame(5, key=False), over_ms)
        forward(leg, a_frame(6, key=True), over_ms + 100)
        forward(leg, a_frame(7, key=False), over_ms + 200)
        assert frames_sent() == {0, 1, 3, 6, 7}
        assert asked == []

    on_asyncio(work)


LOW, HIGH = 11, 22
BOTH = [Layer(LOW, 150_000), Layer(HIGH, 2_000_000)]


def a_layer_frame(layer: int, index: int, *, key: bool, late: int = 0) -> StreamFrame:
    """A VP8 frame of two packets: each layer counts its pictures from another number."""
    descriptor = bytes([0x90, 0xC0]) + (0x8000 | (layer * 100 + index)).to_bytes(2, "big") + bytes([layer + index])
    return replace(
        a_frame(index, key=key),
        timestamp=index * 3000 - late,
        payloads=(
            descriptor + bytes([0 if key else 1]) + f"{layer}:{index}".encode(),
            b"\x80" + descriptor[1:] + b"rest",
        ),
        format=Vp8Format(),
        layer=layer,
    )


def test_a_decoder_sees_one_stream_while_its_viewer_falls_to_a_lower_layer_and_rises_again():
    viewer, leg, wire, asked = a_viewer()

    def both(index: int, *, key: bool = False) -> None:
        for layer in (LOW, HIGH):
            forward(leg, a_layer_frame(layer, index, key=key, late=7_000 if layer == LOW else 0), index * 33.0)

    def layers_sent(since: int) -> list[str]:
        sent = [packet for packet in map(parse_rtp, wire.sent[since:]) if packet is not None]
        return [packet.payload[6:].decode() for packet in sent if packet.payload[0] & 0x10]

    leg.choose_layer(BOTH, 0.0)
    for index in range(4):
        both(index, key=index == 0)
    assert layers_sent(0) == [f"{HIGH}:{index}" for index in range(4)]
    loses(viewer, 0.5, 1_000.0)
    assert asked == []
    loses(viewer, 0.5, 2_000.0)
    assert asked == [viewer], "it asks for another layer at once"
    leg.choose_layer(BOTH, 2_000.0)
    assert (leg.layer, leg.awaits_layer) == (LOW, True)
    fallen = len(wire.sent)
    both(4)
    assert wire.sent[fallen:] == [], "the higher layer is what the link does not carry"
    both(5, key=True)
    both(6)
    assert layers_sent(fallen) == [f"{LOW}:5", f"{LOW}:6"]
    assert not leg.awaits_layer
    risen = len(wire.sent)
    leg.choose_layer(BOTH, 2_000.0 + HOLD_FIRST_MS)
    assert leg.layer == HIGH
    both(7)
    both(8, key=True)
    both(9)
    assert layers_sent(risen) == [f"{LOW}:7", f"{LOW}:8", f"{HIGH}:8", f"{HIGH}:9"], (
        "the lower layer until the keyframe"
    )

    packets = [packet for packet in map(parse_rtp, wire.sent) if packet is not None]
    numbers = [vp8_numbers(packet.payload) for packet in packets]
    assert [packet.sequence for packet in packets] == list(range(len(packets)))
    assert [packet.marker for packet in packets] == [False, True] * (len(packets) // 2)
    stamps = [packet.timestamp for packet in packets[::2]]
    assert stamps == sorted(set(stamps)), "each frame is later than the one before"
    pictures = [HIGH * 100 + index for index in range(len(packets) // 2)]
    assert [each.picture_id for each in numbers[::2]] == pictures
    assert [each.picture_id for each in numbers[1::2]] == pictures
    assert [each.level0 for each in numbers[::2]] == [HIGH + index for index in range(len(packets) // 2)]

    viewer.on_packet(build_nack(THEIRS, VIDEO, [len(packets) - 1]), True, 20_000.0)
    outer = parse_rtp(wire.sent[-1])
    assert outer is not None
    again = unwrap_rtx(outer, 98, VIDEO)
    assert again is not None
    assert again.payload == packets[-1].payload, "a retransmission has the numbers that were sent"


def test_a_viewer_that_joins_gets_the_frames_that_follow_its_replay():
    _, leg, wire, _ = a_viewer()
    leg.choose_layer(BOTH, 0.0)
    assert leg.replay([a_layer_frame(HIGH, index, key=index == 0) for index in range(3)], 5_000.0)
    forward(leg, a_layer_frame(LOW, 3, key=True), 5_001.0)
    forward(leg, a_layer_frame(HIGH, 3, key=False), 5_002.0)
    frames = [
        packet.payload[6:] for packet in map(parse_rtp, wire.sent) if packet is not None and packet.marker is False
    ]
    assert frames == [f"{HIGH}:{index}".encode() for index in range(4)]
