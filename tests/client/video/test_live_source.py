"""A live source is forwarded without transcoding; what cannot be published is refused with what to do."""

import asyncio
import subprocess
import sys
from pathlib import Path

import av
import pytest

from sightline_client.video.assets import clip_path
from sightline_client.video.live_source import (
    LiveTrack,
    SourceLostError,
    UnusableSourceError,
    is_live,
    open_live_track,
    shown_source,
)


def test_urls_and_devices_are_live_and_files_are_not() -> None:
    assert [is_live(source) for source in ("rtsp://camera/1", "/dev/video0", "clip.mp4", "/srv/clip.mp4")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_the_password_of_a_camera_is_never_shown() -> None:
    assert shown_source("rtsp://admin:secret@camera:554/stream?token=t") == "rtsp://camera:554/stream"


async def all_packets(track: LiveTrack) -> list[av.Packet]:
    packets = []
    try:
        while True:
            packets.append(await track.recv())
    except Exception:  # noqa: BLE001  MediaStreamError: the source has ended
        return packets


def test_packets_are_forwarded_unchanged_from_a_keyframe_on_and_the_track_ends_with_its_source() -> None:
    async def run() -> list[av.Packet]:
        return await all_packets(await open_live_track(f"file://{clip_path()}"))

    packets = asyncio.run(run())
    first = bytes(packets[0])
    assert first.startswith((b"\0\0\0\1", b"\0\0\1"))
    kinds = {part[0] & 31 for part in first.split(b"\0\0\1")[1:] if part}
    assert {7, 8, 5} <= kinds, "parameter sets and a keyframe come first"
    times = [packet.pts for packet in packets]
    assert times == sorted(times)
    with av.open(str(clip_path())) as clip:
        pictures = {bytes(packet)[-64:] for packet in clip.demux(video=0) if packet.size}
    assert all(bytes(packet)[-64:] in pictures for packet in packets), "a packet was transcoded"


def test_the_end_of_a_source_that_was_read_ahead_drops_no_packet_from_the_front() -> None:
    async def run() -> list[av.Packet]:
        track = await open_live_track(f"file://{clip_path()}")
        await asyncio.to_thread(track._thread.join)
        await asyncio.sleep(0)  # the calls of the thread run
        return await all_packets(track)

    first = bytes(asyncio.run(run())[0])
    assert {part[0] & 31 for part in first.split(b"\0\0\1")[1:] if part} >= {7, 8, 5}


def test_a_camera_whose_clock_is_set_back_is_forwarded_on(tmp_path: Path) -> None:
    part = tmp_path / "part.ts"
    with av.open(str(part), "w") as out:
        stream = out.add_stream("libx264", rate=25, options={"tune": "zerolatency", "g": "25"})
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for _ in range(100):
            out.mux(stream.encode(av.VideoFrame(64, 64, "yuv420p")))
        out.mux(stream.encode(None))
    (tmp_path / "twice.ts").write_bytes(part.read_bytes() * 2)

    async def times_of(name: str) -> list[int]:
        return [packet.pts for packet in await all_packets(await open_live_track(f"file://{tmp_path / name}"))]

    once, twice = asyncio.run(times_of("part.ts")), asyncio.run(times_of("twice.ts"))
    assert len(once) == 100
    assert len(twice) == 200
    assert twice == sorted(twice)
    assert twice[-1] < 9 * 90_000, "eight seconds, without a hole"


def test_a_camera_that_does_not_answer_is_lost_and_not_unusable() -> None:
    with pytest.raises(SourceLostError, match=r"rtsp://127\.0\.0\.1:1/stream"):
        asyncio.run(open_live_track("rtsp://user:secret@127.0.0.1:1/stream"))


def test_another_codec_is_refused_with_what_to_set(tmp_path: Path) -> None:
    file = tmp_path / "mpeg.ts"
    with av.open(str(file), "w") as out:
        stream = out.add_stream("mpeg2video", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for _ in range(5):
            out.mux(stream.encode(av.VideoFrame(64, 64, "yuv420p")))
        out.mux(stream.encode(None))
    with pytest.raises(UnusableSourceError, match=r"Set the camera to H\.264"):
        asyncio.run(open_live_track(f"file://{file}"))


def test_a_device_without_a_position_is_refused() -> None:
    command = [sys.executable, "-m", "sightline_client", "device", "--api", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"SIGHTLINE_API_KEY": "svc_test_x"})
    assert done.returncode == 2
    assert "Give --lat and --lng, or --gps." in done.stderr
