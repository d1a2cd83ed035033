"""Attacks on the TCP port for media."""

import re

import psutil
import trio

from sightline.video.rtc.tcp_frames import framed
from sightline.video.tcp_listener import WAITING_MAX
from tests.attack.catalogue import attack
from tests.attack.rows.video.on_pictures import GROWTH_MAX_MB, P50_MAX_MS, beside, worker_bytes
from tests.attack.rows.video.on_video import post_offer, whip_urls
from tests.attack.target import Target
from tests.video.support.offers import an_obs_offer

HOST = "127.0.0.1"
SOURCES = [f"127.0.0.{number}" for number in range(2, 14)]
EACH = 12
"""Connections of each kind from each source: in all more than may wait."""
ACCEPTED_MAX = WAITING_MAX * 5 // 4
"""A connection over the limit is closed after it was accepted, so that a few more are open for a moment."""
CLOSED_S = 60.0
SENT = {
    "nothing": b"",
    "half a packet": b"\x00\x64\x00\x01",
    "a length of 65,535": b"\xff\xff" + bytes(60_000),
    "a length of 0": b"\0\0",
    "HTTP": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    "a check that names nobody": framed(b"\0\x01\0\0!\x12\xa4B" + bytes(12)),
}

TOTAL = len(SOURCES) * EACH * len(SENT)


@attack(
    "TCP", "Connections to the media port that send nothing, half a packet, huge lengths or other protocols",
    before="there was no TCP port",
)  # fmt: skip
async def hostile_tcp_connections(target: Target) -> str:
    _, whip, _ = await whip_urls(target)
    answer = await post_offer(target, whip, an_obs_offer())
    found = re.search(r" tcp \d+ \S+ (\d+) typ host tcptype passive", answer.text)
    assert found is not None, answer.text
    port = int(found[1])
    assert target.server.process is not None
    server = psutil.Process(target.server.process.pid)
    connected = most = 0
    before = worker_bytes(target)

    def held() -> int:
        """Connections of the attacker that the server has open."""
        connections = server.net_connections("tcp")
        return sum(each.laddr[1] == port and bool(each.raddr) and each.raddr[0] in SOURCES for each in connections)

    async def one(kind: str, source: str) -> None:
        nonlocal connected
        try:
            async with await trio.open_tcp_stream(HOST, port, local_address=source) as stream:
                connected += 1
                await stream.send_all(SENT[kind])
                while await stream.receive_some():
                    pass
        except (OSError, trio.BrokenResourceError):  # reset
            pass

    async with beside(target) as (_, latency):
        await latency.measured(20)
        quiet_ms = latency.quantile_ms(50)
        latency.millis.clear()
        async with trio.open_nursery() as attackers:
            for source in SOURCES:
                for kind in list(SENT) * EACH:
                    attackers.start_soon(one, kind, source)
            # The server's view counts: a client whose last packet of the handshake was dropped thinks it is connected.
            with trio.fail_after(CLOSED_S):
                while (now := held()) or connected < TOTAL:
                    most = max(most, now)
                    await trio.sleep(0.05)
            attackers.cancel_scope.cancel()
        await latency.measured(20)
    p50_ms, grown_mb = latency.quantile_ms(50), (worker_bytes(target) - before) / 1e6
    seen = (
        f"{TOTAL} connections, at most {most} open, then none; second tenant's frames p50 {quiet_ms:.0f} to "
        f"{p50_ms:.0f} ms; worker {grown_mb:+.0f} MB"
    )
    assert most <= ACCEPTED_MAX, seen
    assert p50_ms < P50_MAX_MS, seen
    assert grown_mb < GROWTH_MAX_MB, seen
    return seen
