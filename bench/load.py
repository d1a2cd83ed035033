"""The load generator, a process of its own: reads a job as JSON from stdin, prints its result as JSON.

Jobs: `closed` (each connection sends its next request when it has the answer to the last), `once` (a list of requests,
each sent once, over some connections), `paced` (each connection sends one heartbeat every two seconds, at its own
phase), `stream` (WebSocket heartbeats, some under way at a time).
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvloop

from bench.wire import Caller, Streamer, Tally, percentiles, request

PERIOD_S = 2.0


def first_sequence() -> int:
    """Above every sequence of an earlier run."""
    return time.time_ns() // 50_000


def heartbeats(device: dict[str, str], count: int = 1) -> Iterator[bytes]:
    """The device's requests, for ever: one heartbeat each, or batches."""
    path = f"/api/v1/workspaces/{device['id']}/location"
    for sequence in itertools.count(first_sequence(), count):
        if count == 1:
            yield request("POST", path, device["key"], heartbeat(sequence))
        else:
            items = b",".join(heartbeat(sequence + item) for item in range(count))
            yield request("POST", path + "s", device["key"], b'{"items":[' + items + b"]}")


def heartbeat(sequence: int) -> bytes:
    """The body of one heartbeat; the device shivers by some decimetres."""
    lat = 52.52 + sequence % 9 * 0.000001
    return b'{"lat":%.6f,"lng":13.405,"accuracyMeters":5,"sequence":%d}' % (lat, sequence)


def until(deadline: float, requests: Iterator[bytes]) -> Callable[[], bytes | None]:
    """The next request, None after the deadline or at the end."""
    return lambda: next(requests, None) if time.perf_counter() < deadline else None


async def connected(job: dict[str, Any], callers: list[Any]) -> None:
    """Open one connection for each, a few at a time."""
    loop = asyncio.get_running_loop()
    for at in range(0, len(callers), 100):
        await asyncio.gather(
            *(
                loop.create_connection(lambda made=each: made, job["host"], job["port"])
                for each in callers[at : at + 100]
            )
        )


async def closed(job: dict[str, Any], tally: Tally) -> float:
    """Closed loop; returns how long it took."""
    count, deadline = job["connections"], time.perf_counter() + job["seconds"]
    if "devices" in job:
        sources = [heartbeats(device, job.get("batch", 1)) for device in job["devices"][:count]]
    else:
        wanted = [request(**each) for each in job["requests"]]
        sources = [itertools.cycle(wanted[at:] + wanted[:at]) for at in range(count)]
    began = time.perf_counter()
    callers = [Caller(tally, until(deadline, source)) for source in sources]
    await connected(job, callers)
    await asyncio.gather(*(caller.is_over for caller in callers))
    return time.perf_counter() - began


async def once(job: dict[str, Any], tally: Tally) -> float:
    """Every request once."""
    wanted = iter([request(**each) for each in job["requests"]])
    tally.bodies = []
    began = time.perf_counter()
    callers = [Caller(tally, lambda: next(wanted, None)) for _ in range(job["connections"])]
    await connected(job, callers)
    await asyncio.gather(*(caller.is_over for caller in callers))
    return time.perf_counter() - began


async def stream(job: dict[str, Any], tally: Tally) -> float:
    """WebSocket heartbeats."""
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
        streamers.append(Streamer(tally, handshake, until(deadline, bodies), job["window"]))
    await connected(job, streamers)
    await asyncio.gather(*(each.is_over for each in streamers))
    return time.perf_counter() - began


async def paced(job: dict[str, Any], tally: Tally) -> float:
    """One heartbeat per device every two seconds. A device that still waits for its answer skips a beat.

    The first beat of each is not counted: it finds a cold server.
    """
    devices = job["devices"][: job["connections"]]
    sources = [heartbeats(device) for device in devices]
    callers = [Caller(tally, lambda source=source: next(source), paced=True) for source in sources]
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
    """Keep-alive connections that made one call each and then stay, until stdin says so."""
    wanted = [request(**each) for each in job["requests"]]
    calls = [wanted[place % len(wanted)] for place in range(job["connections"])]
    callers = [Caller(tally, lambda data=data: data, paced=True) for data in calls]
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
    """Do the job."""
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
    if tally.bodies is not None:
        result["operators"] = [
            json.loads(body)["data"]["operatorWorkspaceId"]
            for body in tally.bodies
            if body.startswith(b'{"statusCode":200')
        ]
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
