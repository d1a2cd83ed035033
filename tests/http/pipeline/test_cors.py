"""CORS: pages of listed origins may call with an API key; cookies and other origins get nothing."""

from collections.abc import AsyncIterator

import pytest

from tests.http.world import World, WorldOptions, data_of, error_of, open_world

LISTED, OTHER = "https://app.example.com", "https://evil.example"
ALLOW, CREDENTIALS = "access-control-allow-origin", "access-control-allow-credentials"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world(WorldOptions(cors_origins=(LISTED, "http://localhost:5173"))) as opened:
        yield opened


def preflight(origin: str, method: str = "POST") -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization,content-type,idempotency-key",
    }


@pytest.mark.parametrize("path", ["/api/v1/sessions", "/api/v1/unknown", "/mcp", "/oauth/token", "/.well-known/x"])
async def test_a_preflight_of_a_listed_origin_is_answered(world: World, path: str) -> None:
    answer = await world.http.request("OPTIONS", path, headers=preflight(LISTED))
    assert (answer.status_code, answer.content) == (204, b"")
    assert (answer.headers[ALLOW], answer.headers["vary"]) == (LISTED, "origin")
    assert "DELETE" in answer.headers["access-control-allow-methods"]
    assert {"authorization", "idempotency-key"} <= set(answer.headers["access-control-allow-headers"].split(", "))
    assert CREDENTIALS not in answer.headers


@pytest.mark.parametrize("origin", [OTHER, "null", f"{LISTED}.evil.example", f"{LISTED}:8443", LISTED.upper()])
async def test_a_preflight_of_another_origin_gets_no_permission(world: World, origin: str) -> None:
    answer = await world.http.request("OPTIONS", "/api/v1/sessions", headers=preflight(origin))
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_page_of_a_listed_origin_reads_answers_and_errors_with_a_key(world: World) -> None:
    consumer = await world.party("CONSUMER")
    page = consumer.key.having(origin=LISTED)
    for answer in (await page.get("/api/v1/me"), await page.get("/api/v1/nothing")):
        assert answer.headers[ALLOW] == LISTED
        assert answer.headers["access-control-expose-headers"] == "*"
        assert CREDENTIALS not in answer.headers
    assert data_of(await page.post("/api/v1/sessions", {"lat": 1, "lng": 2}))["state"] == "REQUESTED"
    assert ALLOW not in (await consumer.key.having(origin=OTHER).get("/api/v1/me")).headers
    assert (await consumer.key.get("/api/v1/me")).headers["vary"] == "origin"


async def test_a_listed_origin_changes_nothing_with_a_cookie(world: World) -> None:
    consumer = await world.party("CONSUMER")
    page = consumer.wallet.having(origin=LISTED)
    refused = await page.post("/api/v1/sessions", {"lat": 1, "lng": 2})
    assert error_of(refused) == (403, "NOT_AUTHORIZED", "auth:origin")
    read = await page.get("/api/v1/me")
    assert CREDENTIALS not in read.headers, "so that the browser does not show the page the answer"


async def test_an_mcp_client_in_a_page_finds_the_authorization_and_calls_a_tool(world: World) -> None:
    """The requests that the Inspector makes in its direct mode, each with the preflight of a browser before it."""
    sent = ("authorization", "content-type", "last-event-id", "mcp-protocol-version", "mcp-session-id")
    for path, method in (
        ("/mcp", "POST"),
        ("/mcp", "GET"),
        ("/mcp", "DELETE"),
        ("/.well-known/oauth-protected-resource/mcp", "GET"),
        ("/.well-known/oauth-authorization-server", "GET"),
        ("/oauth/register", "POST"),
        ("/oauth/token", "POST"),
        ("/oauth/revoke", "POST"),
    ):
        asked = preflight(LISTED, method) | {"access-control-request-headers": ",".join(sent)}
        allowed = await world.http.request("OPTIONS", path, headers=asked)
        assert (allowed.status_code, allowed.headers[ALLOW]) == (204, LISTED), path
        assert method in allowed.headers["access-control-allow-methods"].split(", ")
        assert set(sent) <= set(allowed.headers["access-control-allow-headers"].split(", "))
        assert CREDENTIALS not in allowed.headers
    consumer = await world.party("CONSUMER")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_sessions", "arguments": {}}}
    page = {"origin": LISTED, "accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    unknown = await world.http.post("/mcp", json=call, headers=page)
    assert "/.well-known/oauth-protected-resource/mcp" in unknown.headers["www-authenticate"]
    key = {"authorization": f"Bearer {consumer.plaintext}"}
    called = await world.http.post("/mcp", json=call, headers=page | key)
    assert called.json()["result"]["structuredContent"] == {"sessions": []}
    wrong = await world.http.get("/mcp", headers=page | key)
    for answer, status in ((unknown, 401), (called, 200), (wrong, 405)):
        assert (answer.status_code, answer.headers[ALLOW]) == (status, LISTED)
        assert answer.headers["access-control-expose-headers"] == "*", "also Mcp-Session-Id and WWW-Authenticate"
        assert answer.headers.get_list("vary") == ["origin"]
        assert CREDENTIALS not in answer.headers
    for path in ("/mcp", "/oauth/token"):
        assert ALLOW not in (await world.http.post(path, json=call, headers=page | {"origin": OTHER})).headers


async def test_only_the_interfaces_and_the_chain_are_shared(world: World) -> None:
    shared = ("/rpc", "/api/v1/health", "/mcp", "/oauth/authorize", "/.well-known/oauth-authorization-server")
    for path, is_shared in (*((each, True) for each in shared), ("/console/", False), ("/openapi.json", False)):
        answer = await world.http.get(path, headers={"origin": LISTED})
        assert (ALLOW in answer.headers) == is_shared, path


async def test_without_the_setting_nothing_is_shared() -> None:
    async with open_world() as world:
        answer = await world.http.request("OPTIONS", "/api/v1/sessions", headers=preflight(LISTED))
        assert answer.status_code == 405
        read = await world.http.get("/api/v1/health", headers={"origin": LISTED})
        assert not {ALLOW, "vary"} & set(read.headers)
