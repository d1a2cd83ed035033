"""Measures whether the age header of frames is true while 40 viewers load the machine: `python -m bench.frame_age`.

A frame number is painted in each picture of the demo clip. The publisher (pion, scripts/interop_pion.sh) logs when it
sent the last packet of each picture, so that the picture in a JPEG says how old it is. The error is the age of the
frame (the header `x-svc-frame-age-ms`) less that age, both at the moment when the poller has the frame: a negative
error is a frame that is older than its header says.
"""

import argparse
import json
import os
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import Final

import trio

from bench.video import percentile
from bench.viewers import LOADER
from sightline.ports.video import Frame, FrameQuery
from sightline.video.options import Options
from sightline_client.video.assets import CLIP_FRAMES, clip_path
from tests.video.support.harness import SECRET, a_frame, a_rig, a_session_id, counter_of

POLL_EVERY_S: Final = 0.1


async def polled(viewers: int, seconds: float, folder: Path) -> tuple[list[tuple[float, Frame]], str, dict[str, float]]:
    """Poll frames beside viewers; returns (Unix ms, frame) of each, the publisher's log, and the viewers' figures."""
    clip, log = folder / "clip.h264", folder / "sent"
    to_annex_b = ["-map", "0:v", "-c", "copy", "-bsf:v", "h264_mp4toannexb", str(clip)]
    await trio.run_process(["ffmpeg", "-nostdin", "-loglevel", "error", "-i", str(clip_path()), *to_annex_b])
    frames: list[tuple[float, Frame]] = []
    async with a_rig(Options(secret=SECRET, public_url="", workers=1)) as rig, trio.open_nursery() as nursery:
        made = await rig.backend.create_input(a_session_id())
        (row,) = await rig.backend.stats()
        urls = [made.whip_url, made.whep_url]
        command = [str(LOADER), "load", *urls, str(clip), str(row["pid"]), str(viewers), str(seconds), str(log)]

        async def poll() -> None:
            await a_frame(rig.backend, made.ref, within_s=30)
            while True:
                reply = await rig.backend.frame(made.ref, FrameQuery())
                if isinstance(reply, Frame):
                    frames.append((time.time() * 1000, reply))
                await trio.sleep(POLL_EVERY_S)

        nursery.start_soon(poll)
        done = await trio.run_process(command, capture_stdout=True)
        nursery.cancel_scope.cancel()
    since_ms = time.time() * 1000 - seconds * 1000
    return [one for one in frames if one[0] >= since_ms], log.read_text(), json.loads(done.stdout)


def errors_of(frames: list[tuple[float, Frame]], log: str) -> list[float]:
    """The header's age less the true age of each frame, in ms."""
    sent: dict[int, list[float]] = defaultdict(list)
    for line in log.splitlines():
        index, at_ms = line.split()
        sent[int(index) % CLIP_FRAMES].append(float(at_ms))
    errors: list[float] = []
    for polled_ms, frame in frames:
        number = counter_of(frame.jpeg)
        assert number is not None, "a damaged picture"
        times = sent[number]
        errors.append(frame.age_ms - (polled_ms - times[bisect_right(times, polled_ms) - 1]))
    return errors


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="bench.frame_age", description=__doc__.partition("\n")[0])
    parser.add_argument("--viewers", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=15.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        frames, log, viewed = trio.run(polled, given.viewers, given.seconds, Path(folder))
    errors = errors_of(frames, log)
    apart = [abs(error) for error in errors]
    ages = [float(frame.age_ms) for _, frame in frames]
    print(f"{len(errors)} frames beside {given.viewers} viewers, load of the machine {os.getloadavg()[0]:.1f}")
    print(f"delay of viewers, ms           p50 {viewed['delay_p50_ms']:.1f}, p95 {viewed['delay_p95_ms']:.1f}")
    print(f"age in the header, ms          p50 {percentile(ages, 0.5):.0f}, p95 {percentile(ages, 0.95):.0f}")
    print(
        f"error of the header, ms        {min(errors):.1f} to {max(errors):.1f}, median {percentile(errors, 0.5):.1f}"
    )
    print(f"error without its sign, ms     p50 {percentile(apart, 0.5):.1f}, p95 {percentile(apart, 0.95):.1f}")
    print(f"frames within 50 ms, %         {100 * sum(one <= 50 for one in apart) / len(apart):.1f}")


if __name__ == "__main__":
    main()
