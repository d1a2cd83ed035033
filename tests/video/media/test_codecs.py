"""Keyframes and frame starts are recognised in every packetization. No I/O."""

from sightline.video.media.codecs import H264Format, Vp8Format, continuing, vp8_numbers
from tests.video.media.builders import PPS, SPS

IDR = b"\x65idr"
DELTA = b"\x41delta"
SEI = b"\x06sei"


def stap(*nals: bytes) -> bytes:
    return bytes([24]) + b"".join(len(nal).to_bytes(2, "big") + nal for nal in nals)


def test_h264_keyframes_are_seen_single_aggregated_and_fragmented():
    fmt = H264Format()
    assert fmt.is_key(IDR)
    assert fmt.is_key(stap(SPS, PPS, IDR))
    assert fmt.is_key(bytes([0x7C, 0x85]) + b"start of an IDR")
    assert fmt.is_key(bytes([0x7C, 0x05]) + b"middle of an IDR")
    assert not fmt.is_key(DELTA)
    assert not fmt.is_key(bytes([0x7C, 0x81]) + b"start of a slice")
    assert not fmt.is_key(b"")


def test_h264_frames_surely_open_with_what_stands_before_slices():
    fmt = H264Format()
    assert fmt.surely_opens(SPS)
    assert fmt.surely_opens(SEI)
    assert fmt.surely_opens(stap(SPS, PPS))
    assert not fmt.surely_opens(IDR)
    assert not fmt.surely_opens(DELTA)


def test_a_keyframe_without_parameter_sets_gets_the_last_ones():
    fmt = H264Format()
    assert fmt.complete([IDR], key=True) is None
    assert fmt.complete([SPS, PPS], key=False) is None
    assert fmt.complete([IDR], key=True) == (SPS, PPS, IDR)
    assert fmt.complete([stap(SPS, PPS), IDR], key=True) == (stap(SPS, PPS), IDR)
    assert fmt.profile == "42c01f"


def test_parameter_sets_may_come_in_the_description():
    assert H264Format([SPS, PPS]).complete([IDR], key=True) == (SPS, PPS, IDR)


def test_h264_unpacks_to_annex_b():
    fmt = H264Format()
    fragments = [bytes([0x7C, 0x85]) + b"ab", bytes([0x7C, 0x05]) + b"cd", bytes([0x7C, 0x45]) + b"ef"]
    start = b"\0\0\0\1"
    assert fmt.unpack([stap(SPS, PPS), *fragments]) == start + SPS + start + PPS + start + b"\x65abcdef"


def test_vp8_keyframes_are_seen_behind_every_descriptor():
    fmt = Vp8Format()
    for descriptor in (b"\x10", b"\x90\x80\x05", b"\x90\x80\x85\x05", b"\x90\xe0\x05\x01\x20"):
        assert fmt.is_key(descriptor + b"\x00key"), descriptor
        assert not fmt.is_key(descriptor + b"\x01delta"), descriptor
        assert fmt.surely_opens(descriptor + b"\x01")
    assert not fmt.surely_opens(b"\x00\x01")
    assert not fmt.surely_opens(b"\x11\x01"), "partition 1"


def test_vp8_unpacks_without_descriptors():
    assert Vp8Format().unpack([b"\x10ab", b"\x80\x80\x05cd"]) == b"abcd"


def test_streams_of_one_payload_type_keep_their_own_parameter_sets():
    described = H264Format([SPS, PPS])
    one, other = described.for_stream(), described.for_stream()
    larger = SPS[:3] + b"\x28" + SPS[4:]
    assert one.complete([stap(larger, PPS), IDR], key=True) is not None
    assert one.complete([IDR], key=True) == (larger, PPS, IDR)
    assert other.complete([IDR], key=True) == (SPS, PPS, IDR)


LONG, SHORT = b"\x90\xf0\xff\xff\xfe\x9f", b"\x90\xf0\x7f\xff\x9f"
"""Descriptors with a picture id of 15 or 7 bits, TL0PICIDX, and TID 2 with KEYIDX; all at or near their ends."""


def test_the_numbers_of_vp8_continue_over_their_ends_and_the_rest_stays():
    for before, picture_id, level0 in ((LONG, 0, 0xFF), (SHORT, 0, 0)):
        after = (b"\x90\xf0\x81\x00\x07\x83" if before is LONG else b"\x90\xf0\x11\x07\x83") + b"\x00picture"
        shifted = continuing(before + b"\x01", after).apply(after)
        numbers = vp8_numbers(shifted)
        assert (numbers.picture_id, numbers.level0, numbers.key_index) == (picture_id, level0, 0)
        assert len(shifted) == len(after)
        assert shifted.endswith(b"\x00picture")
        assert shifted[numbers.key_at] & 0xE0 == 0x80, "the temporal layer"
        assert Vp8Format().is_key(shifted)


def test_a_shift_is_the_same_for_all_packets_of_the_frames_after_it():
    shift = continuing(b"\x90\x80\x81\x02\x01", b"\x90\x80\x90\x00\x00")
    assert shift.apply(b"\x90\x80\x90\x01\x01ab") == b"\x90\x80\x81\x04\x01ab", "the next picture"
    assert shift.apply(b"\x80\x80\x90\x01ab") == b"\x80\x80\x81\x04ab", "its second packet"


def test_payloads_without_numbers_or_cut_off_stay_as_they_are():
    shift = continuing(b"\x90\x80\x05\x00", b"\x90\x80\x09\x00")
    for payload in (b"", b"\x10", b"\x10\x00", b"\x90", b"\x90\x80", b"\x90\x00\x00", b"\x90\xf0"):
        assert shift.apply(payload) == payload
    assert continuing(b"\x10\x00", b"\x90\x80\x09\x00").apply(b"\x90\x80\x09\x00") == b"\x90\x80\x09\x00"
