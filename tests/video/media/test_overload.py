"""A process that is behind drops late media up to the next keyframe and reports the true age of its frames."""

from sightline.video.media.assembler import EncodedFrame
from sightline.video.media.codecs import H264Format
from sightline.video.media.ingest import LATE_MAX_MS, LATE_OVER_MS, Ingest, IngestPlan
from sightline.video.rtc.rtp import RtpPacket, build_rtp
from tests.video.media.builders import an_h264_stream

FRAME_MS = 33.0


def as_bytes(packet: RtpPacket, *, ssrc: int = 1) -> bytes:
    return build_rtp(
        packet.payload,
        marker=packet.marker,
        payload_type=96,
        sequence=packet.sequence,
        timestamp=packet.timestamp,
        ssrc=ssrc,
    )


def an_ingest(frames: list[EncodedFrame]) -> Ingest:
    return Ingest(
        IngestPlan(video={96: H264Format()}),
        ssrc=9,
        bitrate_max_bps=0,
        on_frame=lambda _, __, frame: frames.append(frame),
        on_audio=lambda *_: None,
    )


def test_late_media_is_dropped_to_the_next_keyframe_once_the_process_has_caught_up():
    frames: list[EncodedFrame] = []
    ingest = an_ingest(frames)
    late_ms = {5: LATE_MAX_MS + 50, 6: LATE_MAX_MS - 50, 7: LATE_OVER_MS + 1, 8: 0.0}
    for index, packets in enumerate(an_h264_stream(30, gop=10)):
        for packet in packets:
            ingest.on_packet(as_bytes(packet), False, index * FRAME_MS, late_ms=late_ms.get(index, 1.0))
    came = [round(frame.arrived_ms / FRAME_MS) for frame in frames]
    assert came == [0, 1, 2, 3, 4, *range(10, 30)], "from the late frame to the keyframe nothing is shown"
    assert ingest.overloads == 1
    assert not ingest.has_gap, "nothing of it is asked for again"


def test_several_streams_give_one_picture_after_another_not_a_mixture():
    frames: list[EncodedFrame] = []
    ingest = an_ingest(frames)
    low, high = an_h264_stream(90, gop=10, parts=1), an_h264_stream(90, gop=10, parts=6, start=100)
    for index, (one, other) in enumerate(zip(low, high, strict=True)):
        for ssrc, packets in ((1, one), (2, other)):
            for packet in packets:
                ingest.on_packet(as_bytes(packet, ssrc=ssrc), False, index * FRAME_MS)
    parts = [len(frame.payloads) - frame.key for frame in frames]
    assert parts == sorted(parts), "one change, from the low stream to the high one"
    assert parts.count(6) >= 45
    assert len(frames) >= 78, f"{90 - len(frames)} frames lost at the change"
