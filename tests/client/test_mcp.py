"""The MCP server, driven by the official client: a whole purchase, limits, and access."""

import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import simplejpeg
import trio
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from sightline_client import AsyncSightline
from sightline_client.mcp_server import build_server
from tests.client.api import Api
from tests.e2e.conftest import running_server
from tests.e2e.server import Server, a_tenant, go_online
from tests.house.test_readme import device_process

__all__ = ["running_server"]

PLACES = {"memory": (11.0, 11.0), "stdio": (12.0, 12.0), "http": (13.0, 13.0), "limit": (14.0, 14.0)}


@asynccontextmanager
async def open_client(transport: str, server: Server, key: str) -> AsyncIterator[Client]:
    """Connect the official client over one of its transports."""
    if transport == "memory":
        built = build_server(lambda _ctx: AsyncSightline(server.url, key))
        async with Client(built) as client:
            yield client
    elif transport == "stdio":
        env = os.environ | {"SIGHTLINE_URL": server.url, "SIGHTLINE_API_KEY": key}
        started = StdioServerParameters(command=sys.executable, args=["-m", "sightline_client.mcp_server"], env=env)
        async with Client(started) as client:
            yield client
    else:
        http = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=40)
        async with http, Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return [each.model_dump() for each in result.content]


def json_of(content: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content[-1]["text"])
    return found


@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
async def test_an_agent_buys_a_view_sees_a_picture_and_verifies_the_receipt(
    running_server: Server, transport: str, tmp_path: Any
) -> None:
    consumer = await a_tenant(running_server.url, "CONSUMER", f"agent-{transport}")
    operator = await a_tenant(running_server.url, "SUPPLIER", f"camera-{transport}")
    place = PLACES[transport]
    await go_online(running_server.url, operator, place)
    device = device_process(running_server.url, operator.key, tmp_path / "device.log", place)
    try:
        async with open_client(transport, running_server, consumer.key) as client:
            await purchase(client, place)
    finally:
        device.terminate()
        device.wait(20)


async def purchase(client: Client, place: tuple[float, float]) -> None:
    lat, lng = place
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["get_frame"].annotations.read_only_hint
    quote = json_of(await call(client, "check_place", lat=lat, lng=lng, seconds=60))
    wish = {"lat": lat, "lng": lng, "seconds": 60, "quote_id": quote["quoteId"], "max_charge_usdc": "5"}
    session = json_of(await call(client, "request_view", **wish))
    assert session["state"] == "LIVE"
    again = json_of(await call(client, "request_view", **wish))
    assert again["sessionId"] == session["sessionId"]
    picture, facts = await first_picture(client, session["sessionId"])
    assert simplejpeg.decode_jpeg(base64.b64decode(picture["data"])).shape[1] == 768
    assert (picture["mime_type"], facts["frameState"]) == ("image/jpeg", "live")
    newer = await call(client, "get_frame", session_id=session["sessionId"], after=facts["sequence"])
    assert json_of(newer)["sequence"] > facts["sequence"]
    ended = json_of(await call(client, "end_session", session_id=session["sessionId"]))
    assert ended["state"] == "ENDED"
    assert json_of(await call(client, "end_session", session_id=session["sessionId"])) == ended
    receipt = json_of(await call(client, "verify_receipt", session_id=session["sessionId"]))
    assert receipt["verified"]


async def first_picture(client: Client, session_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with trio.fail_after(30):
        while True:
            content = await call(client, "get_frame", session_id=session_id)
            if content[0]["type"] == "image":
                return content[0], json_of(content)
            await trio.sleep(0.2)


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


async def test_max_charge_and_the_limit_of_the_key_are_kept_by_parallel_requests(running_server: Server) -> None:
    consumer = await a_tenant(running_server.url, "CONSUMER", "limited")
    operator = await a_tenant(running_server.url, "SUPPLIER", "never-asked")
    await go_online(running_server.url, operator, PLACES["limit"])
    lat, lng = PLACES["limit"]
    async with open_client("http", running_server, consumer.key) as client, trio.open_nursery() as nursery:

        async def request() -> None:
            quote = json_of(await call(client, "check_place", lat=lat, lng=lng, seconds=600))
            said = await refusal(
                client,
                "request_view",
                lat=lat,
                lng=lng,
                seconds=600,
                quote_id=quote["quoteId"],
                max_charge_usdc="0.000001",
            )
            assert "MAX_CHARGE" in said

        for _ in range(20):
            nursery.start_soon(request)
    async with Api(running_server.url, key=consumer.key) as api:
        assert {session.state async for session in api.sessions.list()} == {"CANCELLED"}
        assert (await api.get("/wallet"))["heldMicroUsdc"] == "0"


async def test_refusals_name_the_code_and_the_next_step(running_server: Server) -> None:
    owner = await a_tenant(running_server.url, "CONSUMER", "owner")
    stranger = await a_tenant(running_server.url, "CONSUMER", "stranger")
    async with Api(running_server.url, key=owner.key) as api:
        session_id = (await api.post("/sessions", lat=40.0, lng=40.0))["id"]
    async with open_client("http", running_server, stranger.key) as client:
        assert "NOT_AUTHORIZED" in await refusal(client, "get_session", session_id=session_id)
        assert "NOT_AUTHORIZED" in await refusal(client, "end_session", session_id=session_id)
        assert "Pass USDC" in await refusal(
            client, "request_view", lat=1, lng=1, quote_id=session_id, max_charge_usdc="cheap"
        )
    async with open_client("http", running_server, "svc_test_000000_" + "A" * 43) as client:
        assert "NOT_AUTHENTICATED" in await refusal(client, "wallet")


async def test_mcp_without_a_key_is_refused(running_server: Server) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{running_server.url}/mcp", json={})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
