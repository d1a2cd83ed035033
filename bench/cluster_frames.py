"""Cost of a frame that another server holds: `python -m bench.cluster_frames`.

Two real servers and a publisher. A poller asks the server that has the input, then the other one, for frame after frame
over one connection. Prints the latency, and the CPU of both servers' own processes per frame; media workers cost the
same in both cases and are left out.
"""

import statistics
import sys
import time
from typing import Final

import httpx
import psutil
import trio

from tests.cluster.servers import a_cluster
from tests.cluster.test_video import Live, a_live_session, publishing
from tests.e2e.server import Server

ROUNDS: Final = 3
FRAMES: Final = 400


def cpu_us(server: Server) -> float:
    """CPU time that a server's own process has used, in microseconds."""
    assert server.process is not None
    times = psutil.Process(server.process.pid).cpu_times()
    return float(times.user + times.system) * 1e6


async def poll(live: Live, at: Server) -> list[float]:
    """Take frames from a server; returns the milliseconds of each."""
    path = f"/api/v1/sessions/{live.session_id}/frame"
    took: list[float] = []
    async with httpx.AsyncClient(base_url=at.url, headers={"Authorization": f"Bearer {live.consumer.key}"}) as client:
        while len(took) < FRAMES:
            began = time.perf_counter()
            reply = await client.get(path)
            if reply.status_code == 200:
                took.append((time.perf_counter() - began) * 1e3)
    return took


async def measure(live: Live) -> None:
    """Print a line for each server and round."""
    for _ in range(ROUNDS):
        for name, at in (("home", live.home), ("other", live.other)):
            before = cpu_us(live.home), cpu_us(live.other)
            took = await poll(live, at)
            home, other = (
                after - begin for after, begin in zip((cpu_us(live.home), cpu_us(live.other)), before, strict=True)
            )
            p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[-1]
            sys.stdout.write(
                f"asked at {name:5}: p50 {p50:5.2f} ms, p99 {p99:5.2f} ms, CPU per frame: "
                f"home {home / FRAMES:5.0f} us, other {other / FRAMES:5.0f} us\n"
            )


async def main() -> None:
    """Measure."""
    with a_cluster(2) as cluster:
        await cluster.start()
        live = await a_live_session(cluster, "bench", 0)
        async with publishing(live.other.url + live.whip):
            await live.frame(live.other)
            await measure(live)


if __name__ == "__main__":
    trio.run(main)
