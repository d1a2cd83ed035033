"""A listener serves only requests whose Host header names it, and may ask for a bearer token."""

from functools import partial
from typing import Any

import httpx
import pytest
import trio

from sightline.http.asgi.mcp_endpoint import CALLS_MAX, McpEndpoint
from sightline.http.pipeline.listener_access import AllowedHosts, ListenerAccess
from sightline.http.server import Receive, Scope, Send

PUBLIC = "https://live.example:8443"


@pytest.mark.parametrize(
    ("bound", "added", "host", "is_admitted"),
    [
        ("127.0.0.1", (), "127.0.0.1:8080", True),
        ("127.0.0.1", (), "LOCALHOST", True),
        ("127.0.0.1", (), "localhost.:8080", True),
        ("127.0.0.1", (), "app.localhost:8080", True),
        ("127.0.0.1", (), "[::1]:8080", True),
        ("127.0.0.1", (), "live.example", True),
        ("127.0.0.1", (), "evil.example:8080", False),
        ("127.0.0.1", (), "live.example.evil.example", False),
        ("127.0.0.1", (), "localhost.evil.example", False),
        ("127.0.0.1", (), "198.51.100.7:8080", False),
        ("127.0.0.1", (), "", False),
        ("198.51.100.7", (), "198.51.100.7:8080", True),
        ("0.0.0.0", (), "198.51.100.7:8080", True),
        ("::", (), "[2001:db8::7]:8080", True),
        ("0.0.0.0", (), "evil.example", False),
        ("127.0.0.1", ("sightline",), "sightline:8081", True),
        ("127.0.0.1", ("*",), "anything.example", True),
    ],
)
def test_a_host_is_admitted_if_the_settings_name_it(
    bound: str, added: tuple[str, ...], host: str, is_admitted: bool
) -> None:
    assert AllowedHosts.of(bound, PUBLIC, added).admits(host) is is_admitted


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()
    assert body["statusCode"] == answer.status_code
    return answer.status_code, body["code"], body["detail"]


async def test_a_foreign_host_gets_421_and_is_not_repeated(running: Any, door: str) -> None:
    async with running(access=ListenerAccess(hosts=AllowedHosts.of("127.0.0.1", None, ()))) as app:
        assert (await app.http.get(f"/{door}/public")).status_code == 200
        answer = await app.http.get(f"/{door}/public", headers={"host": "evil.example"})
        assert error_of(answer) == (421, "INVALID_INPUT", "http:host")
        assert "evil.example" not in answer.text


async def test_a_listener_with_a_token_serves_only_its_bearer(running: Any, door: str) -> None:
    async with running(access=ListenerAccess(token="secret")) as app:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
            answer = await app.http.get(f"/{door}/public", headers=headers)
            assert error_of(answer) == (401, "NOT_AUTHENTICATED", "internal:token")
        answer = await app.http.get(f"/{door}/public", headers={"authorization": "Bearer secret"})
        assert answer.status_code == 200


KEY = f"svc_test_c0ffee_{'k' * 43}"


async def an_api(scope: Scope, receive: Receive, send: Send) -> None:
    """Knows one key."""
    body = b"the API"
    status = 200
    if scope["path"] == "/api/v1/me":
        known = dict(scope["headers"])[b"authorization"] == f"Bearer {KEY}".encode()
        status, body = (200, b'{"data": {"workspaceId": "w"}}') if known else (401, b"{}")
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def test_the_mcp_endpoint_serves_the_hosts_of_its_listener_only() -> None:
    endpoint = McpEndpoint(an_api, PUBLIC, AllowedHosts.of("127.0.0.1", PUBLIC, ()), b"k" * 32)
    key = {"authorization": f"Bearer {KEY}", "accept": "application/json, text/event-stream"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with trio.open_nursery() as nursery:
        await nursery.start(endpoint.run)
        transport = httpx.ASGITransport(app=endpoint)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url=PUBLIC) as http:
            rebound = await http.post("/mcp", json=call, headers=key | {"host": "evil.example"})
            assert (rebound.status_code, "evil.example" in rebound.text) == (421, False)
            asked = await http.post("/mcp", json=call)
            metadata = f'resource_metadata="{PUBLIC}/.well-known/oauth-protected-resource/mcp"'
            assert (asked.status_code, asked.headers.get_list("www-authenticate")) == (401, [f"Bearer {metadata}"])
            wrong = await http.post("/mcp", json=call, headers=key | {"authorization": "Bearer svc_other"})
            assert wrong.headers["www-authenticate"] == f'Bearer error="invalid_token", {metadata}'
            listed = await http.post("/mcp", json=call, headers=key)
            assert "request_view" in {tool["name"] for tool in listed.json()["result"]["tools"]}
            assert (await http.get("/other")).text == "the API"
        nursery.cancel_scope.cancel()


class Held:
    """An API whose sessions are read until the test lets them go."""

    def __init__(self) -> None:
        self.waiting = 0
        self.changed = trio.Event()
        self.free = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/api/v1/sessions"):
            self.waiting += 1
            self.changed.set()
            self.changed = trio.Event()
            await self.free.wait()
        await an_api(scope, receive, send)


async def test_the_mcp_endpoint_bounds_the_calls_of_a_workspace_in_flight() -> None:
    api = Held()
    endpoint = McpEndpoint(api, PUBLIC, AllowedHosts.of("127.0.0.1", PUBLIC, ()), b"k" * 32)
    key = {"authorization": f"Bearer {KEY}", "accept": "application/json, text/event-stream"}
    params = {"name": "list_sessions", "arguments": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with trio.open_nursery() as nursery:
        await nursery.start(endpoint.run)
        transport = httpx.ASGITransport(app=endpoint)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url=PUBLIC, headers=key) as http:
            for _ in range(CALLS_MAX):
                nursery.start_soon(partial(http.post, "/mcp", json=call))
            with trio.fail_after(20):
                while api.waiting < CALLS_MAX:
                    await api.changed.wait()
                refused = await http.post("/mcp", json=call)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            api.free.set()
            nursery.cancel_scope.cancel()
