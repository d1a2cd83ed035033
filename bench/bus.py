"""CPU of a frame between two servers over NATS: `python -m bench.bus`.

Prints CPU microseconds per frame of the sender's process, the receiver's process and nats-server, for frames of 300
bytes that are sent one by one and 32 at a time. The receiver answers each group with one frame, and the sender waits
for it, so that nothing gathers by itself; the cost of the answer is part of the figures.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import psutil
import trio

from sightline.cluster.bus.nats import NatsBus, NatsOptions, open_nats_bus
from sightline.cluster.bus.server import EmbeddedNatsOptions, run_embedded_nats
from sightline.system.ids import SystemIds

KEY: Final = b"k" * 32
FRAME: Final = b"x" * 300
FRAMES: Final = 32_000
GROUPS: Final = (1, 32)


def cpu_us(pid: int) -> float:
    """CPU time that a process has used, in microseconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system) * 1e6


async def answer(url: str) -> None:
    """Answer the last frame of each group, which begins with `a`."""
    async with open_nats_bus(NatsOptions(servers=(url,), cluster="bench", key=KEY, incarnation="receiver")) as bus:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            if getattr(await bus.receive(), "frame", b"").startswith(b"a"):
                bus.send("sender", b"done")


async def ask(bus: NatsBus, group: int) -> None:
    """Send all frames in groups, each after the answer to the one before."""
    for _ in range(FRAMES // group):
        for _ in range(group - 1):
            bus.send("receiver", FRAME)
        bus.send("receiver", b"a" + FRAME[1:])
        await bus.receive()


async def main() -> None:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="sightline-") as folder:
        here = Path(folder)
        async with trio.open_nursery() as nursery:
            nats = EmbeddedNatsOptions(directory=here, log_path=here / "nats.log")
            url = await nursery.start(run_embedded_nats, nats, SystemIds())
            args = [sys.executable, "-m", "bench.bus", "answer"]
            child = await trio.lowlevel.open_process(
                args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"BENCH_NATS_URL": url}
            )
            assert child.stdout is not None
            await child.stdout.receive_some()
            (broker,) = [
                found.pid for found in psutil.Process().children(recursive=True) if found.name() == "nats-server"
            ]
            async with open_nats_bus(
                NatsOptions(servers=(url,), cluster="bench", key=KEY, incarnation="sender")
            ) as bus:
                await ask(bus, 32)
                sys.stdout.write(f"{'gathered':>8} {'sender':>8} {'receiver':>8} {'broker':>8} {'frames/s':>9}\n")
                for group in GROUPS:
                    pids = (os.getpid(), child.pid, broker)
                    before, began = [cpu_us(pid) for pid in pids], trio.current_time()
                    await ask(bus, group)
                    used = [(cpu_us(pid) - start) / FRAMES for pid, start in zip(pids, before, strict=True)]
                    rate = FRAMES / (trio.current_time() - began)
                    sys.stdout.write(f"{group:>8} {used[0]:>8.1f} {used[1]:>8.1f} {used[2]:>8.1f} {rate:>9.0f}\n")
            child.kill()
            await child.wait()
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    if sys.argv[1:] == ["answer"]:
        trio.run(answer, os.environ["BENCH_NATS_URL"])
    else:
        trio.run(main)
