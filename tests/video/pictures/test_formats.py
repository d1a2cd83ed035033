"""Every accepted codec and profile gives a frame, with the real publisher."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import simplejpeg

from tests.video.support.harness import a_frame, a_rig, a_session_id, next_frame, play_json, publishing

FORMATS = {
    "baseline.mp4": ("libx264", {"profile": "baseline"}),
    "main.mp4": ("libx264", {"profile": "main", "bf": "0"}),
    "high.mp4": ("libx264", {"profile": "high", "bf": "0"}),
    "vp8.webm": ("libvpx", {"deadline": "realtime", "cpu-used": "8"}),
}


def a_clip(path: Path, codec: str, options: dict[str, str], *, frames: int = 30, gop: int = 15) -> None:
    """Encode a white square that moves over a dark ground."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        stream.time_base = Fraction(1, 30)
        stream.codec_context.gop_size = gop
        stream.codec_context.options = options
        for index in range(frames):
            image = np.full((240, 320, 3), 40, np.uint8)
            image[80:160, index * 6 % 240 : index * 6 % 240 + 80] = 235
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("name", FORMATS)
async def test_a_clip_of_each_kind_is_decoded_and_played(name: str, tmp_path: Path):
    clip = tmp_path / name
    a_clip(clip, *FORMATS[name])
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url, path=str(clip)):
            frame = await a_frame(rig.backend, made.ref)
            picture = simplejpeg.decode_jpeg(frame.jpeg, colorspace="GRAY")[:, :, 0]
            assert (frame.width, frame.height) == (320, 240)
            white = float(np.mean(picture > 200))
            assert abs(white - 80 * 80 / (320 * 240)) < 0.03, "the square has its size"
            assert abs(float(np.median(picture)) - 40) < 6, "the ground has its shade"
            watched = await play_json(made.whep_url, 0.5)
            assert watched["frames"] > 3


async def test_a_late_viewer_sees_a_picture_long_before_the_next_keyframe(tmp_path: Path):
    """The keyframes are ten seconds apart, and the publisher does not answer keyframe requests."""
    clip = tmp_path / "long.mp4"
    a_clip(clip, "libx264", {"profile": "baseline", "x264-params": "scenecut=0"}, frames=300, gop=300)
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url, path=str(clip)):
            first = frame = await a_frame(rig.backend, made.ref)
            while frame.received_at_ms - first.received_at_ms < 3_500:
                frame = await next_frame(rig.backend, made.ref, frame.sequence)
            watched = await play_json(made.whep_url, 0.5)
    assert watched["frames"], watched
    assert watched["first_frame_ms"] < 5_000, "the next keyframe was more than six seconds away"


async def test_what_cannot_be_published_is_said_before_anything_is_connected(tmp_path: Path):
    bframes = tmp_path / "bframes.mp4"
    a_clip(bframes, "libx264", {"profile": "high", "bf": "2", "b-adapt": "0"})
    rows = [(str(bframes), "B-frames"), (str(tmp_path / "none.mp4"), "cannot read"), (__file__, "cannot read")]
    for path, why in rows:
        async with publishing("http://127.0.0.1:9/whip/x", path=path, show=True) as process:
            await process.wait()
            assert process.returncode == 1
            text = b"".join([part async for part in process.stderr]).decode()
            assert why in text, text


async def test_a_server_that_is_not_there_or_refuses_is_said(tmp_path: Path):
    async with a_rig() as rig:
        for url, why in (("http://127.0.0.1:9/whip/x", "cannot reach"), (f"{rig.base_url}/whip/x", "404")):
            async with publishing(url, show=True) as process:
                await process.wait()
                assert process.returncode == 1
                assert why in b"".join([part async for part in process.stderr]).decode()
