"""Measures what clips cost that are kept and not asked for: `python -m bench.clips [--seconds 20] [--rounds 3]`.

One media worker with an input of 720p30 H.264 at 2 Mbit/s with a keyframe a second, without viewers, keeps no clips and
10 s of them in turn. CPU and memory are those of the worker. Needs scripts/interop_pion.sh.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Final

import trio

from bench.viewers import Step, Target, loaded, render, spread
from sightline.video.options import Options
from tests.video.support.harness import SECRET, a_rig, a_session_id

KEPT_S: Final = 10


async def step(clip: Path, kept_s: int, seconds: float) -> Step:
    """Publish to a new worker; returns what its process used."""
    async with a_rig(Options(secret=SECRET, public_url="", workers=1, clip_seconds=kept_s)) as rig:
        made = await rig.backend.create_input(a_session_id())
        (row,) = await rig.backend.stats()
        (measured,) = await loaded(Target(made.whip_url, made.whep_url, row["pid"]), clip, "0", seconds)
    return measured


async def run(clip: Path, given: argparse.Namespace) -> str:
    """Measure both in turn; returns a table in Markdown."""
    rounds = [[await step(clip, kept_s, given.seconds) for kept_s in (0, KEPT_S)] for _ in range(given.rounds)]
    lines = ["| | no clips | clips of 10 s | difference |", "|---|---|---|---|"]
    for label, field in (("CPU, % of a core", "cpu_percent"), ("memory, MB", "resident_mb")):
        columns = [[one[at][field] for one in rounds] for at in (0, 1)]
        differences = [after - before for before, after in zip(*columns, strict=True)]
        lines.append(f"| {label} | " + " | ".join(spread(each) for each in (*columns, differences)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="bench.clips", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "hd.h264"
        render(clip, size="1280x720", bitrate="2M")
        print(trio.run(run, clip, given))


if __name__ == "__main__":
    main()
