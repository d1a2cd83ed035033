"""Measures the embedded video backend: `python -m bench.video [--sessions 8] [--seconds 8] [--json FILE]`.

The input is 720p30 H.264 at 2 Mbit/s with one keyframe a second, rendered by scripts/make_clip.py. Publishers are
separate processes; CPU is that of the media worker alone, from /proc. Polling once a second is measured with both kinds
of publishers: one that ignores keyframe requests (the file; OBS) and one that answers them (bench.encoder). Viewers are
measured by bench.viewers.
Baselines in the same run: ffmpeg (where installed), which takes one snapshot per poll from a live stream of the same
clip, and go2rtc's frame endpoint (where scripts/interop_engines.sh has installed it). Rendering takes 90 s before
the first measurement.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import trio
from msgspec.structs import astuple

from bench.encoder import prepare
from sightline.domain.value import Value
from sightline.ports.video import Frame, FrameQuery, MediaKind, VideoInput
from sightline.video.options import Options
from tests.e2e.server import until
from tests.video.support.harness import SECRET, Rig, a_frame, a_rig, a_session_id, publishing
from tests.video.support.http_server import Reply, listen, serve
from tests.video.support.real_engines import ENGINES, a_go2rtc

TICKS = os.sysconf("SC_CLK_TCK")
Row = tuple[str, str]


def cpu_s(pid: int, *, reaped: bool = False) -> float:
    """Return the CPU seconds that a process has used; with `reaped`, also those of its children that have exited."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if reaped else 13]) / TICKS


def percentile(values: list[float], part: float) -> float:
    """Return the value below which the fraction `part` of the values lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


async def worker_percent(rig: Rig, seconds: float) -> float:
    """Measure the worker's CPU over an interval, in percent of one core."""
    (row,) = await rig.backend.stats()
    before, began = cpu_s(row["pid"]), trio.current_time()
    await trio.sleep(seconds)
    return (cpu_s(row["pid"]) - before) / (trio.current_time() - began) * 100


async def poll(rig: Rig, ref: str, every_s: float, query: FrameQuery, taken: list[float]) -> None:
    """Poll in an endless loop and record the service times in ms."""
    while True:
        began = trio.current_time()
        reply = await rig.backend.frame(ref, query)
        assert isinstance(reply, Frame), reply
        taken.append((trio.current_time() - began) * 1000)
        await trio.sleep_until(began + every_s)


class Polling(Value):
    """The cost of polling every input, and what the pollers receive."""

    percent: float
    """CPU of the worker per input."""
    decoded: float
    """Frames decoded per poll."""
    service_ms: list[float]


async def with_pollers(rig: Rig, refs: list[str], every_s: float, seconds: float) -> Polling:
    """Measure the worker while every input is polled once in each period, one after the other."""
    taken: list[float] = []
    async with trio.open_nursery() as nursery:
        for index, ref in enumerate(refs):
            await trio.sleep(every_s / len(refs) if index else 0)
            nursery.start_soon(poll, rig, ref, every_s, FrameQuery(width=640), taken)
        await trio.sleep(max(1.5, 3 * every_s))
        taken.clear()
        (before,) = await rig.backend.stats()
        percent = await worker_percent(rig, seconds)
        (after,) = await rig.backend.stats()
        nursery.cancel_scope.cancel()
    return Polling(percent / len(refs), (after["decoded"] - before["decoded"]) / len(taken), taken)


async def times(rig: Rig, ref: str, query: FrameQuery, count: int) -> tuple[list[float], list[Frame]]:
    """Return the service times in ms of polls at random phases, with the frames."""
    taken: list[float] = []
    frames: list[Frame] = []
    for index in range(count):
        began = trio.current_time()
        reply = await rig.backend.frame(ref, query)
        taken.append((trio.current_time() - began) * 1000)
        if isinstance(reply, Frame):
            frames.append(reply)
        await trio.sleep(0.061 + 0.007 * (index % 9))
    return taken, frames


