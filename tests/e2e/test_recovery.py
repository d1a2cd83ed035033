"""A server with many unfinished sessions recovers all of them within seconds of its restart."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online

SESSIONS: Final = 1_000
OPERATORS: Final = 10
ACCEPTED_EACH: Final = 30
AT_ONCE: Final = 8
READY_S: Final = 30.0
"""Limit in seconds for a busy machine; an idle one needs two or three."""


async def create_sessions(api: Api, count: int) -> list[str]:
    ids: list[str] = []
    left = iter(range(count))

    async def create() -> None:
        for _ in left:
            session = await api.post("/sessions", lat=PLACE[0], lng=PLACE[1], waitTimeoutSeconds=3600)
            ids.append(session["id"])

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(create)
    return ids


async def take(url: str, operator: Tenant, session_ids: list[str]) -> None:
    """Accept all sessions and start the first one."""
    async with Api(url, key=operator.key) as api:
        for session_id in session_ids:
            await api.post(f"/sessions/{session_id}/accept", operatorWorkspaceId=operator.workspace_id)
        await api.post(f"/sessions/{session_ids[0]}/start")


async def everything(api: Api) -> dict[str, dict[str, Any]]:
    """List all sessions of the caller, by id."""
    found: dict[str, dict[str, Any]] = {}
    query: dict[str, Any] = {"limit": 100}
    while True:
        page = await api.get("/sessions", **query)
        found |= {session["id"]: session for session in page["items"]}
        if page["nextCursor"] is None:
            return found
        query["cursor"] = page["nextCursor"]


def lasting(session: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that time alone does not change."""
    return {name: session[name] for name in ("state", "operatorWorkspaceId", "createdAt", "assignedAt", "startedAt")}


@pytest.mark.interop
@pytest.mark.alone
async def test_a_restart_after_kill_9_brings_back_a_thousand_unfinished_sessions(data_directory: Path) -> None:
    settings = {"SIGHTLINE_START_TIMEOUT_SECONDS": "3600", "SIGHTLINE_OPERATOR_ASSIGNMENTS_MAX": str(ACCEPTED_EACH)}
    server = Server(data_directory, env=settings)
    try:
        await server.start()
        consumer = await a_tenant(server.url, "CONSUMER", "consumer")
        async with Api(server.url, key=consumer.key) as api:
            ids = await create_sessions(api, SESSIONS)
            async with trio.open_nursery() as nursery:
                for number in range(OPERATORS):
                    operator = await a_tenant(server.url, "SUPPLIER", f"operator-{number}")
                    await go_online(server.url, operator)
                    mine = ids[number * ACCEPTED_EACH : (number + 1) * ACCEPTED_EACH]
                    nursery.start_soon(take, server.url, operator, mine)
            before = await everything(api)
        states = Counter(session["state"] for session in before.values())
        assert states == {"REQUESTED": SESSIONS - 300, "ASSIGNED": 300 - OPERATORS, "LIVE": OPERATORS}

        await server.kill()
        killed = trio.current_time()
        await server.start()
        took_s = trio.current_time() - killed
        async with Api(server.url, key=consumer.key) as api:
            after = await everything(api)
        sys.stdout.write(f"{SESSIONS} unfinished sessions: kill to ready {took_s:.2f} s\n")
        assert {id_: lasting(session) for id_, session in after.items()} == {
            id_: lasting(session) for id_, session in before.items()
        }
        assert took_s < READY_S
    finally:
        server.end()
