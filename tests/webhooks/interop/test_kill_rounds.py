"""kill -9 under load, with a receiver that drops half: every committed event arrives, with a valid signature.

WEBHOOK_KILLS sets the number of rounds (3).
"""

import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from standardwebhooks.webhooks import Webhook

from sightline_client import SightlineError
from tests.client.api import Api
from tests.conftest import open_data_directory
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online
from tests.webhooks.receiver import DROP, Answer, Received, Receiver, open_receiver

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_800)]

ROUNDS = int(os.environ.get("WEBHOOK_KILLS", "3"))
SEED = 20_261_122
TOLD = {
    "CREATED": "session.requested",
    "ASSIGNED": "session.assigned",
    "CANCELLED": "session.cancelled",
    "EXPIRED": "session.expired",
}
DRAIN_S = 60
"""More than a lease and several retries."""


@pytest.fixture
def server() -> Iterator[Server]:
    with open_data_directory() as directory:
        settings = {
            "SIGHTLINE_WEBHOOK_ALLOW_LOOPBACK": "true",
            "SIGHTLINE_WEBHOOK_RETRY_SECONDS": ",".join(["1"] * 20),
            "SIGHTLINE_OPERATOR_ASSIGNMENTS_MAX": "1000",
        }
        made = Server(Path(directory), env=settings)
        yield made
        made.end()


class Half:
    """Drops half of the requests: with an error status, or by closing the connection."""

    def __init__(self) -> None:
        self.rng = random.Random(SEED)
        self.dropped = 0
        self.accepted = 0
        self.told: dict[str, set[tuple[str, int, str]]] = {"/consumer": set(), "/operator": set()}
        """Session, sequence and type of each accepted event about a session, by path."""
        self.secrets: dict[str, str] = {}

    def __call__(self, received: Received) -> Answer:
        # Raises, and so fails the test, if the signature is not valid.
        Webhook(self.secrets[received.path]).verify(received.body, received.headers)
        chance = self.rng.random()
        if chance < 0.5:
            self.dropped += 1
            return DROP if chance < 0.25 else Answer(500)
        self.accepted += 1
        event = json.loads(received.body)
        if event["type"].startswith("session."):
            self.told[received.path].add((event["data"]["id"], event["data"]["sequence"], event["type"]))
        return Answer(204)


async def traffic(url: str, consumer: Tenant, operator: Tenant) -> None:
    """Request sessions; cancel some, let the operator accept and drop the others. Runs until the server is gone."""
    rng = random.Random(SEED)
    async with Api(url, key=consumer.key) as asking, Api(url, key=operator.key) as filming:
        with suppress(SightlineError):
            while True:
                made = await asking.post("/sessions", lat=PLACE[0], lng=PLACE[1], waitTimeoutSeconds=3600)
                if rng.random() < 0.5:
                    await asking.call("DELETE", f"/sessions/{made['id']}")
                    continue
                await filming.post(f"/sessions/{made['id']}/accept", operatorWorkspaceId=operator.workspace_id)
                await filming.post("/sessions/cancel-all-assignments")


async def add_endpoint(url: str, tenant: Tenant, target: str) -> dict[str, Any]:
    async with Api(url) as api:
        await api.auth.sign_in(tenant.wallet)
        await api.post("/auth/workspace/select", workspaceId=tenant.workspace_id)
        return await api.post("/webhooks", url=target)


async def committed(url: str, tenant: Tenant) -> set[tuple[str, int, str]]:
    """Session, sequence and type of every recorded event that the tenant must have been told."""
    found: set[tuple[str, int, str]] = set()
    async with Api(url, key=tenant.key) as api:
        cursor: str | None = None
        while True:
            query = {"limit": 100} if cursor is None else {"limit": 100, "cursor": cursor}
            page = await api.get("/sessions", **query)
            for session in page["items"]:
                is_consumer = session["consumerWorkspaceId"] == tenant.workspace_id
                events = await api.get(f"/sessions/{session['id']}/meter/events")
                found |= {
                    (session["id"], event["sequence"], TOLD[event["kind"]])
                    for event in events["items"]
                    if event["kind"] in TOLD and (is_consumer or event["kind"] != "CREATED")
                }
            cursor = page["nextCursor"]
            if cursor is None:
                return found


async def test_every_committed_event_is_delivered_across_kills(server: Server) -> None:
    rng, half = random.Random(SEED), Half()
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    async with open_receiver(half) as receiver:
        for path, tenant in (("/consumer", consumer), ("/operator", operator)):
            half.secrets[path] = (await add_endpoint(server.url, tenant, receiver.url(path)))["secret"]
        await go_online(server.url, operator)
        for _ in range(ROUNDS):
            async with trio.open_nursery() as callers:
                callers.start_soon(traffic, server.url, consumer, operator)
                await trio.sleep(rng.uniform(0.3, 2.5))
                await server.kill()
                callers.cancel_scope.cancel()
            await server.start()
        expected = {
            "/consumer": await committed(server.url, consumer),
            "/operator": await committed(server.url, operator),
        }
        await _drain(receiver, half, expected)
    assert len(expected["/consumer"]) > 4 * ROUNDS
    assert half.dropped > half.accepted // 3
    assert {path: len(expected[path] - half.told[path]) for path in expected} == {"/consumer": 0, "/operator": 0}
    assert {path: len(half.told[path] - expected[path]) for path in expected} == {"/consumer": 0, "/operator": 0}
    events = sum(map(len, expected.values()))
    sys.stdout.write(f"{ROUNDS} kills, {events} events, {half.accepted} accepted, {half.dropped} dropped\n")


async def _drain(receiver: Receiver, half: Half, expected: dict[str, set[tuple[str, int, str]]]) -> None:
    """Wait until everything has arrived, or fail later with what is missing after a time without any delivery."""

    def has_all() -> bool:
        return all(half.told[path] >= expected[path] for path in expected)

    with suppress(trio.TooSlowError):
        while not has_all():
            await receiver.wait_until(
                lambda _, enough=half.accepted + 100: half.accepted >= enough or has_all(), DRAIN_S
            )
