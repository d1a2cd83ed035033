"""The assembler delivers each frame complete and in order, or not at all. No I/O."""

import random
import tracemalloc

import pytest

from sightline.video.media.assembler import FRAME_MAX_BYTES, FRAME_MAX_PACKETS, GAP_MAX_MS, Assembler, EncodedFrame
from sightline.video.media.codecs import H264Format
from sightline.video.rtc.rtp import RtpPacket
from tests.video.media.builders import a_packet, an_h264_stream


def an_assembler() -> tuple[Assembler, list[EncodedFrame]]:
    frames: list[EncodedFrame] = []
    return Assembler(H264Format(), frames.append), frames


def numbers(frames: list[EncodedFrame]) -> list[int]:
    return [((frame.timestamp - 0xFFFFF000) & 0xFFFFFFFF) // 3000 for frame in frames]


def feed(assembler: Assembler, packets: list[RtpPacket], *, every_ms: float = 1.0, from_ms: float = 0.0) -> float:
    now_ms = from_ms
    for packet in packets:
        assembler.push(packet, now_ms)
        assembler.tick(now_ms)
        now_ms += every_ms
    return now_ms


def test_frames_leave_at_their_marker_across_the_wrap_of_sequence_and_timestamp():
    assembler, frames = an_assembler()
    for index, packets in enumerate(an_h264_stream(30)):
        feed(assembler, packets)
        assert numbers(frames) == list(range(index + 1))
    assert [frame.key for frame in frames] == [index % 10 == 0 for index in range(30)]


def test_the_bytes_of_a_frame_are_its_own():
    assembler, frames = an_assembler()
    for packets in an_h264_stream(3):
        feed(assembler, packets)
    assert b"2:0;2:1;2:2;2:3;" in H264Format().unpack(frames[2].payloads)


def test_reordered_packets_make_the_same_frames():
    assembler, frames = an_assembler()
    stream = [packet for packets in an_h264_stream(60) for packet in packets]
    order = random.Random(3)
    shuffled = [stream[0], *sorted(stream[1:], key=lambda packet: stream.index(packet) + order.uniform(0, 12))]
    feed(assembler, shuffled)
    assert numbers(frames) == list(range(60))


def test_duplicates_change_nothing():
    assembler, frames = an_assembler()
    for packets in an_h264_stream(12):
        feed(assembler, [packet for packet in packets for _ in range(3)])
    assert numbers(frames) == list(range(12))


def test_a_lost_packet_is_asked_for_and_when_it_comes_nothing_is_missing():
    assembler, frames = an_assembler()
    stream = [packet for packets in an_h264_stream(9) for packet in packets]
    lost = stream.pop(12)
    now_ms = feed(assembler, stream)
    assert assembler.has_gap
    assert assembler.due_nacks(now_ms + 60) == [lost.sequence]
    assert assembler.due_nacks(now_ms + 61) == []
    assert assembler.due_nacks(now_ms + 200) == [lost.sequence]
    assembler.push(lost, now_ms + 210)
    assert numbers(frames) == list(range(9))
    assert not assembler.has_gap


def test_a_gap_that_stays_drops_everything_up_to_the_next_keyframe():
    assembler, frames = an_assembler()
    packets = list(an_h264_stream(25))
    del packets[3][2]
    now_ms = feed(assembler, [packet for part in packets[:8] for packet in part])
    assert numbers(frames) == [0, 1, 2]
    assembler.tick(now_ms + GAP_MAX_MS)
    assert assembler.needs_key
    feed(assembler, [packet for part in packets[8:] for packet in part], from_ms=now_ms + GAP_MAX_MS)
    assert numbers(frames) == [0, 1, 2, *range(10, 25)]


def test_a_whole_keyframe_behind_a_gap_ends_the_waiting():
    assembler, frames = an_assembler()
    packets = list(an_h264_stream(14))
    del packets[8][1]
    feed(assembler, [packet for part in packets for packet in part], every_ms=6.0)
    assert numbers(frames) == [*range(8), *range(10, 14)]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_lost_only_frames_that_can_be_decoded_come_out(seed: int):
    """Every delivered delta frame must directly follow the previously delivered frame."""
    chance = random.Random(seed)
    assembler, frames = an_assembler()
    now_ms = 0.0
    for packets in an_h264_stream(200, gop=15):
        for packet in packets:
            if chance.random() > 0.06:
                assembler.push(packet, now_ms)
            assembler.tick(now_ms)
            now_ms += 33 / 5
    given = numbers(frames)
    assert given
    for before, after, frame in zip(given, given[1:], frames[1:], strict=False):
        assert frame.key or after == before + 1, (before, after)
    for frame, number in zip(frames, given, strict=True):
        body = H264Format().unpack(frame.payloads)
        assert all(f"{number}:{part};".encode() in body for part in range(4)), "a part is missing"


def test_an_outage_longer_than_the_buffer_starts_again_at_a_keyframe():
    assembler, frames = an_assembler()
    packets = list(an_h264_stream(2000, gop=10))
    feed(assembler, [packet for part in packets[:5] for packet in part])
    feed(assembler, [packet for part in packets[995:1015] for packet in part], from_ms=30_000)
    assert numbers(frames)[:5] == [0, 1, 2, 3, 4]
    assert numbers(frames)[5] == 1000


def test_a_frame_that_never_ends_is_dropped_and_the_next_keyframe_is_delivered():
    assembler, frames = an_assembler()
    feed(assembler, next(an_h264_stream(1)))
    body = bytes([0x7C, 0x05]) + bytes(1_150)
    tracemalloc.start()
    for number in range(3 * FRAME_MAX_BYTES // len(body)):
        assembler.push(a_packet(65_505 + number, body, timestamp=7), 1.0)
    held, _ = tracemalloc.get_traced_memory()
    for number in range(3 * FRAME_MAX_PACKETS):
        assembler.push(a_packet(65_505 + 3 * FRAME_MAX_BYTES // len(body) + number, b"\x61", timestamp=8), 1.0)
    tracemalloc.stop()
    assert held < 100_000
    start = 65_505 + 3 * FRAME_MAX_BYTES // len(body) + 3 * FRAME_MAX_PACKETS
    feed(assembler, next(an_h264_stream(1, start=start)))
    assert len(frames) == 2
