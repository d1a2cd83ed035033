# ruff: noqa: T201, TID251, S311  # a script for people, with seeded randomness
"""Soak the embedded video backend: `python scripts/soak_video.py --minutes 30`.

Publishers and viewers come and go at seeded random times, agents poll, inputs are opened and closed. Every
interval the worker's memory, threads and descriptors are printed; at the end the last third is compared with the
middle third, and growth beyond the limits fails.
"""

import argparse
import os
import random
import sys
from pathlib import Path

import trio

from sightline.ports.video import FrameQuery
from sightline.video.options import Options
from tests.video.support.harness import SECRET, Rig, a_rig, a_session_id, play_json, publishing

MEMORY_GROWTH_MAX_KB = 12_000
THREADS_GROWTH_MAX = 1


def census(pid: int) -> dict[str, int]:
    """Return memory in kB, threads and descriptors of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    descriptors = os.listdir(f"/proc/{pid}/fd")
    return {"rss_kb": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]), "fds": len(descriptors)}


async def one_life(rig: Rig, chance: random.Random) -> None:
    """Run sessions one after the other: publish, watch, poll, take over, close."""
    while True:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url), trio.open_nursery() as nursery:
            nursery.start_soon(poll, rig, made.ref, chance.choice([0.1, 0.3, 1.0]))
            for _ in range(chance.randint(1, 3)):
                await play_json(made.whep_url, chance.uniform(1, 5))
            if chance.random() < 0.4:
                async with publishing(made.whip_url, extra=["--seconds", "4"]):
                    await trio.sleep(chance.uniform(2, 6))
            nursery.cancel_scope.cancel()
        await rig.backend.close_input(made.ref)


async def poll(rig: Rig, ref: str, every_s: float) -> None:
    """Poll frames as an agent does."""
    while True:
        await rig.backend.frame(ref, FrameQuery(width=640, wait_ms=200))
        await trio.sleep(every_s)


async def soak(minutes: float, sessions: int, every_s: float) -> int:
    """Run the soak test; returns the exit code."""
    rows: list[dict[str, int]] = []
    async with a_rig(Options(secret=SECRET, public_url="", workers=1)) as rig, trio.open_nursery() as nursery:
        for index in range(sessions):
            nursery.start_soon(one_life, rig, random.Random(index))
        ends = trio.current_time() + minutes * 60
        while trio.current_time() < ends:
            await trio.sleep(every_s)
            (stats,) = await rig.backend.stats()
            rows.append(census(stats["pid"]))
            print(
                {**rows[-1], **{name: stats[name] for name in ("publishers", "viewers", "peers", "decoded", "encoded")}}
            )
        nursery.cancel_scope.cancel()
    third = max(1, len(rows) // 3)
    middle, last = rows[-2 * third : -third] or rows[:1], rows[-third:]

    def lowest(part: list[dict[str, int]], name: str) -> int:
        return min(row[name] for row in part)

    growth = {name: lowest(last, name) - lowest(middle, name) for name in rows[0]}
    print(f"growth of the minimum from the middle to the last third: {growth}")
    fine = growth["rss_kb"] < MEMORY_GROWTH_MAX_KB and growth["threads"] <= THREADS_GROWTH_MAX and growth["fds"] <= 4
    print("flat" if fine else "GROWING")
    return 0 if fine else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--every", type=float, default=20, help="seconds between two looks")
    given = parser.parse_args()
    sys.exit(trio.run(soak, given.minutes, given.sessions, given.every))
