"""Attacks by way of the MCP server: budgets, credentials, floods of /mcp."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.attack.catalogue import Kind, attack
from tests.attack.target import Target
from tests.client.api import Api
from tests.e2e.server import Tenant

TRIES = 6
ISLAND = (-37.1, -12.3)
"""A place of its own, so that no other attack's request is taken."""


@asynccontextmanager
async def mcp_client(target: Target, key: str) -> AsyncIterator[Client]:
    """The official client, connected to /mcp."""
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60, trust_env=False)
    endpoint = streamable_http_client(f"{target.url}/mcp?confirm=never", http_client=http)
    async with http, Client(endpoint) as client:
        yield client


async def take_every_request(target: Target, operator: Tenant) -> None:
    """Follow the workspace's event stream; accept and start each request the moment that it is told."""
    async with Api(target.url, key=operator.key) as api, api.workspaces.events(operator.workspace_id) as events:
        async for event in events:
            if event.name == "request":
                wanted: Any = event.data
                path = f"/sessions/{wanted['id']}"
                await target.call(
                    "POST", f"{path}/accept", operator.key, {"operatorWorkspaceId": operator.workspace_id}
                )
                await target.call("POST", f"{path}/start", operator.key)


@attack(
    "B1",
    "A fast operator takes a request above max_charge_usdc before it is cancelled",
    before="6 of 6 calls created a session above the budget; the operator took four, one was LIVE, the tool named none",
)
async def mcp_budget(target: Target) -> str:
    consumer, operator = await target.tenant("CONSUMER"), await target.operator(ISLAND)
    said: list[str] = []
    async with trio.open_nursery() as nursery, mcp_client(target, consumer.key) as client:
        nursery.start_soon(take_every_request, target, operator)
        place = {"lat": ISLAND[0], "lng": ISLAND[1], "seconds": 60}
        for _ in range(TRIES):
            quote: Any = (await client.call_tool("check_place", place)).content[-1]
            wish = place | {"quote_id": json.loads(quote.text)["quoteId"], "max_charge_usdc": "0.000001"}
            answer: Any = await client.call_tool("request_view", wish)
            said.append(str(answer.content[0].text))
        nursery.cancel_scope.cancel()
    sessions = (await target.call("GET", "/sessions", consumer.key)).json()["data"]["items"]
    for each in sessions:
        await target.call("POST", f"/sessions/{each['id']}/end", consumer.key)
    states = sorted(each["state"] for each in sessions)
    assert sessions == [], f"{len(sessions)} sessions created above the budget, at the end of the calls: {states}"
    assert all("MAX_CHARGE" in text for text in said), said[0]
    return f"{TRIES} of {TRIES} refused, nothing created"


STREAMS = 2_000
ANSWER_S = 30.0


@attack(
    "B9",
    "2,000 GETs of /mcp with an invented key stay open",
    Kind.FLOOD,
    before="BROKEN: the audit counted 2,000 streams that stayed open, 76 KB each",
)
async def mcp_streams(target: Target) -> str:
    head = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{target.server.port}\r\nAccept: text/event-stream\r\n"
    request = f"{head}Authorization: Bearer anything\r\n\r\n".encode()
    seen: Counter[str] = Counter()

    async def open_stream(nursery: trio.Nursery, turn: trio.CapacityLimiter) -> None:
        async with turn:
            stream = await trio.open_tcp_stream("127.0.0.1", target.server.port)
            await stream.send_all(request)
            status = "open"  # an event stream sends nothing until it has an event
            with trio.move_on_after(ANSWER_S):
                status = (await stream.receive_some(4_096))[9:12].decode()
        seen[status] += 1
        if status in ("open", "200"):
            nursery.start_soon(stay, stream)
        else:
            await trio.aclose_forcefully(stream)

    async def stay(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(1)

    async with trio.open_nursery() as held:
        turn = trio.CapacityLimiter(100)
        async with trio.open_nursery() as opening:
            for _ in range(STREAMS):
                opening.start_soon(open_stream, held, turn)
        held.cancel_scope.cancel()
    assert set(seen) <= {"401", "429"}, dict(seen)
    return f"{seen['401']} answered 401, {seen['429']} answered 429, none stayed open"


@attack(
    "B9",
    "An invented key lists the tools of /mcp without limit",
    before="1,000 of 1,000 calls of tools/list answered 200, none refused",
)
async def mcp_without_credential(target: Target) -> str:
    seen: Counter[int] = Counter()
    headers = {"authorization": "Bearer anything", "accept": "application/json, text/event-stream"}
    for number in range(1_000):
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/list"}
        seen[(await target.http.post(f"{target.url}/mcp", json=body, headers=headers)).status_code] += 1
    assert set(seen) <= {401, 429}, dict(seen)
    tenant = await target.tenant("CONSUMER")
    got = await target.http.get(f"{target.url}/mcp", headers={"authorization": f"Bearer {tenant.key}"})
    assert (got.status_code, got.headers["allow"]) == (405, "POST"), got.status_code
    return f"{seen[401]} answered 401, {seen[429]} answered 429; GET with a key 405"


@attack(
    "C3",
    "An agent reads another path by a session id: get_session('../wallet')",
    before="the server answered GET /api/v1/wallet with the agent's key",
)
async def mcp_paths(target: Target) -> str:
    tenant = await target.tenant("CONSUMER")
    said: list[str] = []
    async with mcp_client(target, tenant.key) as client:
        for tool in ("get_session", "end_session", "get_frame"):
            answer: Any = await client.call_tool(tool, {"session_id": "../wallet"})
            said.append(str(answer.content[0].text))
    lines = [line for line in target.logged().splitlines() if tenant.workspace_id in line and "/wallet" in line]
    assert lines == [], f"{len(lines)} calls of /api/v1/wallet"
    assert all("is not the id of a view" in each for each in said), said
    return "three tools refused it; no call of /api/v1/wallet"
