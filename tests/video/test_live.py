"""Real peers over loopback: publish the clip, read frames, play, take over, crash."""

import contextlib
import itertools
import os
import signal

import av
import numpy as np
import psutil
import pytest
import simplejpeg
import structlog
import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.ports.video import FrameMissing, FrameMissingReason, FrameQuery, MediaKind, PictureState
from sightline.video.options import Options
from sightline_client.video.assets import CLIP_FRAMES, clip_path
from tests.video.support.harness import (
    SECRET,
    a_frame,
    a_rig,
    a_session_id,
    counter_of,
    next_frame,
    play_json,
    publishing,
)


def clip_picture(number: int) -> np.ndarray:
    """Decode a frame of the clip from the file, as full-range RGB."""
    with av.open(str(clip_path())) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index == number:
                return frame.to_ndarray(format="rgb24")
    raise AssertionError(number)


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    error = np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


async def test_a_published_clip_is_seen_by_pollers_and_viewers():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        empty = await rig.backend.frame(made.ref, FrameQuery())
        assert isinstance(empty, FrameMissing)
        assert empty.reason is FrameMissingReason.NOT_DECODED
        async with publishing(made.whip_url):
            first = await a_frame(rig.backend, made.ref)
            number = counter_of(first.jpeg)
            assert number is not None
            assert (first.width, first.height) == (1280, 720)
            assert psnr(simplejpeg.decode_jpeg(first.jpeg), clip_picture(number)) > 30
            assert first.state is PictureState.LIVE
            assert first.age_ms < 5_000

            seen = [first]
            for _ in range(20):
                seen.append(await next_frame(rig.backend, made.ref, seen[-1].sequence, width=640))
            assert [frame.sequence for frame in seen] == sorted({frame.sequence for frame in seen})
            assert {(frame.width, frame.height) for frame in seen[1:]} == {(640, 360)}
            steps = {
                ((counter_of(after.jpeg) or 0) - (counter_of(before.jpeg) or 0)) % CLIP_FRAMES
                for before, after in itertools.pairwise(seen[1:])
            }
            assert 0 not in steps, "a newer sequence shows a newer picture"

            none_newer = await rig.backend.frame(made.ref, FrameQuery(after=seen[-1].sequence + 60_000))
            assert isinstance(none_newer, FrameMissing)
            assert none_newer.reason is FrameMissingReason.NOT_NEWER

            watched = await play_json(made.whep_url, 2.0)
            await rig.heard(MediaKind.WATCHED)
            assert watched["frames"] > 5, watched
            assert (watched["width"], watched["height"]) == (1280, 720)
            await rig.heard(MediaKind.CONNECTED)
            await rig.heard(MediaKind.FRAMES)
        gone = await rig.heard(MediaKind.DISCONNECTED)
        assert gone.ref == made.ref
        forgotten = await rig.backend.frame(made.ref, FrameQuery())
        assert isinstance(forgotten, FrameMissing)
        assert forgotten.reason is FrameMissingReason.NOT_DECODED


async def test_a_new_publisher_takes_over_without_a_false_end():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url) as old:
            before = await a_frame(rig.backend, made.ref)
            watched: dict[str, object] = {}

            async def watch() -> None:
                watched.update(await play_json(made.whep_url, 4.0))

            async with publishing(made.whip_url, extra=["--seconds", "30"]) as new, trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                assert await new.stdout.receive_some() == b"connected\n"
                old.terminate()
                await old.wait()
                mark = len(rig.events)
                after = await a_frame(rig.backend, made.ref, FrameQuery(after=before.sequence, wait_ms=2000))
                assert after.sequence > before.sequence
                await rig.heard(MediaKind.FRAMES, after=mark)
            assert int(str(watched["frames"])) > 8, "the viewer watched through the takeover"
        assert not [event for event in rig.events if event.kind is MediaKind.DISCONNECTED]


async def test_a_killed_worker_is_replaced_and_its_sessions_told():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            before = await a_frame(rig.backend, made.ref)
            mark = len(rig.events)
            (row,) = await rig.backend.stats()
            os.kill(row["pid"], signal.SIGKILL)
            await rig.heard(MediaKind.DISCONNECTED, after=mark)
            # The publisher detects the loss by itself and reconnects to the same URL.
            after = await a_frame(rig.backend, made.ref, within_s=120)
            assert after.sequence > before.sequence
            (again,) = await rig.backend.stats()
            assert again["pid"] != row["pid"]


async def test_a_worker_is_replaced_also_after_the_process_that_it_was_forked_from_was_killed():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            before = await a_frame(rig.backend, made.ref)
            (row,) = await rig.backend.stats()
            os.kill(psutil.Process(row["pid"]).ppid(), signal.SIGKILL)
            await next_frame(rig.backend, made.ref, before.sequence)
            os.kill(row["pid"], signal.SIGKILL)
            after = await a_frame(rig.backend, made.ref, within_s=120)
            assert after.sequence > before.sequence
            (again,) = await rig.backend.stats()
            assert again["pid"] != row["pid"]


async def test_a_stop_told_to_the_whole_process_group_is_left_to_the_server_and_is_no_error():
    with structlog.testing.capture_logs() as logged:
        async with a_rig() as rig:
            made = await rig.backend.create_input(a_session_id())
            (row,) = await rig.backend.stats()
            async with publishing(made.whip_url):
                before = await a_frame(rig.backend, made.ref)
                for number in (signal.SIGTERM, signal.SIGINT):
                    os.kill(row["pid"], number)
                await next_frame(rig.backend, made.ref, before.sequence)
            (again,) = await rig.backend.stats()
            assert again["pid"] == row["pid"]
    assert [entry["event"] for entry in logged if entry["log_level"] not in ("debug", "info")] == []
    with pytest.raises(ProcessLookupError):
        os.kill(row["pid"], 0)


async def test_a_worker_that_hangs_is_replaced():
    async with a_rig(Options(secret=SECRET, public_url="", workers=1, worker_check_ms=6_000)) as rig:
        made = await rig.backend.create_input(a_session_id())
        (row,) = await rig.backend.stats()
        os.kill(row["pid"], signal.SIGSTOP)
        with trio.fail_after(120):
            rows = [row]
            while not rows or rows[0]["pid"] == row["pid"]:
                await trio.sleep(0.05)  # interval of a poller
                with contextlib.suppress(VideoUnavailableError):
                    rows = await rig.backend.stats()
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)


async def test_the_same_secret_gives_the_same_urls_and_close_ends_them():
    session_id = a_session_id()
    async with a_rig() as one:
        made = await one.backend.create_input(session_id)
        assert await one.backend.create_input(session_id) == made
        assert one.backend.describe_input(session_id) == made
    async with a_rig(Options(secret=SECRET, public_url="", workers=2)) as two:
        again = await two.backend.create_input(session_id)
        assert again.ref == made.ref
        assert again.whip_url.rpartition("/")[2] == made.whip_url.rpartition("/")[2]
        assert again.whip_url.rpartition("/")[2] != again.whep_url.rpartition("/")[2]
        async with publishing(again.whip_url):
            await a_frame(two.backend, again.ref)
            await two.backend.close_input(again.ref)
            await two.backend.close_input(again.ref)
            gone = await two.backend.frame(again.ref, FrameQuery())
            assert isinstance(gone, FrameMissing)


async def test_workers_end_when_the_backend_ends():
    async with a_rig(Options(secret=SECRET, public_url="", workers=2)) as rig:
        pids = [row["pid"] for row in await rig.backend.stats()]
        assert len(set(pids)) == 2
    for pid in pids:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        raise AssertionError(f"worker {pid} outlived the backend")