def line(values: list[float]) -> str:
    """Format p50 and p95."""
    return f"p50 {percentile(values, 0.5):.1f}, p95 {percentile(values, 0.95):.1f}"


async def measure_cpu(rig: Rig, refs: list[str], seconds: float, results: dict[str, Any]) -> None:
    """Measure the CPU per session in each mode of the frame tap."""
    count = len(refs)
    await trio.sleep(4)  # decoders that were woken while the publishers connected go to sleep
    asleep = await worker_percent(rig, seconds) / count
    results["cpu_asleep"] = asleep
    results["cpu_1fps"], results["decoded_1fps"], results["service_1fps_ms"] = astuple(
        await with_pollers(rig, refs, 1.0, seconds)
    )
    await trio.sleep(4)
    results["cpu_full"] = (await with_pollers(rig, refs, 0.2, seconds)).percent


async def measure_asked(
    rig: Rig, made: list[VideoInput], renditions: str, seconds: float, results: dict[str, Any]
) -> None:
    """Measure the CPU per session polled once a second, with publishers that answer keyframe requests."""
    command = [sys.executable, "-m", "bench.encoder", renditions, "--whip"]
    publishers = [await trio.lowlevel.open_process([*command, one.whip_url]) for one in made]
    try:
        for one in made:
            await a_frame(rig.backend, one.ref)
        await trio.sleep(4)
        asked = await with_pollers(rig, [one.ref for one in made], 1.0, seconds)
        results["cpu_1fps_asked"], results["decoded_1fps_asked"], results["service_1fps_asked_ms"] = astuple(asked)
    finally:
        for publisher in publishers:
            publisher.terminate()
        for publisher in publishers:
            await publisher.wait()


async def measure_frames(rig: Rig, ref: str, results: dict[str, Any]) -> None:
    """Measure the service time and the age of one input's frames."""
    results["cold_ms"], _ = await times(rig, ref, FrameQuery(), 1)
    results["warm_ms"], frames = await times(rig, ref, FrameQuery(), 100)
    results["resized_ms"], _ = await times(rig, ref, FrameQuery(width=640), 100)
    results["age_ms"] = [float(frame.age_ms) for frame in frames]
    newest = frames[-1].sequence + 10_000
    results["unchanged_ms"], _ = await times(rig, ref, FrameQuery(after=newest), 60)
    waited: list[float] = []
    capture: list[float] = []
    sequence = frames[-1].sequence
    for _ in range(90):
        reply = await rig.backend.frame(ref, FrameQuery(after=sequence, wait_ms=2000))
        if isinstance(reply, Frame):
            waited.append(float(reply.age_ms))
            capture.append(float(reply.received_at_ms - reply.captured_at_ms + reply.age_ms))
            sequence = reply.sequence
    results["age_waiting_ms"], results["age_capture_ms"] = waited, capture
    results["jpeg_bytes"] = len(frames[-1].jpeg)


