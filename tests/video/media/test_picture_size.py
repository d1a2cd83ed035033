"""Sizes are read from the bytes that the decoder gets, and pictures over the limit never reach it."""

import contextlib
from fractions import Fraction

import av
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sightline.video.media.picture_size import (
    SPS_MAX_BYTES,
    PictureLimit,
    PictureSize,
    PictureTooLargeError,
    UnreadableSizeError,
    sizes_of_h264,
    sizes_of_vp8,
)
from tests.video.support.bitstreams import START, a_pps, an_sps, annex_b, nal, ue

LIMIT = PictureLimit()


def an_encoder(name: str, width: int, height: int, pixels: str, **options: str) -> av.VideoCodecContext:
    codec = av.CodecContext.create(name, "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = width, height, pixels, Fraction(1, 30)
    codec.options = options
    return codec


def encoded(codec: av.VideoCodecContext, pixels: str) -> bytes:
    picture = av.VideoFrame(codec.width, codec.height, pixels)
    for plane in picture.planes:
        plane.update(bytes(plane.buffer_size))  # the encoder of 10 bits crashes on larger samples
    picture.pts = 0
    return b"".join(bytes(packet) for packet in [*codec.encode(picture), *codec.encode(None)])


@pytest.mark.parametrize(
    ("width", "height", "pixels", "parameters", "coded", "references", "octets"),
    [
        (1920, 1080, "yuv420p", "ref=4", (1920, 1088), 4, 1920 * 1088 * 3 // 2),
        (1280, 720, "yuv420p", "interlaced=1", (1280, 736), 1, 1280 * 736 * 3 // 2),
        (640, 360, "yuv420p10le", "cqm=jvt", (640, 368), 1, 640 * 368 * 3),
        (720, 406, "yuv444p", "cqm=jvt", (720, 416), 1, 720 * 416 * 3),
        (720, 406, "yuv422p", "", (720, 416), 1, 720 * 416 * 2),
    ],
)
def test_the_coded_size_of_every_profile_is_read(
    width: int, height: int, pixels: str, parameters: str, coded: tuple[int, int], references: int, octets: int
):
    options = {"preset": "ultrafast"} | ({"x264-params": parameters} if parameters else {})
    stream = encoded(an_encoder("libx264", width, height, pixels, **options), pixels)
    assert set(sizes_of_h264(stream)) == {PictureSize(*coded, references, octets)}


def test_the_size_of_a_vp8_keyframe_is_read():
    stream = encoded(an_encoder("libvpx", 1270, 718, "yuv420p"), "yuv420p")
    assert sizes_of_vp8(stream) == [PictureSize(1280, 720, 3, 1280 * 720 * 3 // 2)]
    assert sizes_of_vp8(b"\x11" + stream[1:]) == []
    with pytest.raises(UnreadableSizeError):
        sizes_of_vp8(stream[:9])


@pytest.mark.parametrize(
    ("size", "fits"),
    [
        (PictureSize(3840, 2160, 1, 12_441_600), True),
        (PictureSize(2160, 3840, 1, 12_441_600), True),
        (PictureSize(3856, 2160, 1, 12_493_440), False),
        (PictureSize(16384, 496, 1, 12_189_696), False),
        (PictureSize(3840, 2160, 6, 12_441_600), True),
        (PictureSize(3840, 2160, 7, 12_441_600), False),
        (PictureSize(3840, 2160, 6, 24_883_200), False),
        (PictureSize(1920, 1088, 16, 3_133_440), True),
    ],
)
def test_the_limit_counts_area_longest_side_and_references(size: PictureSize, fits: bool):
    if fits:
        LIMIT.require(size)
    else:
        with pytest.raises(PictureTooLargeError):
            LIMIT.require(size)


def largest(stream: bytes) -> tuple[int, int]:
    return max((size.width, size.height) for size in sizes_of_h264(stream))


def test_a_cropped_picture_counts_by_what_is_decoded():
    assert largest(annex_b([an_sps(16384, 8192, shown=(64, 64)), a_pps()])) == (16384, 8192)


def test_a_set_behind_a_start_code_inside_another_unit_is_seen():
    hidden = b"\x65\x88" + b"\0\0\1" + an_sps(16384, 4096)
    assert largest(annex_b([an_sps(640, 352), hidden])) == (16384, 4096)


def test_a_set_that_reads_otherwise_with_its_escape_bytes_counts_by_both():
    bits = f"{66:08b}{0:016b}" + ue(64) + ue(0) + ue(2) + ue(1) + "0" + ue(39) + ue(21) + "11"
    stream = annex_b([nal(0x67, bits)])
    assert b"\0\0\3" in stream
    assert sizes_of_h264(stream)[0] == PictureSize(640, 352, 1, 640 * 352 * 3 // 2)
    assert len(sizes_of_h264(stream)) == 2


@pytest.mark.parametrize(
    "bits",
    [
        f"{66:08b}{0:08b}{51:08b}",
        f"{66:08b}{0:08b}{51:08b}" + "0" * 40,
        f"{100:08b}{0:08b}{51:08b}" + ue(0) + ue(4),
        f"{66:08b}{0:08b}{51:08b}" + "0" * 31 + "1" + "1" * 31 + "0" * 64,
    ],
)
def test_a_malformed_set_is_refused(bits: str):
    with pytest.raises(UnreadableSizeError):
        sizes_of_h264(annex_b([nal(0x67, bits)]))


def test_a_number_of_31_bits_is_a_size_that_is_too_large():
    bits = f"{66:08b}{0:08b}{51:08b}" + ue(0) + ue(0) + ue(2) + ue(1) + "0" + ue(2**31 - 2) + ue(2**31 - 2) + "11"
    size = sizes_of_h264(annex_b([nal(0x67, bits)]))[0]
    with pytest.raises(PictureTooLargeError):
        LIMIT.require(size)


def test_many_or_long_sets_are_refused():
    with pytest.raises(UnreadableSizeError):
        sizes_of_h264(annex_b([an_sps(640, 352, identity=number) for number in range(20)]))
    with pytest.raises(UnreadableSizeError):
        sizes_of_h264(annex_b([an_sps(640, 352)] * 1_000))
    with pytest.raises(UnreadableSizeError):
        sizes_of_h264(START + b"\x67" + b"\xff" * SPS_MAX_BYTES)
    assert len(set(sizes_of_h264(annex_b([an_sps(640, 352)] * 60)))) == 1


@given(st.binary(max_size=80))
@example(b"")
@example(b"\x64" + b"\xff" * 60)
def test_any_set_has_a_size_or_is_refused(body: bytes):
    with contextlib.suppress(UnreadableSizeError):
        for size in sizes_of_h264(START + b"\x67" + body):
            assert size.width >= 16
            assert size.height >= 16
            assert size.octets >= 384
    with contextlib.suppress(UnreadableSizeError):
        sizes_of_vp8(body)
