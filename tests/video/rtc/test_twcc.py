"""Transport-wide congestion control feedback, decoded by an independent reader written from the draft."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from sightline.video.rtc.rtp import build_rtp, parse_rtcp
from sightline.video.rtc.twcc import ArrivalRecorder, transport_sequence

OURS, THEIRS = 0x11111111, 0x22222222


def read(message: bytes) -> tuple[int, list[float | None]]:
    """Decode one feedback message to (base sequence, arrival in ms or None for each packet)."""
    (one,) = parse_rtcp(message)
    assert (one.kind, one.count & 0x1F) == (205, 15)
    body = one.body[: -one.body[-1]] if message[0] & 0x20 else one.body
    ssrc, media, base, count = struct.unpack_from("!IIHH", body)
    assert (ssrc, media) == (OURS, THEIRS)
    at_ticks = int.from_bytes(body[12:15], "big") * 256
    offset, symbols = 16, []
    while len(symbols) < count:
        (chunk,) = struct.unpack_from("!H", body, offset)
        offset += 2
        if chunk >> 15 == 0:
            symbols += [chunk >> 13 & 3] * (chunk & 0x1FFF)
        elif chunk >> 14 & 1 == 0:
            symbols += [chunk >> 13 - bit & 1 for bit in range(14)]
        else:
            symbols += [chunk >> 12 - 2 * bit & 3 for bit in range(7)]
    arrivals: list[float | None] = []
    for symbol in symbols[:count]:
        if symbol == 0:
            arrivals.append(None)
            continue
        if symbol == 1:
            at_ticks += body[offset]
            offset += 1
        else:
            assert symbol == 2
            at_ticks += struct.unpack_from("!h", body, offset)[0]
            offset += 2
        arrivals.append(at_ticks / 4)
    assert offset == len(body), "nothing is left over"
    return base, arrivals


def test_the_bytes_of_a_small_report_are_the_draft_s():
    recorder = ArrivalRecorder(OURS)
    recorder.record(1000, 640.0)  # reference time 10, delta 0
    recorder.record(1001, 641.0)  # 4 ticks of 250 us
    recorder.record(1003, 741.0)  # 1002 is lost; 400 ticks need two bytes
    assert recorder.reports(THEIRS) == [
        bytes.fromhex(
            "af cd 0006"  # version 2, padding, format 15; 205; 7 words
            "11111111 22222222"
            "03e8 0004"  # base 1000, 4 statuses
            "00000a 00"  # reference time 10, first feedback
            "d480"  # two-bit vector: small, small, lost, large
            "00 04 0190"
            "00 02"  # padding
        )
    ]


def test_a_long_run_is_one_chunk():
    recorder = ArrivalRecorder(OURS)
    for sequence in range(100):
        recorder.record(sequence, 64.0 + sequence)
    (message,) = recorder.reports(THEIRS)
    assert message[20:22] == bytes([0x20, 100]), "run of 100 small deltas"


arrival_lists = st.lists(st.tuples(st.integers(1, 30), st.floats(-40, 400, allow_nan=False)), min_size=1, max_size=300)


@given(arrival_lists, st.integers(0, 0xFFFF), st.integers(1, 50))
def test_every_arrival_is_reported_once_with_its_time(steps: list[tuple[int, float]], first: int, every: int):
    recorder = ArrivalRecorder(OURS)
    sequence, at_ms = first, 100_000.0
    wanted: dict[int, float] = {}
    got: dict[int, float] = {}

    def collect() -> None:
        for message in recorder.reports(THEIRS):
            base, arrivals = read(message)
            assert arrivals[0] is not None, "a report begins with an arrival"
            for index, arrived in enumerate(arrivals):
                if arrived is not None:
                    number = (base + index) & 0xFFFF
                    assert number not in got, "reported twice"
                    got[number] = arrived
        assert recorder.reports(THEIRS) == []

    for count, (gap, wait_ms) in enumerate(steps):
        sequence, at_ms = sequence + gap, at_ms + wait_ms
        recorder.record(sequence & 0xFFFF, at_ms)
        wanted[sequence & 0xFFFF] = at_ms
        if count % every == 0:
            collect()
    collect()
    assert got.keys() == wanted.keys()
    assert all(abs(got[number] - wanted[number]) <= 0.125 for number in got), "rounded to 250 us"


def test_a_packet_that_arrives_late_is_reported_between_its_neighbours():
    recorder = ArrivalRecorder(OURS)
    for sequence, at_ms in ((10, 1000.0), (11, 1010.0), (13, 1030.0)):
        recorder.record(sequence, at_ms)
    assert read(recorder.reports(THEIRS)[0]) == (10, [1000.0, 1010.0, None, 1030.0])
    recorder.record(12, 1040.0)
    assert read(recorder.reports(THEIRS)[0]) == (12, [1040.0, 1030.0])


def test_a_sender_that_skips_numbers_is_not_answered_with_megabytes():
    recorder = ArrivalRecorder(OURS)
    recorder.record(0, 1000.0)
    recorder.record(30_000, 1001.0)
    assert sum(map(len, recorder.reports(THEIRS))) < 100


def test_the_sequence_number_is_read_from_both_forms_of_header_extension():
    plain = build_rtp(b"payload", marker=True, payload_type=96, sequence=1, timestamp=2, ssrc=3)

    def extended(profile: int, content: bytes) -> bytes:
        content += bytes(-len(content) % 4)
        return bytes([plain[0] | 0x10]) + plain[1:12] + struct.pack("!HH", profile, len(content) // 4) + content + b"x"

    assert transport_sequence(extended(0xBEDE, b"\x12abc\x51\x12\x34"), 5) == 0x1234
    assert transport_sequence(extended(0x1000, b"\x01\x00\x05\x02\x12\x34"), 5) == 0x1234
    assert transport_sequence(extended(0xBEDE, b"\x51\x12\x34"), 6) is None
    assert transport_sequence(extended(0xBEDE, b"\x50\x12"), 5) is None, "too short"
    assert transport_sequence(extended(0xBEDE, b"\x51\x12\x34")[:18], 5) is None, "cut off"
    assert transport_sequence(plain, 5) is None
