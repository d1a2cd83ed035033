"""Attacks on the frames between servers, by somebody who has the token of NATS and none of the service's secrets."""

import hashlib
import hmac
import json
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import trio

from sightline.actors.messages import EndByPlatform
from sightline.cluster.bus.nats_connection import FAILURES, Hello, NatsConnection, connect_to
from sightline.cluster.peers import codec
from sightline.domain.session.messages import MediaProved
from sightline.system.clock import SystemClock
from sightline.system.server_address_file import read_server_addresses
from sightline.video.tokens import ref_of
from tests.attack.catalogue import Kind, attack
from tests.attack.target import Target
from tests.cluster.bus.nats_process import NatsProcess
from tests.conftest import open_data_directory
from tests.e2e.server import PLACE, Server, Tenant

TELL, ASK = 1, 0
"""Kinds of items in a frame, as every version numbers them."""
OTHER_MACHINE = "nats://192.0.2.1:4222"
"""No NATS server is there; the address is for documentation (RFC 5737)."""
FRAMES_WAIT_S = 60.0


class Outsider:
    """A connection to NATS that hears everything and publishes what it likes."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, bytes]] = []
        self.connection: NatsConnection
        self._numbers = count(10**12)

    def take(self, subject: bytes, reply: bytes, payload: bytes, _is_undelivered: bool) -> None:
        self.heard.append((subject.decode(), reply.decode(), payload))

    def publish(self, subject: str, frame: bytes) -> None:
        self.connection.publish(subject, f"sl.sightline.b.x.{next(self._numbers)}", frame)

    async def tell_every_server(self, subjects: list[str], *items: list[Any]) -> None:
        """Publish these items as a frame of each form that a server has ever understood."""
        for subject in subjects:
            self.publish(subject, codec.encode([1, "x", 0, list(items)]))
            self.publish(subject, codec.encode([2, 0, [[*item, 0] for item in items]]))
        await self.connection.flush()


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Outsider]:
    """Connect with the token, subscribe to everything."""
    outsider = Outsider()
    hello = Hello(name="outsider", subjects=("sl.>",), tls=None, credentials=None)
    outsider.connection = await connect_to(url, hello, outsider.take)

    async def run() -> None:
        try:
            await outsider.connection.run()
        except FAILURES:
            return

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            yield outsider
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the table shows its text
    finally:
        await outsider.connection.abort()


@asynccontextmanager
async def a_service(**env: str) -> AsyncIterator[Target]:
    """A server of its own."""
    with open_data_directory() as directory:
        (directory / "server").mkdir()
        server = Server(directory / "server", env=env)
        try:
            await server.start()
            async with httpx.AsyncClient(timeout=60) as http:
                yield Target(server, http)
        finally:
            server.end()


async def a_live_session(target: Target) -> tuple[Tenant, Tenant, str]:
    """Consumer, operator and id of a LIVE session."""
    consumer, operator = await target.tenant("CONSUMER"), await target.operator()
    return consumer, operator, (await target.live_session(consumer, operator))["session"]["id"]


@asynccontextmanager
async def a_member() -> AsyncIterator[tuple[Target, Outsider, list[str]]]:
    """A server with a NATS server beside it, somebody with its token, and the subjects that the server listens to."""
    with open_data_directory() as directory:
        nats = NatsProcess(directory / "nats")
        try:
            async with a_service(SIGHTLINE_NATS_URL=nats.url) as target, listening(nats.url) as outsider:
                headers = target.server.internal_headers()
                nodes = await target.http.get(internal(target, "nodes"), headers=headers)
                (run,) = re.findall(r'"incarnation":"([^"]+)"', nodes.text)
                yield target, outsider, ["sl.sightline.all", f"sl.sightline.n.{run}"]
        finally:
            nats.kill()


def internal(target: Target, path: str) -> str:
    """URL of a page of the internal listener."""
    addresses = read_server_addresses(target.server.directory / "data")
    assert addresses is not None
    return f"{addresses.internal_url}/internal/{path}"


@attack(
    "A6", "A frame that cannot be decoded ends every server", Kind.APART, before="the server ended with exit code 1"
)
async def crash_frame(_target: Target) -> str:
    async with a_member() as (target, outsider, subjects):
        for subject in subjects:
            for frame in (codec.encode([1, "x", 0, 5]), codec.encode([2, 0, 5]), b"\xc1\x00", b"", b"\x91" * 5_000):
                outsider.publish(subject, frame)
            outsider.publish(subject + "." + "9" * 3_000, b"")
        await outsider.connection.flush()
        for _ in range(20):
            assert (await target.call("GET", "/health")).status_code == 200
            await trio.sleep(0.05)
        assert target.server.process is not None
        assert target.server.process.poll() is None
    return "the server goes on"


@attack(
    "A6", "Forged MediaProved and EndByPlatform: a charge without video, and an end of another tenant's session",
    Kind.APART, before="BROKEN: 5 clean seconds without any video",
)  # fmt: skip
async def forged_frames(_target: Target) -> str:
    async with a_member() as (target, outsider, subjects):
        consumer, operator, session_id = await a_live_session(target)
        path, clock = f"/sessions/{session_id}", SystemClock()
        for number in range(2, 8):
            place = {"lat": PLACE[0], "lng": PLACE[1], "sequence": number}
            answer = await target.call("POST", f"/workspaces/{operator.workspace_id}/location", operator.key, place)
            assert answer.status_code == 200, answer.text
            proof = codec.pack(MediaProved(clock.now_ms()))
            await outsider.tell_every_server(subjects, [TELL, "session", session_id, False, None, 0, proof])
            await trio.sleep(1)
        meter = (await target.call("GET", f"{path}/meter", consumer.key)).json()["data"]
        assert meter["cleanSeconds"] == 0, f"{meter['cleanSeconds']} clean seconds without any video"
        end = codec.pack(EndByPlatform())
        await outsider.tell_every_server(subjects, [ASK, 1, "session", session_id, True, None, 5_000, end])
        await trio.sleep(1)
        state = (await target.call("GET", path, consumer.key)).json()["data"]["state"]
        assert state == "LIVE", state
    return "0 clean seconds, the session stays LIVE"


@attack(
    "A6", "Frames that were recorded are published again",
    Kind.APART, before="taken again: the receiver counted lost frames and gave up what it had asked",
)  # fmt: skip
async def replayed_frames(_target: Target) -> str:
    async with a_service(SIGHTLINE_WORKERS="2", SIGHTLINE_VIDEO_WORKERS="2") as target:
        config = (target.server.directory / "data" / "nats" / "nats.conf").read_text()
        (token,), (port,) = re.findall(r'token: "(\w+)"', config), re.findall(r"127\.0\.0\.1:(\d+)", nats_url(target))
        logs = list((target.server.directory / "data" / "log").glob("worker-*.log"))
        async with listening(f"nats://{token}@127.0.0.1:{port}") as outsider:
            with trio.fail_after(FRAMES_WAIT_S):
                while len(recorded := [each for each in outsider.heard if ".n." in each[0]]) < 6:  # noqa: ASYNC110
                    await trio.sleep(0.1)
            before = [log.read_text().count("frames_lost") for log in logs]
            readable = sum(b"session" in payload for _, _, payload in recorded)
            for subject, reply, payload in recorded:
                sender = reply.split(".")[-2]
                for number in range(2):
                    outsider.connection.publish(subject, f"sl.sightline.u.{sender}.{10**12 + number}", payload)
            await outsider.connection.flush()
            await trio.sleep(2)
        after = [log.read_text().count("frames_lost") for log in logs]
        assert before == after, f"{sum(after) - sum(before)} times `frames_lost`"
        assert not readable, f"{readable} of {len(recorded)} frames can be read"
    return f"{len(recorded)} frames recorded, none taken again"


def nats_url(target: Target) -> str:
    """Where the embedded NATS server listens, as its workers log it."""
    log = (target.server.directory / "data" / "log" / "worker-1.log").read_text()
    return next(line for line in log.splitlines() if "bus_connected" in line)


@attack(
    "A6", "NATS on another machine without TLS and credential",
    Kind.APART, before="accepted; neither the start nor doctor said a word",
)  # fmt: skip
async def open_nats(_target: Target) -> str:
    with open_data_directory() as directory:
        env = {"SIGHTLINE_NATS_URL": OTHER_MACHINE, "SIGHTLINE_STARTUP_TIMEOUT_SECONDS": "5"}
        (directory / "server").mkdir()
        server = Server(directory / "server", env=env)
        try:
            server.spawn()
            assert server.process is not None
            await trio.to_thread.run_sync(server.process.wait, abandon_on_cancel=True)
            assert "TLS" in server.log(), server.log()[-160:]
        finally:
            server.end()
        command = [sys.executable, "-m", "sightline.cli", "doctor", "--data-dir", str(directory / "data")]
        said = await trio.run_process(command, env=env, check=False, capture_stdout=True, stderr=subprocess.STDOUT)
        assert b"nats" in said.stdout, "doctor does not mention it"
        assert said.returncode == 1
    return "refused at the start and by doctor"


@attack(
    "C4", "The credential of frames between servers, heard once, is used later",
    Kind.APART, before="one bearer that never changes, in plain HTTP",
)  # fmt: skip
async def heard_credential(_target: Target) -> str:
    async with a_member() as (target, _outsider, _subjects):
        secrets = json.loads((target.server.directory / "data" / "secrets.json").read_text())
        # What every request had, and still has if a server listens to one of an earlier version.
        key = b64decode(secrets["video_secret"])
        bearer = "Bearer " + hmac.digest(key, b"sightline frames between servers", hashlib.sha256).hex()
        _, _, session_id = await a_live_session(target)
        query = json.dumps({"width": 320, "quality": 80, "after": None, "wait_ms": 0, "max_age_ms": 1_000})
        headers = {"authorization": bearer, "x-svc-frame-query": query}
        answer = await target.http.get(internal(target, f"frames/{ref_of(session_id)}"), headers=headers)
        assert answer.status_code == 401, answer.status_code
    return "401"
