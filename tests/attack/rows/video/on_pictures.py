"""Attacks on the media workers by what is sent after the handshakes: large pictures, and floods of packets."""

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psutil
import trio

from tests.attack.catalogue import attack
from tests.attack.target import Latency, Target, honest_calls
from tests.e2e.server import Tenant
from tests.video.support.harness import publishing
from tests.video.support.hostile import sending

FRAME_EVERY_S = 0.11
"""Just below the rate that is allowed of frames of one session."""
P50_MAX_MS = 5_000.0
"""Tells a stall from a busy machine: hostile clients and the server share its processors. p99 is only shown."""
GROWTH_MAX_MB = 600
ATTACK_S = float(os.environ.get("SIGHTLINE_ATTACK_SECONDS", "4"))
PATIENCE_S = 60.0


def worker_of(session_id: str) -> int:
    digest = hashlib.blake2s(session_id.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % (os.cpu_count() or 1)


def worker_bytes(target: Target) -> int:
    """Resident memory of the largest media worker."""
    assert target.server.process is not None
    found = [0]
    for each in psutil.Process(target.server.process.pid).children(recursive=True):
        try:
            if "sightline.video.worker" in each.cmdline():
                found.append(int(each.memory_info().rss))
        except psutil.NoSuchProcess:  # a worker that is being replaced
            continue
    return max(found)


async def session_on(target: Target, worker: int) -> tuple[Tenant, dict[str, Any]]:
    """A LIVE session on the worker, and its consumer."""
    while True:
        consumer = await target.tenant("CONSUMER")
        session = (await target.live_session(consumer, await target.operator()))["session"]
        if worker_of(session["id"]) == worker:
            return consumer, session


async def poll(
    target: Target, consumer: Tenant, session: dict[str, Any], query: Callable[[int], str], into: set[str]
) -> None:
    """Ask for frames of the attacker's own session as fast as its rate allows."""
    number = 0
    while True:
        number += 1
        path = f"/sessions/{session['id']}/frame{query(number)}"
        answer = await target.call("GET", path, consumer.key)
        label = answer.json()["detail"] if answer.status_code >= 400 else ""
        into.add(f"{answer.status_code} {label}".strip())
        await trio.sleep(FRAME_EVERY_S)


@asynccontextmanager
async def beside(target: Target) -> AsyncIterator[tuple[int, Latency]]:
    """A second tenant that publishes the clip and reads its frames; gives its worker and its latency."""
    consumer, session = await session_on(target, 0)
    url = f"{target.url}/api/v1/sessions/{session['id']}/frame?width=640"
    async with publishing(session["whipUrl"]):
        with trio.fail_after(60):
            while (await target.call("GET", url, consumer.key)).status_code != 200:  # noqa: ASYNC110  a poller
                await trio.sleep(0.2)
        async with honest_calls(url, consumer.key, every_s=FRAME_EVERY_S) as latency:
            yield 0, latency


async def measure(
    target: Target, modes: list[str], query: Callable[[int], str] = lambda _: "", *, kind: str = "whip"
) -> str:
    """Run hostile clients, polled, beside a second tenant on one worker; say what its frames and the memory felt."""
    answers: set[str] = set()
    before = highest = worker_bytes(target)
    async with beside(target) as (worker, latency), AsyncExitStack() as stack, trio.open_nursery() as nursery:
        await latency.measured(20)
        quiet_ms = latency.quantile_ms(50)
        for mode in modes:
            consumer, session = await session_on(target, worker)
            if kind == "whep":
                await stack.enter_async_context(publishing(session["whipUrl"]))
            await stack.enter_async_context(sending(session[f"{kind}Url"], mode))
            nursery.start_soon(poll, target, consumer, session, query, answers)
        latency.millis.clear()
        ends = trio.current_time() + ATTACK_S
        while trio.current_time() < ends or (len(latency.millis) < 5 and trio.current_time() < ends + PATIENCE_S):
            highest = max(highest, worker_bytes(target))
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    p50_ms, p99_ms = latency.quantile_ms(50), latency.quantile_ms(99)
    grown_mb = (highest - before) / 1e6
    seen = (
        f"worker {before / 1e6:.0f} to {highest / 1e6:.0f} MB; second tenant's frames p50 {quiet_ms:.0f} to "
        f"{p50_ms:.0f} ms, p99 {p99_ms:.0f} ms; answers {', '.join(sorted(answers))}"
    )
    assert grown_mb < GROWTH_MAX_MB, seen
    assert p50_ms < P50_MAX_MS, seen
    return seen


FRAMES_FAILED = "BROKEN: the second tenant's calls for frames failed"


def add_row(finding: str, name: str, title: str, modes: list[str], *, kind: str = "whip", before: str = "") -> None:
    """Add a row that sends these modes, and nothing else that is special."""

    async def run(target: Target) -> str:
        return await measure(target, modes, kind=kind)

    run.__name__ = name
    attack(finding, title, before=before)(run)


@attack(
    "A3",
    "H.264 of 16384x8192 from three inputs, polled",
    before="BROKEN: the second tenant got no frame for 60 s, and its session ended",
)
async def huge_pictures(target: Target) -> str:
    seen = await measure(target, ["still:16384x8192"] * 3)
    assert "404 frame:tooLarge" in seen, seen
    return seen


@attack("A3", "JPEGs of noise in 3840x2160 in every quality, from three inputs", before=FRAMES_FAILED)
async def huge_jpegs(target: Target) -> str:
    return await measure(target, ["noise:3840x2160"] * 3, lambda number: f"?quality={95 - number % 20}")


add_row(
    "A3", "many_references", "16 reference pictures of 3840x2160, from three inputs",
    ["still:3840x2160:16"] * 3, before=FRAMES_FAILED,
)  # fmt: skip
add_row(
    "A3", "changing_sizes", "A size that changes with every keyframe, from three inputs",
    ["changing:3840x2160:2160x3840"] * 3, before="second tenant's p50 7 to 113 ms",
)  # fmt: skip
add_row(
    "A3", "lying_sizes", "A small parameter set with a large one inside the slice, from three inputs",
    ["lying:640x352:16384x4096"] * 3, before=FRAMES_FAILED,
)  # fmt: skip
for _name, _title, _modes, _kind in (
    ("packet_flood", "50,000 packets a second after the handshake", ["junk:50000"], "whip"),
    ("jumping_numbers", "Sequence numbers that jump, 20,000 packets a second", ["jumping:20000"], "whip"),
    ("endless_fragments", "Fragments of a unit that never ends", ["endless:20000"], "whip"),
    (
        "repairs_and_sources", "Retransmissions that nobody asked for, and a new source in each packet",
        ["repairs:15000", "sources:15000"], "whip",
    ),
    ("report_flood", "RTCP of 40 sender reports, 10,000 packets a second", ["reports:10000"], "whip"),
    (
        "feedback_storm", "A viewer that asks for 250 packets and a keyframe 5,000 times a second",
        ["storm:5000"], "whep",
    ),
):  # fmt: skip
    add_row("RTP", _name, _title, _modes, kind=_kind)
