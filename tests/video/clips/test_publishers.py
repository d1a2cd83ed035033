"""Clips of the last seconds, of real publishers over loopback, read by another program than the one that wrote them."""

import io
import json
from pathlib import Path

import av
import numpy as np
import pytest
import trio

from sightline.ports.video import Clip, ClipMissing, ClipMissingReason, MediaKind
from sightline.video.options import Options
from tests.video.pictures.test_formats import a_clip
from tests.video.support.harness import SECRET, Rig, a_rig, a_session_id, publishing

KEEPS_5_S = Options(secret=SECRET, public_url="", workers=1, clip_seconds=5)


async def clip_of(rig: Rig, ref: str, seconds: int, *, after: int = 0, at_least_s: float = 0.0) -> Clip:
    """Ask as a consumer would, until a clip of a later publisher than `after` lasts `at_least_s`."""
    with trio.fail_after(120):
        while True:
            reply = await rig.backend.clip(ref, seconds)
            if (
                isinstance(reply, Clip)
                and reply.publisher_epoch > after
                and reply.ended_at_ms - reply.started_at_ms >= at_least_s * 1_000
            ):
                return reply
            await trio.sleep(0.05)  # interval of a consumer, not a wait for a condition


async def missing_of(rig: Rig, ref: str) -> ClipMissingReason:
    reply = await rig.backend.clip(ref, 5)
    assert isinstance(reply, ClipMissing)
    return reply.reason


async def probed(video: bytes, folder: Path) -> dict[str, object]:
    """What ffprobe says of the first video stream and the file: not the libraries that wrote it."""
    path = folder / "clip"
    path.write_bytes(video)
    command = ["ffprobe", "-v", "error", "-count_frames", "-show_format", "-show_streams", "-of", "json", str(path)]
    said = json.loads((await trio.run_process(command, capture_stdout=True)).stdout)
    return {**said["streams"][0], "duration_s": float(said["format"]["duration"]), "streams": len(said["streams"])}


@pytest.mark.interop
async def test_a_clip_has_the_last_seconds_of_h264_as_they_were_received(tmp_path: Path):
    async with a_rig(KEEPS_5_S) as rig:
        made = await rig.backend.create_input(a_session_id())
        assert await missing_of(rig, made.ref) is ClipMissingReason.NOT_RECEIVED
        async with publishing(made.whip_url):
            clip = await clip_of(rig, made.ref, 2, at_least_s=2.0)
    assert (clip.media_type, clip.width, clip.height) == ("video/mp4", 1280, 720)
    seen = await probed(clip.video, tmp_path)
    assert (seen["codec_name"], seen["width"], seen["height"], seen["streams"]) == ("h264", 1280, 720, 1)
    assert int(str(seen["nb_read_frames"])) == clip.frames, "each frame is decoded"
    assert float(str(seen["duration_s"])) == pytest.approx((clip.ended_at_ms - clip.started_at_ms) / 1_000, abs=0.5)
    kinds = [clip.video[at + 4 : at + 8] for at in boxes(clip.video)]
    assert kinds[:2] == [b"ftyp", b"moov"]
    assert kinds[2:] == [b"moof", b"mdat"] * (len(kinds[2:]) // 2), "fragments"
    with av.open(io.BytesIO(clip.video)) as container:
        first = next(iter(container.demux(video=0)))
    assert first.is_keyframe


def boxes(video: bytes) -> list[int]:
    """Where the boxes of an MP4 file start."""
    starts, at = [], 0
    while at < len(video):
        starts.append(at)
        at += int.from_bytes(video[at : at + 4], "big")
    return starts


@pytest.mark.interop
async def test_a_clip_of_vp8_is_webm(tmp_path: Path):
    small = tmp_path / "small.webm"
    a_clip(small, "libvpx", {"deadline": "realtime", "cpu-used": "8"}, frames=60)
    async with a_rig(KEEPS_5_S) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url, path=str(small)):
            clip = await clip_of(rig, made.ref, 1, at_least_s=1.0)
    seen = await probed(clip.video, tmp_path)
    assert (clip.media_type, seen["codec_name"], seen["width"], seen["height"]) == ("video/webm", "vp8", 320, 240)
    assert int(str(seen["nb_read_frames"])) == clip.frames


async def test_after_a_delete_and_after_a_takeover_the_old_video_is_gone(tmp_path: Path):
    small = tmp_path / "small.mp4"
    a_clip(small, "libx264", {"profile": "baseline"}, frames=60)
    async with a_rig(KEEPS_5_S) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url) as publisher:
            first = await clip_of(rig, made.ref, 5, at_least_s=1.0)
            publisher.terminate()
            await publisher.wait()  # it has sent its DELETE
            assert await missing_of(rig, made.ref) is ClipMissingReason.NOT_RECEIVED
        async with publishing(made.whip_url):
            second = await clip_of(rig, made.ref, 5, after=first.publisher_epoch, at_least_s=1.0)
            async with publishing(made.whip_url, path=str(small)):
                third = await clip_of(rig, made.ref, 5, after=second.publisher_epoch)
    assert (second.width, third.width) == (1280, 320)
    with av.open(io.BytesIO(third.video)) as container:
        pictures = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
    assert len(pictures) == third.frames
    assert all(abs(float(np.median(picture)) - 40) < 8 for picture in pictures), "each is of the second publisher"


async def test_without_the_setting_nothing_is_kept_and_the_answer_says_so():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await rig.heard(MediaKind.FRAMES)
            assert await missing_of(rig, made.ref) is ClipMissingReason.OFF
