"""Pictures of a whole server: shape, size and colours of all kinds of video, changes of size, a picture that stands."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import simplejpeg
import trio

from sightline.ports.video import FrameQuery, PictureState
from tests.groups import rest_at_night
from tests.video.support.harness import a_frame, a_rig, a_session_id, next_frame, publishing

BT601, BT709, UNTAGGED = 5, 1, 2
"""Numbers of libavcodec: the matrix of a stream's colours."""
WEIGHTS = {BT601: (0.299, 0.114), BT709: (0.2126, 0.0722)}
PATCHES = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [30, 144, 200], [230, 230, 230]], np.float64)
"""In three columns and two rows."""
COLOUR_MAX_ERROR = 8


def a_patchwork(width: int, height: int, matrix: int) -> Any:
    """A picture of the patches, limited range."""
    kr, kb = WEIGHTS[matrix]
    red, green, blue = PATCHES.T / 255
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    values = (16 + 219 * luma, 128 + 112 * (blue - luma) / (1 - kb), 128 + 112 * (red - luma) / (1 - kr))
    frame = av.VideoFrame(width, height, "yuv420p")
    for plane, value in zip(frame.planes, values, strict=True):
        rows, columns = np.mgrid[0 : plane.height, 0 : plane.line_size]
        patch = rows * 2 // plane.height * 3 + np.minimum(columns * 3 // plane.width, 2)
        plane.update(value.round().astype(np.uint8)[patch].tobytes())
    return frame


def encoded(
    codec: str, width: int, height: int, *, matrix: int, tag: int = UNTAGGED, aspect: Fraction | None = None, count: int
) -> tuple[Any, list[Any]]:
    """An encoder, and a second of video with a keyframe at its start; a mark runs through it."""
    encoder: Any = av.CodecContext.create(codec, "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = width, height, "yuv420p", Fraction(1, count)
    encoder.gop_size = count
    if tag != UNTAGGED:
        encoder.colorspace = tag
    if aspect is not None:
        encoder.sample_aspect_ratio = aspect
    vp8 = {"deadline": "realtime", "cpu-used": "8", "b": "4000000"}
    encoder.options = (
        vp8 if codec == "libvpx" else {"preset": "ultrafast", "tune": "zerolatency", "bf": "0", "crf": "18"}
    )
    packets = []
    for index in range(count):
        picture = a_patchwork(width, height, matrix)
        plane = picture.planes[0]
        luma = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size).copy()
        luma[: height // 10, index * width // count : (index + 1) * width // count] = 235 - index * 5
        plane.update(luma.tobytes())
        picture.pts = index
        packets += encoder.encode(picture)
    return encoder, [*packets, *encoder.encode(None)]


def a_file(path: Path, parts: Sequence[tuple[Any, list[Any]]]) -> str:
    """Put the packets of one encoder, or of several in turn, into one file."""
    encoder = parts[0][0]
    codec = "vp8" if path.suffix == ".webm" else "h264"
    with av.open(str(path), "w") as output:
        stream = output.add_mux_stream(codec, width=encoder.width, height=encoder.height, time_base=encoder.time_base)
        start = 0
        for _, packets in parts:
            for packet in packets:
                packet.pts, packet.dts = packet.pts + start, packet.pts + start
                packet.stream, packet.time_base = stream, encoder.time_base
                output.mux(packet)
            start += len(packets)
    return str(path)


def assert_patches(jpeg: bytes) -> None:
    picture = simplejpeg.decode_jpeg(jpeg).astype(np.float64)
    height, width = picture.shape[:2]
    for index, colour in enumerate(PATCHES):
        row, column = divmod(index, 3)
        top, left = (2 * row + 1) * height // 4, (2 * column + 1) * width // 6
        middle = picture[top : top + height // 8, left - width // 12 : left + width // 12].reshape(-1, 3)
        error = np.abs(middle.mean(axis=0) - colour).max()
        assert error < COLOUR_MAX_ERROR, f"patch {index} is {middle.mean(axis=0).round()} for {colour}"


KINDS: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "odd-vp8.webm": ("libvpx", {"width": 853, "height": 481, "matrix": BT601}, (853, 481)),
    "cropped.ts": ("libx264", {"width": 854, "height": 482, "matrix": BT601}, (854, 482)),
    "portrait.ts": ("libx264", {"width": 480, "height": 854, "matrix": BT709}, (480, 854)),
    "oblong.ts": ("libx264", {"width": 720, "height": 576, "matrix": BT601, "aspect": Fraction(16, 11)}, (720, 396)),
    "untagged-720p.ts": ("libx264", {"width": 1280, "height": 720, "matrix": BT709}, (1280, 720)),
    "tagged-720p.ts": ("libx264", {"width": 1280, "height": 720, "matrix": BT601, "tag": BT601}, (1280, 720)),
    "tagged-360p.ts": ("libx264", {"width": 640, "height": 360, "matrix": BT709, "tag": BT709}, (640, 360)),
    "vp8-720p.webm": ("libvpx", {"width": 1280, "height": 720, "matrix": BT601}, (1280, 720)),
    "4k.ts": ("libx264", {"width": 3840, "height": 2160, "matrix": BT709, "count": 6}, (3840, 2160)),
}


@pytest.mark.parametrize("name", rest_at_night(KINDS, gate=6))
async def test_every_kind_of_video_gives_pictures_of_its_shape_and_colours(name: str, tmp_path: Path):
    codec, given, shown = KINDS[name]
    path = a_file(tmp_path / name, [encoded(codec, **{"count": 15} | given)])
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url, path=path):
            frame = await a_frame(rig.backend, made.ref, FrameQuery(quality=90))
    assert (frame.width, frame.height) == shown
    assert simplejpeg.decode_jpeg_header(frame.jpeg)[:2] == shown[::-1]
    assert_patches(frame.jpeg)


