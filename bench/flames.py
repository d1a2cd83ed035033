"""Draws where a server's CPU time goes: `python -m bench.flames [--only post,dispatch] [--folder docs/ops/flames]`.

py-spy samples the server 500 times a second while it answers the load of the same row of `make bench`, and writes a
flame graph as SVG for each row. Needs the right to trace a process (root, or CAP_SYS_PTRACE).
"""

import argparse
import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from bench.run import load
from bench.servers import ROOT, Target, populate_sightline, sightline, sightline_sessions

SAMPLES_PER_S = 500
POST_S = 8
DISPATCHES = 4_000


@contextlib.asynccontextmanager
async def sampled(target: Target, picture: Path) -> AsyncIterator[None]:
    """Sample a server during the block. The samples of its idle threads are left out."""
    spy = Path(sys.executable).with_name("py-spy")
    process = await asyncio.create_subprocess_exec(
        str(spy), "record", "--pid", str(target.process.pid), "--rate", str(SAMPLES_PER_S), "--output", str(picture),
        "--format", "flamegraph", "--duration", "unlimited", "--nonblocking",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    await process.stdout.readline()  # it has begun
    yield
    process.send_signal(2)
    await process.communicate()


async def post(target: Target, picture: Path) -> None:
    """Sample single heartbeats of 64 devices, each with one in flight."""
    async with sampled(target, picture):
        await load(target, kind="closed", connections=64, seconds=POST_S, devices=target.devices[:64])


async def dispatch(target: Target, picture: Path) -> None:
    """Sample dispatches by 16 callers."""
    path, key = "/api/v1/sessions/{}/dispatch", target.consumer["key"]
    sessions = await sightline_sessions(target, DISPATCHES)
    wanted = [{"method": "POST", "path": path.format(each), "key": key} for each in sessions]
    async with sampled(target, picture):
        await load(target, kind="once", connections=16, requests=wanted)


ROWS = {"post": post, "dispatch": dispatch}


async def main(options: argparse.Namespace) -> None:
    """Draw the rows."""
    options.folder.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="sightline-flames-"))
    async with sightline(directory) as target:
        await populate_sightline(target, operators=10_000, devices=64)
        for name in options.only:
            picture = options.folder / f"{name}.svg"
            await ROWS[name](target, picture)
            # Paths of this machine say nothing to a reader.
            drawn = re.sub(r'(<text id="title"[^>]*>)[^<]*', rf"\1{name}", picture.read_text())
            picture.write_text(re.sub(r"[^\s\"<>(]*/(site-packages|lib/python3\.\d+)/", "", drawn))
            print(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.flames")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ROWS))
    parser.add_argument("--folder", type=Path, default=ROOT / "docs/ops/flames")
    uvloop.run(main(parser.parse_args()))
