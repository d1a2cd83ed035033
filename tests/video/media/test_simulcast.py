"""Streams of simulcast are told apart by the ids in their packets, and assembled if somebody watches them."""

import struct
from dataclasses import dataclass, field
from typing import Any

from sightline.video.media.assembler import EncodedFrame
from sightline.video.media.codecs import H264Format
from sightline.video.media.ingest import Ingest, IngestPlan
from sightline.video.rtc.rtp import FMT_PLI, RTCP_PSFB, RtpPacket, build_rtp, parse_rtcp
from tests.video.media.builders import an_h264_stream

RID, REPAIRED_RID = 10, 11
MEDIA, REPAIR = 96, 97


def marked(packet: bytes, ident: int, name: bytes) -> bytes:
    """A packet with one header extension in the form of one byte."""
    content = bytes([ident << 4 | len(name) - 1]) + name
    content += bytes(-len(content) % 4)
    extension = struct.pack("!HH", 0xBEDE, len(content) // 4) + content
    return bytes([packet[0] | 0x10]) + packet[1:12] + extension + packet[12:]


def media_of(packet: RtpPacket, ssrc: int, name: bytes) -> bytes:
    data = build_rtp(
        packet.payload,
        marker=packet.marker,
        payload_type=MEDIA,
        sequence=packet.sequence,
        timestamp=packet.timestamp,
        ssrc=ssrc,
    )
    return marked(data, RID, name)


def repair_of(packet: RtpPacket, payload: bytes, ssrc: int, name: bytes) -> bytes:
    """A retransmission of a packet, with this payload."""
    data = build_rtp(
        packet.sequence.to_bytes(2, "big") + payload,
        marker=packet.marker,
        payload_type=REPAIR,
        sequence=1,
        timestamp=packet.timestamp,
        ssrc=ssrc,
    )
    return marked(data, REPAIRED_RID, name)


def test_a_retransmission_of_another_stream_does_not_fill_a_gap_of_the_one_that_is_shown():
    frames: list[EncodedFrame] = []
    ingest = Ingest(
        IngestPlan(video={MEDIA: H264Format()}, video_rtx={REPAIR: MEDIA}, rid=RID, repaired_rid=REPAIRED_RID),
        ssrc=9,
        bitrate_max_bps=0,
        on_frame=lambda _, __, frame: frames.append(frame),
        on_audio=lambda *_: None,
    )
    shown, other = list(an_h264_stream(4, gop=10)), list(an_h264_stream(4, gop=10, parts=1))
    lost = shown[2][1]
    for index in range(4):
        for packet in shown[index]:
            if packet is not lost:
                ingest.on_packet(media_of(packet, 1, b"f"), False, index * 33.0)
        for packet in other[index]:
            ingest.on_packet(media_of(packet, 2, b"q"), False, index * 33.0)
    ingest.on_packet(repair_of(lost, b"of another stream", 22, b"q"), False, 140.0)
    assert len(frames) == 2, "the third frame waits for its packet"
    ingest.on_packet(repair_of(lost, lost.payload, 11, b"f"), False, 150.0)
    assert [frame.payloads for frame in frames] == [tuple(packet.payload for packet in each) for each in shown]


@dataclass
class Publisher:
    """The sending end of a publisher's connection; records whom we asked for keyframes."""

    asked: list[int] = field(default_factory=list)

    def send(self, data: bytes, *, rtcp: bool = False) -> None:
        assert rtcp
        for message in parse_rtcp(data):
            if message.kind == RTCP_PSFB and message.count == FMT_PLI:
                self.asked.append(int.from_bytes(message.body[4:8], "big"))


def test_of_the_lower_layers_only_those_that_viewers_get_are_assembled_and_asked_for_keyframes():
    came: list[tuple[int, EncodedFrame]] = []
    ingest = Ingest(
        IngestPlan(video={MEDIA: H264Format()}, rid=RID),
        ssrc=9,
        bitrate_max_bps=0,
        on_frame=lambda _, stream, frame: came.append((stream.ssrc, frame)),
        on_audio=lambda *_: None,
    )
    publisher: Any = Publisher()
    ingest.peer = publisher
    streams = {ssrc: list(an_h264_stream(180, gop=30, parts=parts)) for ssrc, parts in ((1, 1), (2, 3), (3, 9))}

    def arrives(first: int, last: int) -> set[int]:
        del came[:], publisher.asked[:]
        for index in range(first, last):
            for ssrc, frames in streams.items():
                for packet in frames[index]:
                    ingest.on_packet(media_of(packet, ssrc, b"qhf"[ssrc - 1 : ssrc]), False, index * 33.0)
        return {ssrc for ssrc, _ in came}

    arrives(0, 70)
    assert arrives(70, 90) == {3}
    assert [layer.ssrc for layer in ingest.layers(90 * 33.0)] == [1, 2, 3]
    rates = [layer.bps for layer in ingest.layers(90 * 33.0)]
    assert rates == sorted(rates)
    ingest.wanted = frozenset({1})
    assert arrives(95, 130) == {1, 3}
    assert set(publisher.asked) == {1}, "the layer that begins in the middle of a group"
    low = [frame for ssrc, frame in came if ssrc == 1]
    assert low[0].key
    assert len(low) == 10, "from the keyframe at 120 on"
    ingest.wanted = frozenset()
    assert arrives(130, 150) == {3}
    assert publisher.asked == []
