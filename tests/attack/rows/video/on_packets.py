"""Attacks on the media port by somebody who has no session: STUN, DTLS and media from addresses that nobody knows."""

import re
import sys

import psutil
import trio

from tests.attack.catalogue import attack
from tests.attack.rows.video.on_pictures import ATTACK_S, GROWTH_MAX_MB, P50_MAX_MS, beside, worker_bytes
from tests.attack.rows.video.on_video import post_offer, whip_urls
from tests.attack.target import Target
from tests.video.support.offers import an_obs_offer

AMPLIFIED_MAX = 1.0
"""Bytes that come back for each byte sent; more would make the port a reflector."""
SIZES = {"stun": 20, "user": 68, "hello": 100, "media": 1_102}


async def media_address(target: Target) -> tuple[str, str]:
    """Host and UDP port of a media worker, from the candidates of an answer."""
    _, whip, _ = await whip_urls(target)
    answer = await post_offer(target, whip, an_obs_offer())
    assert answer.status_code == 201, answer.text
    found = re.search(r"a=candidate:\S+ 1 udp \d+ (127\.0\.0\.1|[\d.]+) (\d+) typ host", answer.text)
    assert found is not None, answer.text
    assert target.server.process is not None
    workers = psutil.Process(target.server.process.pid).children(recursive=True)
    bound = {each.laddr.port for worker in workers for each in worker.net_connections("udp")}
    assert int(found[2]) in bound, f"{found[2]} is none of the media workers' ports {sorted(bound)}"
    return found[1], found[2]


async def flooded(target: Target, kind: str) -> str:
    """Flood the media port beside a second tenant that publishes and reads frames."""
    host, port = await media_address(target)
    before = worker_bytes(target)
    async with beside(target) as (_, latency):
        await latency.measured(20)
        quiet_ms = latency.quantile_ms(50)
        latency.millis.clear()
        command = ["nice", "-n", "19", sys.executable, "-m", "tests.attack.udp_flood", host, port, kind, str(ATTACK_S)]
        done = await trio.run_process(command, capture_stdout=True)
        sent, heard = map(int, done.stdout.split())
        await latency.measured(20)
    grown_mb = (worker_bytes(target) - before) / 1e6
    p50_ms, p99_ms = latency.quantile_ms(50), latency.quantile_ms(99)
    seen = (
        f"{sent / ATTACK_S:.0f} datagrams a second, {heard / (sent * SIZES[kind]):.2f} bytes back a byte; second "
        f"tenant's frames p50 {quiet_ms:.0f} to {p50_ms:.0f} ms, p99 {p99_ms:.0f} ms; worker {grown_mb:+.0f} MB"
    )
    assert heard <= sent * SIZES[kind] * AMPLIFIED_MAX, seen
    assert p50_ms < P50_MAX_MS, seen
    assert grown_mb < GROWTH_MAX_MB, seen
    return seen


@attack("UDP", "STUN binding requests without credentials, as many as a process can send")
async def stun_flood(target: Target) -> str:
    return await flooded(target, "stun")


@attack("UDP", "STUN binding requests with invented users, as many as a process can send")
async def stun_user_flood(target: Target) -> str:
    return await flooded(target, "user")


@attack("UDP", "DTLS ClientHellos of unknown addresses, as many as a process can send")
async def hello_flood(target: Target) -> str:
    return await flooded(target, "hello")


@attack("UDP", "SRTP of unknown addresses, as many as a process can send")
async def unknown_media_flood(target: Target) -> str:
    return await flooded(target, "media")
