"""The load generator, a separate process: reads a job as JSON from stdin and prints its result as JSON.

Jobs: `closed` (each connection sends its next request after the answer to the previous one), `once` (a list of
requests, each sent once, over several connections), `paced` (each connection sends one heartbeat every two seconds, at
its own phase), `stream` (WebSocket heartbeats with several in flight). With `acknowledged` the result also lists the
acknowledged heartbeats of each device.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import uvloop

from bench.wire import Caller, Streamer, Tally, percentiles, request

T = TypeVar("T")

PERIOD_S = 2.0


def first_sequence() -> int:
    """Return a sequence number above those of every earlier run."""
    return time.time_ns() // 50_000


class Device:
    """The endless requests of one device, one heartbeat or one batch each, and which of them were acknowledged."""

    def __init__(self, made: dict[str, str], batch: int = 1) -> None:
        self._path = f"/api/v1/workspaces/{made['id']}/location" + ("s" if batch > 1 else "")
        self._key = made["key"]
        self._batch = batch
        self._next = self._sent = first_sequence()
        self.acknowledged: list[int] = []

    def __iter__(self) -> "Device":
        return self

    def __next__(self) -> bytes:
        self._sent, self._next = self._next, self._next + self._batch
        if self._batch == 1:
            return request("POST", self._path, self._key, heartbeat(self._sent))
        items = b",".join(heartbeat(sequence) for sequence in range(self._sent, self._next))
        return request("POST", self._path, self._key, b'{"items":[' + items + b"]}")

    def answered(self, status: int, body: bytes) -> None:
        """Record what the answer to the last request acknowledges."""
        if status == 200 and self._batch == 1:
            self.acknowledged.append(self._sent)
        elif status == 200:
            self.acknowledged += [item["sequence"] for item in json.loads(body)["data"]["items"] if item["ok"]]


def callers_of(job: dict[str, Any], tally: Tally, deadline: float | None) -> list[Caller]:
    """Create a caller for each device; paced if there is no deadline."""
    callers = []
    for made in job["devices"][: job["connections"]]:
        device = Device(made, job.get("batch", 1))
        source: Callable[[], bytes | None] = device.__next__ if deadline is None else until(deadline, device)
        caller = Caller(tally, source, paced=deadline is None)
        if job.get("acknowledged"):
            tally.acknowledged[made["id"]] = device.acknowledged
            caller.on_answer = device.answered
        callers.append(caller)
    return callers


def heartbeat(sequence: int) -> bytes:
    """Build the body of one heartbeat; the position varies by a few decimetres."""
    lat = 52.52 + sequence % 9 * 0.000001
    return b'{"lat":%.6f,"lng":13.405,"accuracyMeters":5,"sequence":%d}' % (lat, sequence)


def until(deadline: float, requests: Iterator[bytes]) -> Callable[[], bytes | None]:
    """Return the next request; None after the deadline or at the end."""
    return lambda: next(requests, None) if time.perf_counter() < deadline else None


def _itself(made: T) -> T:
    return made


async def connected(job: dict[str, Any], callers: list[Any]) -> None:
    """Open one connection per caller, a few at a time."""
    loop = asyncio.get_running_loop()
    for at in range(0, len(callers), 100):
        await asyncio.gather(
            *(
                loop.create_connection(partial(_itself, each), job["host"], job["port"])
                for each in callers[at : at + 100]
            )
        )


async def closed(job: dict[str, Any], tally: Tally) -> float:
    """Run the closed loop and return its duration."""
    count, began = job["connections"], time.perf_counter()
    deadline = began + job["seconds"]
    if "devices" in job:
        callers = callers_of(job, tally, deadline)
    else:
        wanted = [request(**each) for each in job["requests"]]
        sources = [itertools.cycle(wanted[at:] + wanted[:at]) for at in range(count)]
        callers = [Caller(tally, until(deadline, source)) for source in sources]
    await connected(job, callers)
    await asyncio.gather(*(caller.is_over for caller in callers))
    return time.perf_counter() - began


async def once(job: dict[str, Any], tally: Tally) -> float:
    """Send every request once."""
    wanted = iter([request(**each) for each in job["requests"]])
    tally.bodies = []
    began = time.perf_counter()
    callers = [Caller(tally, lambda: next(wanted, None)) for _ in range(job["connections"])]
    await connected(job, callers)
    await asyncio.gather(*(caller.is_over for caller in callers))
    return time.perf_counter() - began


async def stream(job: dict[str, Any], tally: Tally) -> float:
    """Send WebSocket heartbeats."""
    deadline = time.perf_counter() + job["seconds"]
    began = time.perf_counter()
    streamers = []
    for device in job["devices"][: job["connections"]]:
        upgrade = (
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        path = f"/api/v1/workspaces/{device['id']}/location/stream"
        bodies = (heartbeat(sequence) for sequence in itertools.count(first_sequence()))
        handshake = request("GET", path, device["key"], extra=upgrade)
        streamer = Streamer(tally, handshake, until(deadline, bodies), job["window"])
        if job.get("acknowledged"):
            streamer.acknowledged = tally.acknowledged.setdefault(device["id"], [])
        streamers.append(streamer)
    await connected(job, streamers)
    await asyncio.gather(*(each.is_over for each in streamers))
    return time.perf_counter() - began


async def paced(job: dict[str, Any], tally: Tally) -> float:
    """Send one heartbeat per device every two seconds. A device that still waits for an answer skips one.

    The first heartbeat of each device is not counted, because the server's caches are empty.
    """
    callers = callers_of(job, tally, None)
    await connected(job, callers)
    loop = asyncio.get_running_loop()
    began = loop.time()
    ends = began + PERIOD_S + job["seconds"]
    skipped = 0

    def beat(caller: Caller, at: float) -> None:
        nonlocal skipped
        if caller.is_waiting:
            skipped += 1
        elif not caller.is_over.done():
            caller.send()
        if at + PERIOD_S < ends:
            loop.call_at(at + PERIOD_S, beat, caller, at + PERIOD_S)

    for place, caller in enumerate(callers):
        at = began + PERIOD_S * place / len(callers)
        loop.call_at(at, beat, caller, at)
    await asyncio.sleep(PERIOD_S)
    tally.times.clear()
    tally.statuses.clear()
    skipped = 0
    await asyncio.sleep(job["seconds"])
    took = loop.time() - began - PERIOD_S
    for _ in range(100):
        if not any(caller.is_waiting for caller in callers):
            break
        await asyncio.sleep(0.1)
    tally.lost += skipped
    for caller in callers:
        caller.finish()
    return took


async def hold(job: dict[str, Any], tally: Tally) -> float:
    """Open keep-alive connections that make one call each, and keep them open for `seconds`."""
    wanted = [request(**each) for each in job["requests"]]
    calls = [wanted[place % len(wanted)] for place in range(job["connections"])]
    callers = [Caller(tally, partial(_itself, data), paced=True) for data in calls]
    await connected(job, callers)
    for at in range(0, len(callers), 200):
        for caller in callers[at : at + 200]:
            caller.send()
        while any(caller.is_waiting for caller in callers[at : at + 200]):  # noqa: ASYNC110 (200 connections, one wait)
            await asyncio.sleep(0.01)
    print("held", flush=True)
    await asyncio.sleep(job["seconds"])
    for caller in callers:
        caller.finish()
    return float(job["seconds"])


KINDS = {"hold": hold, "closed": closed, "once": once, "stream": stream, "paced": paced}


async def main() -> None:
    """Run the job."""
    job = json.load(sys.stdin)
    tally = Tally()
    took = await KINDS[job["kind"]](job, tally)
    good = tally.statuses[job.get("good", 200)]
    result = {
        "per_s": round(good * job.get("batch", 1) / took, 1),
        "took_s": round(took, 3),
        "statuses": {str(status): count for status, count in tally.statuses.items()},
        "lost": tally.lost,
        **percentiles(tally.times),
    }
    if job.get("acknowledged"):
        result["acknowledged"] = tally.acknowledged
    if tally.bodies is not None:
        answers = [json.loads(body)["data"] for body in tally.bodies if body.startswith(b'{"statusCode":200')]
        result["operators"] = {data["id"]: data["operatorWorkspaceId"] for data in answers}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
