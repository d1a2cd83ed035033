"""Streams of simulcast are told apart by the ids in their packets."""

import struct

from sightline.video.media.assembler import EncodedFrame
from sightline.video.media.codecs import H264Format
from sightline.video.media.ingest import Ingest, IngestPlan
from sightline.video.rtc.rtp import RtpPacket, build_rtp
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
        on_frame=lambda _, frame: frames.append(frame),
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