async def measure_http(rig: Rig, ref: str, results: dict[str, Any]) -> None:
    """Measure the picture over HTTP: as a fresh frame, and as a static file of the same size by the same server."""
    still = await a_frame(rig.backend, ref)

    async def handle(method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        del method, headers, body
        if target == "/static":
            return 200, [("Content-Type", "image/jpeg")], still.jpeg
        reply = await rig.backend.frame(ref, FrameQuery())
        assert isinstance(reply, Frame)
        return 200, [("Content-Type", "image/jpeg"), ("ETag", f'"{reply.sequence}"')], reply.jpeg

    listeners, url = await listen()
    async with trio.open_nursery() as nursery, httpx.AsyncClient() as http:
        serve(nursery, listeners, handle)
        for name, path in (("http_static_ms", "/static"), ("http_frame_ms", "/frame")):
            taken = []
            for index in range(80):
                began = trio.current_time()
                (await http.get(url + path)).raise_for_status()
                taken.append((trio.current_time() - began) * 1000)
                await trio.sleep(0.061 + 0.007 * (index % 9))
            results[name] = taken[10:]
        nursery.cancel_scope.cancel()


async def measure_first_frame(rig: Rig, clip: str, results: dict[str, Any]) -> None:
    """Measure the time from a publisher's connection to the first JPEG."""
    results["first_frame_ms"] = []
    for _ in range(3):
        made = await rig.backend.create_input(a_session_id())
        mark = len(rig.events)
        async with publishing(made.whip_url, path=clip):
            await rig.heard(MediaKind.CONNECTED, after=mark)
            began = trio.current_time()
            await a_frame(rig.backend, made.ref)
            results["first_frame_ms"].append((trio.current_time() - began) * 1000)
        await rig.backend.close_input(made.ref)


async def measure_ffmpeg(clip: str, results: dict[str, Any]) -> None:
    """Measure one ffmpeg process per snapshot from a live stream of the same clip."""
    if shutil.which("ffmpeg") is None:
        return
    source = "udp://127.0.0.1:47555"
    quiet = ["-hide_banner", "-loglevel", "error"]
    send = ["ffmpeg", *quiet, "-re", "-stream_loop", "-1", "-i", clip, "-c", "copy", "-f", "mpegts", source]
    sender = await trio.lowlevel.open_process(send)
    try:
        await trio.sleep(1)
        taken, cpu = [], []
        for _ in range(6):
            before = os.times()
            began = trio.current_time()
            target = Path(tempfile.gettempdir()) / "bench-snapshot.jpg"
            quick = ["-fflags", "nobuffer", "-analyzeduration", "500000", "-probesize", "200000"]
            shot = ["ffmpeg", *quiet, "-y", *quick, "-i", f"{source}?timeout=5000000", "-frames:v", "1", str(target)]
            await trio.run_process(shot, check=False, stderr=subprocess.DEVNULL)
            after = os.times()
            taken.append((trio.current_time() - began) * 1000)
            cpu.append(
                (after.children_user + after.children_system - before.children_user - before.children_system) * 1000
            )
        results["ffmpeg_ms"], results["ffmpeg_cpu_ms"] = taken, cpu
    finally:
        sender.kill()
        await sender.wait()


async def measure_go2rtc(clip: str, results: dict[str, Any]) -> None:
    """Measure go2rtc's frame endpoint, which runs ffmpeg on the next keyframe for each snapshot."""
    if shutil.which("ffmpeg") is None or not (ENGINES / "go2rtc").exists():
        return
    async with a_go2rtc({"clip": ""}) as peer, publishing(peer.whip_url("clip"), path=clip):
        await until(lambda: peer.received("clip"), lambda found: found.packets, "go2rtc's publisher")
        taken, cpu = [], []
        async with httpx.AsyncClient(timeout=20) as http:
            for index in range(20):
                before, began = cpu_s(peer.pid, reaped=True), trio.current_time()
                reply = await http.get(f"{peer.url}/api/frame.jpeg", params={"src": "clip"})
                reply.raise_for_status()
                taken.append((trio.current_time() - began) * 1000)
                cpu.append((cpu_s(peer.pid, reaped=True) - before) * 1000)
                await trio.sleep(0.061 + 0.007 * (index % 9))
        results["go2rtc_ms"], results["go2rtc_cpu_ms"] = taken, cpu


def table(results: dict[str, Any]) -> list[Row]:
    """Format the figures as a table."""
    rows: list[Row] = [
        ("CPU per session, asleep", f"{results['cpu_asleep']:.2f} % of a core"),
        ("CPU per session, polled at 1 fps, publisher on request", f"{results['cpu_1fps_asked']:.2f} %"),
        ("CPU per session, polled at 1 fps, publisher's own GOP", f"{results['cpu_1fps']:.2f} %"),
        ("CPU per session, every frame decoded, 5 JPEG/s", f"{results['cpu_full']:.2f} %"),
        (
            "sessions per core asleep / 1 fps / 1 fps own GOP / full",
            " / ".join(
                f"{100 / results[name]:.0f}" for name in ("cpu_asleep", "cpu_1fps_asked", "cpu_1fps", "cpu_full")
            ),
        ),
        (
            "frames decoded per poll at 1 fps, on request / own GOP",
            f"{results['decoded_1fps_asked']:.1f} / {results['decoded_1fps']:.1f}",
        ),
        ("frame 640x360 polled at 1 fps, on request, ms", line(results["service_1fps_asked_ms"])),
        ("frame 640x360 polled at 1 fps, own GOP, ms", line(results["service_1fps_ms"])),
        ("publisher connected to first JPEG, ms", line(results["first_frame_ms"])),
        ("frame, decoder asleep, ms", line(results["cold_ms"])),
        ("frame 1280x720, warm, ms", line(results["warm_ms"])),
        ("frame 640x360, warm, ms", line(results["resized_ms"])),
        ("nothing newer (304), ms", line(results["unchanged_ms"])),
        ("age of a polled frame since receipt, ms", line(results["age_ms"])),
        ("age of a waited-for frame since receipt, ms", line(results["age_waiting_ms"])),
        ("age of a waited-for frame since capture, ms", line(results["age_capture_ms"])),
        ("bytes of a JPEG", str(results["jpeg_bytes"])),
    ]
    rows.append(("over HTTP: a fresh frame, ms", line(results["http_frame_ms"])))
    rows.append(("baseline: a static file of that size, same server, ms", line(results["http_static_ms"])))
    if "ffmpeg_ms" in results:
        rows.append(("baseline: ffmpeg per snapshot, ms", line(results["ffmpeg_ms"])))
        rows.append(("baseline: ffmpeg CPU per snapshot, ms", line(results["ffmpeg_cpu_ms"])))
    if "go2rtc_ms" in results:
        rows.append(("baseline: go2rtc per snapshot, ms", line(results["go2rtc_ms"])))
        rows.append(("baseline: go2rtc and its ffmpeg, CPU per snapshot, ms", line(results["go2rtc_cpu_ms"])))
    return rows


async def run(sessions: int, seconds: float, clip: str, renditions: str) -> dict[str, Any]:
    """Run every measurement in sequence."""
    results: dict[str, Any] = {"sessions": sessions}
    async with a_rig(Options(secret=SECRET, public_url="", workers=1)) as rig, AsyncExitStack() as publishers:
        made = [await rig.backend.create_input(a_session_id()) for _ in range(sessions)]
        for one in made:
            await publishers.enter_async_context(publishing(one.whip_url, path=clip))
        for one in made:
            await a_frame(rig.backend, one.ref)
        await measure_cpu(rig, [one.ref for one in made], seconds, results)
        await publishers.aclose()
        await measure_asked(rig, made, renditions, seconds, results)
        async with publishing(made[0].whip_url, path=clip):
            await a_frame(rig.backend, made[0].ref)
            await measure_frames(rig, made[0].ref, results)
            await measure_http(rig, made[0].ref, results)
        await measure_first_frame(rig, clip, results)
    await measure_ffmpeg(clip, results)
    await measure_go2rtc(clip, results)
    return results


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="bench.video", description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clip = str(Path(folder) / "clip.mp4")
        subprocess.run([sys.executable, "scripts/make_clip.py", clip, "2000"], check=True, stdout=subprocess.DEVNULL)
        renditions = Path(folder) / "renditions"
        prepare(Path(clip), renditions, 2000)
        results = trio.run(run, given.sessions, given.seconds, clip, str(renditions))
    for name, value in table(results):
        print(f"{name:54} {value}")
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
