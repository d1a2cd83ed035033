"""Measures viewers beside peers: `python -m bench.viewers [--steps 1,10,30] [--seconds 8] [--rounds 2] [--json FILE]`.

Sightline's embedded forwarder, MediaMTX and go2rtc (scripts/interop_engines.sh) take turns in the same run, so that the
ratios hold on a machine with other load. One process of pion (scripts/interop_pion.sh) publishes 720p30 H.264 at
2 Mbit/s with a keyframe a second and opens the viewers; a second run per engine sends 2160p30 at 15 Mbit/s to one
viewer. Delay: from the publisher's first byte of a picture to the viewer's last. CPU and memory are those of the
engine's process (for Sightline, its media worker), from /proc.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from sightline.domain.value import Value
from sightline.video.options import Options
from tests.video.support.harness import SECRET, a_rig, a_session_id
from tests.video.support.http_server import Reply, listen, serve
from tests.video.support.real_engines import ROOT, a_go2rtc, a_mediamtx

LOADER: Final = ROOT / ".interop" / "pion" / "pion"
Step = dict[str, Any]
"""As the load generator prints it."""
Round = dict[str, list[Step]]
"""The steps of one engine: "hd" and "uhd"."""


class Target(Value):
    """A running engine."""

    whip_url: str
    whep_url: str
    pid: int


@asynccontextmanager
async def sightline() -> AsyncIterator[Target]:
    """The embedded forwarder with one media worker."""
    async with a_rig(Options(secret=SECRET, public_url="", workers=1)) as rig:
        made = await rig.backend.create_input(a_session_id())
        (row,) = await rig.backend.stats()
        yield Target(made.whip_url, made.whep_url, row["pid"])


@asynccontextmanager
async def mediamtx() -> AsyncIterator[Target]:
    """MediaMTX with the settings of the manual, and a hook that lets everyone in."""

    async def allow(method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        del method, target, headers, body
        return 200, [], b""

    listeners, hook_url = await listen()
    async with trio.open_nursery() as nursery:
        serve(nursery, listeners, allow)
        async with a_mediamtx(hook_url) as engine:
            path = f"{engine.media_url}/live_{'0' * 32}"
            yield Target(f"{path}/whip", f"{path}/whep", engine.pid)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def go2rtc() -> AsyncIterator[Target]:
    """go2rtc with one stream that is published to it."""
    async with a_go2rtc({"clip": ""}) as engine:
        yield Target(engine.whip_url("clip"), engine.whep_url("clip"), engine.pid)


ENGINES: Final[dict[str, Callable[[], AbstractAsyncContextManager[Target]]]] = {
    "Sightline": sightline,
    "MediaMTX": mediamtx,
    "go2rtc": go2rtc,
}


def render(target: Path, *, size: str, bitrate: str) -> None:
    """Render 8 s of moving noise at a constant bitrate, with a keyframe a second and no B-frames."""
    picture = f"testsrc2=size={size}:rate=30,noise=alls=12:allf=t"
    rate = ["-b:v", bitrate, "-minrate", bitrate, "-maxrate", bitrate, "-bufsize", bitrate]
    gop = ["-x264-params", "keyint=30:min-keyint=30:scenecut=0:slices=1:nal-hrd=cbr"]
    encoder = ["-c:v", "libx264", "-profile:v", "baseline", "-preset", "ultrafast", "-pix_fmt", "yuv420p"]
    command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", picture, "-t", "8"]
    subprocess.run([*command, *encoder, *gop, *rate, str(target)], check=True)


async def loaded(target: Target, clip: Path, steps: str, seconds: float) -> list[Step]:
    """Publish to an engine, view in steps, and return what was measured in each."""
    command = [str(LOADER), "load", target.whip_url, target.whep_url, str(clip), str(target.pid), steps, str(seconds)]
    done = await trio.run_process(command, capture_stdout=True)
    return [json.loads(line) | {"load": os.getloadavg()[0]} for line in done.stdout.splitlines()]


def per_viewer(one: Round, *, field: str, at: int) -> float:
    """What each viewer costs, from no viewers to a step."""
    none, some = one["hd"][0], one["hd"][at]
    return float((some[field] - none[field]) / some["viewers"])


def delay(one: Round, *, clip: str, at: int, part: str) -> float:
    """The p50 or p95 of a step, in ms."""
    return float(one[clip][at][f"delay_{part}_ms"])


def spread(values: list[float], form: str = ".2f") -> str:
    """One value, or the range of several rounds."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def table(results: dict[str, list[Round]]) -> str:
    """The figures as a table in Markdown: a column for each engine, ranges over the rounds."""
    names = list(results)
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]

    def row(label: str, figure: Callable[[Round], float], form: str = ".2f") -> None:
        cells = [spread([figure(one) for one in results[name]], form) for name in names]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")

    steps = [step["viewers"] for step in results[names[0]][0]["hd"]]
    for at, viewers in enumerate(steps[1:], 1):
        row(f"CPU per viewer of {viewers}, % of a core", partial(per_viewer, field="cpu_percent", at=at))
    row("memory per viewer, MB", partial(per_viewer, field="resident_mb", at=-1))
    for at, viewers in enumerate(steps[1:], 1):
        for part in ("p50", "p95"):
            row(f"delay {part} with {viewers}, ms", partial(delay, clip="hd", at=at, part=part), ".1f")
    row("POST to first picture, median, ms", lambda one: statistics.median(first_pictures(one)), ".0f")
    row("pictures that arrived, %", lambda one: min(arrived(step) for step in one["hd"] if step["viewers"]), ".1f")
    row("4K, CPU with one viewer, %", lambda one: one["uhd"][0]["cpu_percent"], ".1f")
    for part in ("p50", "p95"):
        row(f"4K, delay {part}, ms", partial(delay, clip="uhd", at=0, part=part), ".1f")
    row("4K, pictures that arrived, %", lambda one: arrived(one["uhd"][0]), ".1f")
    row("load of the machine", lambda one: max(step["load"] for step in one["hd"]), ".1f")
    return "\n".join(lines)


def first_pictures(one: Round) -> list[float]:
    """Time from POST to the first picture of each viewer of a round, in ms."""
    return [value for step in one["hd"] for value in step["first_picture_ms"]]


def arrived(step: Step) -> float:
    """Percentage of pictures that were sent during a step and arrived during it."""
    return float(min(100.0, step["pictures"] / max(1, step["expected"]) * 100))


async def run(folder: Path, given: argparse.Namespace) -> dict[str, list[Round]]:
    """Measure each engine once per round, one after the other."""
    hd, uhd = folder / "hd.h264", folder / "uhd.h264"
    render(hd, size="1280x720", bitrate="2M")
    render(uhd, size="3840x2160", bitrate="15M")
    results: dict[str, list[Round]] = {name: [] for name in ENGINES}
    for _ in range(given.rounds):
        for name, start in ENGINES.items():
            async with start() as target:
                measured = await loaded(target, hd, "0," + given.steps, given.seconds)
            async with start() as target:
                largest = await loaded(target, uhd, "1", given.seconds)
            results[name].append({"hd": measured, "uhd": largest})
    return results


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="bench.viewers", description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", default="1,10,30")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = trio.run(run, Path(folder), given)
    print(table(results))
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
