"""OAuth over HTTP: discovery, registration, consent and tokens, on stores in memory."""

import base64
import json
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from sightline.http.budgets import RateLimits
from sightline.identity.api_keys import GRANT_CACHE_MS
from tests.http.world import BERLIN, Party, World, WorldOptions, data_of, error_of, open_world

VERIFIER = "v" * 60
CHALLENGE = base64.urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
CALLBACK = "http://127.0.0.1:3000/callback"
ASKED = "/api/v1/me/authorization-request"


async def register(world: World, **changes: Any) -> httpx.Response:
    metadata = {"client_name": "An agent", "redirect_uris": [CALLBACK], "application_type": "native"} | changes
    return await world.http.post("/oauth/register", json=metadata)


async def a_request(world: World, **changes: str) -> str:
    registered = (await register(world)).json()
    fields = {
        "response_type": "code",
        "client_id": registered["client_id"],
        "redirect_uri": CALLBACK,
        "state": "the-state",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "resource": f"{world.base_url}/mcp",
    }
    return urlencode(fields | changes)


async def grant(party: Party, request: str, **changes: Any) -> httpx.Response:
    return await party.wallet.post(f"{party.path}/grants", {"request": request, "days": 30} | changes)


async def exchange(world: World, request: str, redirect_url: str, **changes: str) -> httpx.Response:
    asked = {name: values[0] for name, values in parse_qs(request).items()}
    form = {
        "grant_type": "authorization_code",
        "code": parse_qs(urlsplit(redirect_url).query)["code"][0],
        "client_id": asked["client_id"],
        "redirect_uri": asked["redirect_uri"],
        "code_verifier": VERIFIER,
        "resource": asked["resource"],
    }
    return await world.http.post("/oauth/token", data=form | changes)


async def test_a_client_finds_registers_asks_and_acts_within_what_the_member_allowed() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        for path in ("", "/mcp"):
            resource = (await world.http.get(f"/.well-known/oauth-protected-resource{path}")).json()
            assert (resource["resource"], resource["authorization_servers"]) == (
                f"{world.base_url}/mcp",
                [world.base_url],
            )
        server = (await world.http.get("/.well-known/oauth-authorization-server")).json()
        assert server["issuer"] == world.base_url
        assert server["code_challenge_methods_supported"] == ["S256"]
        request = await a_request(world)
        page = await world.http.get(f"/oauth/authorize?{request}", follow_redirects=False)
        assert (page.status_code, page.headers["location"]) == (302, f"/console/#/authorize?{request}")
        asked = data_of(await consumer.wallet.get(ASKED, params={"request": request}))
        assert (
            asked["clientName"],
            asked["clientHost"],
            asked["redirectHost"],
            asked["isLoopback"],
            asked["refused"],
        ) == (
            "An agent",
            None,
            "127.0.0.1:3000",
            True,
            None,
        )
        limits = {"perSessionMicroUsdc": "1000"}
        granted = data_of(await grant(consumer, request, limits=limits))
        answer = parse_qs(urlsplit(granted["redirectUrl"]).query)
        assert (answer["state"], answer["iss"]) == (["the-state"], [world.base_url])
        tokens = await exchange(world, request, granted["redirectUrl"])
        assert (tokens.status_code, tokens.headers["cache-control"]) == (200, "no-store")
        bearer = {"authorization": f"Bearer {tokens.json()['access_token']}"}
        me = data_of(await world.anyone.get("/api/v1/me", headers=bearer))
        assert (me["kind"], me["workspaceId"]) == ("api_key", consumer.id)
        refused = await world.anyone.post("/api/v1/sessions", BERLIN | {"maxSessionSeconds": 600}, headers=bearer)
        assert error_of(refused)[:2] == (402, "INSUFFICIENT_CREDIT"), "the limit of the grant"
        (key, *_) = data_of(await consumer.wallet.get(f"{consumer.path}/api-keys"))["items"]
        assert (key["label"], key["keyId"], key["limits"]["perSessionMicroUsdc"]) == ("An agent", me["keyId"], "1000")
        assert key["expiresAt"] is not None
        data_of(await consumer.wallet.post(f"{consumer.path}/api-keys/{me['keyId']}/revoke"))
        world.clock.advance(GRANT_CACHE_MS)
        answer_after = await world.anyone.get("/api/v1/me", headers=bearer)
        assert error_of(answer_after)[:2] == (401, "REVOKED_API_KEY")


