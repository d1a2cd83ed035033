"""Colours and aspect ratio of the JPEGs."""

from fractions import Fraction

import av
import numpy as np
import pytest
import simplejpeg

from sightline.video.media.codecs import H264Format
from sightline.video.media.picture import Picture, PictureDecoder, SizeChanges, encode_jpeg, luma_thumb
from sightline.video.media.picture_size import PictureLimit
from sightline.video.media.stream import StreamFrame

RED_709 = (63, 102, 240)
RED_601 = (81, 90, 240)
BT709 = 1


def a_decoder() -> PictureDecoder:
    return PictureDecoder("h264", PictureLimit(), SizeChanges(lambda: 0))


def a_flat_picture(width: int, height: int, colour: tuple[int, int, int], *, colorspace: int | None = None) -> Picture:
    frame = av.VideoFrame(width, height, "yuv420p")
    if colorspace is not None:
        frame.colorspace = colorspace
    for plane, value in zip(frame.planes, colour, strict=True):
        plane.update(bytes([value]) * plane.buffer_size)
    source = a_source(())
    return Picture(frame, source, luma_thumb(frame), False)


def a_source(payloads: tuple[bytes, ...]) -> StreamFrame:
    return StreamFrame(
        sequence=1,
        timestamp=0,
        payloads=payloads,
        key=True,
        size=0,
        received_at_ms=0,
        captured_at_ms=0,
        captured_by_rtcp=False,
        publisher_epoch=1,
        layer=1,
        format=H264Format(),
    )


@pytest.mark.parametrize(
    ("width", "height", "colour", "colorspace"),
    [
        (1280, 720, RED_709, None),
        (1920, 1080, RED_709, None),
        (640, 360, RED_601, None),
        (640, 360, RED_709, BT709),
    ],
)
def test_video_that_does_not_name_its_colours_is_bt709_from_720p_on(
    width: int, height: int, colour: tuple[int, int, int], colorspace: int | None
):
    jpeg, _, _ = encode_jpeg(a_flat_picture(width, height, colour, colorspace=colorspace), None, 95)
    red = simplejpeg.decode_jpeg(jpeg).reshape(-1, 3).mean(axis=0)
    assert np.abs(red - [255, 0, 0]).max() < 6, red


def test_a_picture_with_oblong_pixels_is_served_with_square_ones():
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 720, 576, "yuv420p"
    encoder.time_base = Fraction(1, 30)
    encoder.sample_aspect_ratio = Fraction(16, 11)
    encoder.options = {"tune": "zerolatency", "bf": "0"}
    frame = a_flat_picture(720, 576, (120, 128, 128)).frame
    frame.pts = 0
    encoded = b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
    nals = tuple(nal for nal in encoded.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1") if nal)
    picture = a_decoder().decode([a_source(nals)])[1]
    assert picture is not None
    jpeg, width, height = encode_jpeg(picture, None, 80)
    assert (width, height) == (720, 396), "never enlarged: the height is reduced"
    assert simplejpeg.decode_jpeg_header(jpeg)[:2] == (396, 720)
    assert encode_jpeg(picture, 360, 80)[1:] == (360, 198)