async def test_a_stream_that_changes_its_size_gives_whole_pictures_of_both_sizes(tmp_path: Path):
    sizes = [(640, 360), (320, 180)]
    parts = [encoded("libx264", *size, matrix=BT601, count=30) for size in sizes]
    path = a_file(tmp_path / "two.ts", parts)
    seen: set[tuple[int, int]] = set()
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url, path=path):
            frame = await a_frame(rig.backend, made.ref)
            with trio.fail_after(90):
                while seen < set(sizes):
                    seen.add((frame.width, frame.height))
                    assert_patches(frame.jpeg)
                    frame = await next_frame(rig.backend, made.ref, frame.sequence)
            assert frame.publisher_epoch
    assert seen == set(sizes)


async def test_a_camera_whose_picture_stands_is_told_from_one_that_moves(tmp_path: Path):
    encoder, packets = encoded("libx264", 640, 360, matrix=BT601, count=30)
    moving = a_file(tmp_path / "moving.ts", [(encoder, packets)])
    still: Any = av.CodecContext.create("libx264", "w")
    still.width, still.height, still.pix_fmt, still.time_base, still.gop_size = 640, 360, "yuv420p", Fraction(1, 30), 30
    still.options = {"preset": "ultrafast", "tune": "zerolatency", "bf": "0"}
    same = []
    for index in range(30):
        picture = a_patchwork(640, 360, BT601)
        picture.pts = index
        same += still.encode(picture)
    standing = a_file(tmp_path / "standing.ts", [(still, [*same, *still.encode(None)])])
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        for path, state, others in (
            (standing, PictureState.FROZEN, {PictureState.LIVE}),
            (moving, PictureState.LIVE, set()),
        ):
            async with publishing(made.whip_url, path=path):
                first = frame = await a_frame(rig.backend, made.ref)
                with trio.fail_after(90):
                    while frame.received_at_ms - first.received_at_ms < 5_000 and frame.state is not state:
                        assert frame.state in others
                        frame = await next_frame(rig.backend, made.ref, frame.sequence)
                assert frame.state is state