async def test_the_token_endpoint_answers_in_the_form_of_oauth() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        request = await a_request(world)
        url = data_of(await grant(consumer, request))["redirectUrl"]
        for changes, error in (
            ({"code_verifier": "w" * 60}, "invalid_grant"),
            ({"code": "svc_test_unknown"}, "invalid_grant"),
            ({"redirect_uri": "http://127.0.0.1:3001/callback"}, "invalid_grant"),
            ({"resource": "https://other.test/mcp"}, "invalid_target"),
            ({"grant_type": "password"}, "unsupported_grant_type"),
            ({"code_verifier": ""}, "invalid_request"),
        ):
            refused = await exchange(world, request, url, **changes)
            assert (refused.status_code, refused.json()["error"]) == (400, error), changes
            assert refused.headers["cache-control"] == "no-store"
        assert (await exchange(world, request, url)).status_code == 200
        repeated = await exchange(world, request, url)
        assert repeated.json()["error"] == "invalid_grant"
        as_json = await world.http.post("/oauth/token", json={"grant_type": "refresh_token"})
        assert (as_json.status_code, as_json.json()["error"]) == (415, "invalid_request")
        for body in (b"\xff", b"a=1&a=2", b"x=" + b"1" * 20_000):
            headers = {"content-type": "application/x-www-form-urlencoded"}
            refused = await world.http.post("/oauth/token", content=body, headers=headers)
            assert refused.json()["error"] == "invalid_request"


async def test_a_client_refreshes_and_gives_back_its_access() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        request = await a_request(world)
        client_id = parse_qs(request)["client_id"][0]
        tokens = (await exchange(world, request, data_of(await grant(consumer, request))["redirectUrl"])).json()
        form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": client_id}
        fresh = (await world.http.post("/oauth/token", data=form)).json()
        assert fresh["refresh_token"] != tokens["refresh_token"]
        assert set(fresh["scope"].split()) == {"sessions:read", "sessions:create", "pricing:read", "wallet:read"}
        back = await world.http.post("/oauth/revoke", data={"token": fresh["access_token"], "client_id": client_id})
        assert (back.status_code, back.json()) == (200, {})
        refused = await world.http.post("/oauth/token", data=form | {"refresh_token": fresh["refresh_token"]})
        assert refused.json()["error"] == "invalid_grant"


async def test_a_wrong_request_is_answered_to_the_client_unless_the_client_is_in_doubt() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        told = data_of(
            await consumer.wallet.get(ASKED, params={"request": await a_request(world, resource="http://x/mcp")})
        )
        assert told["refused"] is not None
        assert parse_qs(urlsplit(told["denyUrl"]).query)["error"] == ["invalid_target"]
        for changes in ({"client_id": "stranger"}, {"redirect_uri": "https://evil.test/cb"}):
            request = await a_request(world, **changes)
            for answer in (
                await consumer.wallet.get(ASKED, params={"request": request}),
                await grant(consumer, request),
            ):
                assert error_of(answer)[0] == 400
                assert "evil.test" not in answer.text
        bad_pkce = await grant(consumer, await a_request(world, code_challenge_method="plain"))
        assert error_of(bad_pkce) == (400, "INVALID_INPUT", "oauth:invalid_request")


async def test_a_described_client_shows_the_host_of_its_description() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        url = "https://agent.test/client.json"
        world.documents[url] = json.dumps({"client_id": url, "client_name": "A", "redirect_uris": [CALLBACK]}).encode()
        request = await a_request(world, client_id=url)
        asked = data_of(await consumer.wallet.get(ASKED, params={"request": request}))
        assert asked["clientHost"] == "agent.test"
        granted = data_of(await grant(consumer, request))
        assert (await exchange(world, request, granted["redirectUrl"])).status_code == 200


async def test_only_a_person_who_may_mint_keys_can_grant_access() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        request = await a_request(world)
        body = {"request": request, "days": 30}
        viewer = await consumer.join(world.account(), "VIEWER")
        for client, status in ((consumer.key, 403), (viewer, 403), (world.anyone, 401)):
            assert (await client.post(f"{consumer.path}/grants", body)).status_code == status
        foreign = consumer.wallet.having(origin="https://evil.test")
        assert error_of(await foreign.post(f"{consumer.path}/grants", body)) == (403, "NOT_AUTHORIZED", "auth:origin")
        assert error_of(await grant(consumer, request, days=31)) == (400, "INVALID_INPUT", "oauth:days")


async def test_registrations_are_limited_for_each_address() -> None:
    async with open_world(WorldOptions(rate_limits=RateLimits())) as world:
        answers = [await register(world) for _ in range(21)]
        assert {each.status_code for each in answers[:20]} == {201}
        assert (answers[20].status_code, answers[20].json()["error"]) == (429, "temporarily_unavailable")
        assert int(answers[20].headers["retry-after"]) >= 1
        assert (await register(world, redirect_uris=["javascript:alert(1)"])).status_code == 429


async def test_a_registration_that_cannot_be_used_is_refused() -> None:
    async with open_world() as world:
        refused = await register(world, redirect_uris=["javascript:alert(1)"])
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_redirect_uri")
        for body in (b"{", b"[]", b'"x"'):
            refused = await world.http.post(
                "/oauth/register", content=body, headers={"content-type": "application/json"}
            )
            assert (refused.status_code, refused.json()["error"]) == (400, "invalid_client_metadata")
        registered = await register(world, token_endpoint_auth_method="client_secret_post")
        assert registered.json()["token_endpoint_auth_method"] == "none"
        assert "client_secret" not in registered.json()
