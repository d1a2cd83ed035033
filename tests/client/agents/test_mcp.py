"""The MCP server, driven by the official client: a whole purchase, limits, and access."""

import base64
import io
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import av
import httpx2
import pytest
import simplejpeg
import trio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import ClientRequestContext, ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitRequestParams, ElicitResult, InputRequiredResult

from sightline.domain.value import Value
from sightline_client import AsyncSightline, usdc
from sightline_client.mcp_confirm import Confirm, question
from sightline_client.mcp_server import build_server
from sightline_client.models import Session
from tests.client.api import Api
from tests.conftest import PAGE_ORIGIN
from tests.e2e.server import Server, Tenant, a_tenant, fund, go_online, until
from tests.house.test_readme import device_process

PLACE = (11.0, 11.0)
EMPTY_PLACE = (14.0, 14.0)
TRANSPORTS = ("memory", "stdio", "http")
VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}
SECONDS = 60


class Shop(Value):
    """A server, a funded consumer, and a place with a device that films."""

    server: Server
    consumer: Tenant


@pytest.fixture(scope="module")
def shop(running_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    async def tenants() -> tuple[Tenant, Tenant]:
        consumer = await a_tenant(running_server.url, "CONSUMER", "agent")
        await fund(running_server.url, consumer)
        operator = await a_tenant(running_server.url, "SUPPLIER", "camera")
        await go_online(running_server.url, operator, PLACE)
        return consumer, operator

    consumer, operator = trio.run(tenants)
    device = device_process(running_server.url, operator.key, tmp_path_factory.mktemp("device") / "log", PLACE)
    yield Shop(running_server, consumer)
    device.terminate()
    device.wait(20)


@asynccontextmanager
async def open_client(
    transport: str,
    url: str,
    key: str,
    mode: str = "auto",
    confirm: str = "auto",
    elicitation_callback: ElicitationFnT | None = None,
) -> AsyncIterator[Client]:
    """Connect the official client over one of its transports."""
    options: dict[str, Any] = {"mode": mode, "elicitation_callback": elicitation_callback}
    if transport == "memory":
        built = build_server(lambda _ctx: AsyncSightline(url, key), lambda _ctx: Confirm(confirm))
        async with Client(built, **options) as client:
            yield client
    elif transport == "stdio":
        env = os.environ | {"SIGHTLINE_URL": url, "SIGHTLINE_API_KEY": key, "SIGHTLINE_MCP_CONFIRM": confirm}
        started = StdioServerParameters(command=sys.executable, args=["-m", "sightline_client.mcp_server"], env=env)
        async with Client(started, **options) as client:
            yield client
    else:
        http = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=40)
        endpoint = streamable_http_client(f"{url}/mcp?confirm={confirm}", http_client=http)
        async with http, Client(endpoint, **options) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    content = [each.model_dump() for each in result.content]
    if tool not in ("get_frame", "get_clip"):  # hosts that read structured content leave pictures and links out
        assert result.structured_content == json_of(content)
    return content


def json_of(content: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content[-1]["text"])
    return found


@pytest.mark.parametrize("mode", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_agent_buys_a_view_sees_a_picture_and_verifies_the_receipt(
    shop: Shop, transport: str, mode: str
) -> None:
    async with open_client(transport, shop.server.url, shop.consumer.key, mode) as client:
        assert client.protocol_version == VERSIONS[mode]
        await purchase(client)


async def purchase(client: Client) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["get_frame"].annotations.read_only_hint
    wish = await a_wish(client)
    session = json_of(await call(client, "request_view", **wish))
    assert session["state"] == "LIVE"
    again = json_of(await call(client, "request_view", **wish))
    assert again["sessionId"] == session["sessionId"]
    picture, facts = await first_picture(client, session["sessionId"])
    [attached] = (await client.read_resource(f"sightline://sessions/{session['sessionId']}/frame")).contents
    assert (attached.mime_type, base64.b64decode(attached.blob)[:2]) == ("image/jpeg", b"\xff\xd8")
    offered, step = await call(client, "get_clip", session_id=session["sessionId"], seconds=3)
    assert "Give the link to the user" in json.loads(step["text"])["nextStep"]
    assert (offered["type"], offered["mime_type"]) == ("resource_link", "video/mp4")
    [read] = (await client.read_resource(offered["uri"])).contents
    with av.open(io.BytesIO(base64.b64decode(read.blob))) as container:
        assert sum(1 for _ in container.decode(video=0)) > 0
    assert simplejpeg.decode_jpeg(base64.b64decode(picture["data"])).shape[1] == 768
    assert (picture["mime_type"], facts["frameState"]) == ("image/jpeg", "live")
    assert facts["publisherEpoch"] > 0
    newer = await call(client, "get_frame", session_id=session["sessionId"], after=facts["sequence"])
    assert json_of(newer)["sequence"] > facts["sequence"]
    assert (facts["costSoFarUsdc"] != "0") == (facts["cleanSeconds"] > 0)

    async def costs() -> dict[str, Any]:
        return (await first_picture(client, session["sessionId"]))[1]

    cost = await until(costs, lambda seen: seen["cleanSeconds"] > facts["cleanSeconds"], "another second is clean")
    assert Decimal(cost["costSoFarUsdc"]) > Decimal(facts["costSoFarUsdc"])
    shown = json_of(await call(client, "get_session", session_id=session["sessionId"]))
    assert Decimal(shown["costSoFarUsdc"]) >= Decimal(cost["costSoFarUsdc"])
    assert shown["chargedUsdc"] == "0"
    assert tools["tell_operator"].annotations.idempotent_hint is False
    told = json_of(await call(client, "tell_operator", session_id=session["sessionId"], text="turn left"))
    assert (told["sessionId"], told["number"], told["text"]) == (session["sessionId"], 1, "turn left")
    ended = json_of(await call(client, "end_session", session_id=session["sessionId"]))
    assert ended["state"] == "ENDED"
    refused = await refusal(client, "tell_operator", session_id=session["sessionId"], text="turn left")
    assert refused.startswith("INVALID_STATE")
    assert refused.endswith("For another view call check_place.")
    assert json_of(await call(client, "end_session", session_id=session["sessionId"])) == ended
    unpaid = {"verified": False, "notChecked": {"settled": "notSettled"}, "payment": "PENDING"}

    async def receipt() -> dict[str, Any]:
        shown = json_of(await call(client, "verify_receipt", session_id=session["sessionId"]))
        assert shown["verified"] or shown | unpaid == shown
        return shown

    verified = await until(receipt, lambda seen: seen["verified"], "the payment is confirmed")
    assert (verified["notChecked"], verified["payment"]) == ({}, "CONFIRMED")
    [attached] = (await client.read_resource(f"sightline://sessions/{session['sessionId']}/receipt")).contents
    assert json.loads(attached.text)["settlement"]["txHash"] == verified["txHash"]


async def a_wish(client: Client, place: tuple[float, float] = PLACE) -> dict[str, Any]:
    """Arguments of request_view with a new quote."""
    return wish_of(await a_quote(client, place), place)


async def a_quote(client: Client, place: tuple[float, float] = PLACE) -> dict[str, Any]:
    lat, lng = place
    return json_of(await call(client, "check_place", lat=lat, lng=lng, seconds=SECONDS))


def wish_of(quote: dict[str, Any], place: tuple[float, float] = PLACE) -> dict[str, Any]:
    lat, lng = place
    return {"lat": lat, "lng": lng, "seconds": SECONDS, "quote_id": quote["quoteId"], "max_charge_usdc": "5"}


async def first_picture(client: Client, session_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with trio.fail_after(60):
        while True:
            content = await call(client, "get_frame", session_id=session_id)
            if content[0]["type"] == "image":
                return content[0], json_of(content)
            await trio.sleep(0.2)


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    text = str(result.content[0].text)
    assert re.match(r"[A-Z_]+( \([\w:]+\))?: ", text), "an error begins with its code"
    return text


@dataclass
class User:
    """Answers the questions of a client, and remembers them."""

    action: Literal["accept", "decline", "cancel"]
    approves: bool | None = True
    """None: the host accepts without the value of the form."""
    questions: list[str] = field(default_factory=list)

    async def __call__(self, _context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.questions.append(params.message)
        content: dict[str, Any] | None = None
        if self.action == "accept":
            content = {} if self.approves is None else {"approve": self.approves}
        return ElicitResult(action=self.action, content=content)


# Over HTTP the protocol of 2025-11-25 has no channel on which this server could ask.
@pytest.mark.parametrize(
    ("transport", "mode"), [("memory", "auto"), ("memory", "legacy"), ("stdio", "legacy"), ("http", "auto")]
)
async def test_a_user_who_can_be_asked_decides_whether_a_view_is_requested(
    shop: Shop, transport: str, mode: str
) -> None:
    user = User("decline")
    async with open_client(transport, shop.server.url, shop.consumer.key, mode, "auto", user) as client:
        before = await known_ids(client)
        quotes = [await a_quote(client) for _ in range(5)]  # their price depends on who else is online
        *declined, approved = map(wish_of, quotes)
        answers = (("decline", True), ("cancel", True), ("accept", False), ("accept", None))
        for (user.action, user.approves), wish in zip(answers, declined, strict=True):
            assert "DECLINED" in await refusal(client, "request_view", **wish)
        assert await known_ids(client) == before
        user.action, user.approves = "accept", True
        wish = approved
        session = json_of(await call(client, "request_view", **wish))
        again = json_of(await call(client, "request_view", **wish))
        assert again["sessionId"] == session["sessionId"]
        other = await refusal(client, "request_view", **wish | {"max_charge_usdc": "0.000001"})
        assert other.startswith("CONFLICT: this quote_id was used with other arguments")
        assert f"Its session {session['sessionId']} is LIVE" in other
        await call(client, "end_session", session_id=session["sessionId"])
        over = await refusal(client, "request_view", **wish)
        assert over.startswith(f"SESSION_OVER: session {session['sessionId']}")
        other = await refusal(client, "request_view", **wish | {"max_charge_usdc": "0.000001"})
        assert other == over, "whatever the other arguments are"
    # Several processes may serve HTTP, and another one does not know the price.
    prices = [None if transport == "http" else usdc(quote["priceUsdc"]) for quote in quotes]
    asked = [question(*PLACE, SECONDS, usdc("5"), price) for price in prices]
    assert user.questions == asked, "not again for a quote that is used"


@pytest.mark.parametrize(("transport", "mode"), [("memory", "auto"), ("http", "auto"), ("http", "legacy")])
async def test_always_refuses_a_client_that_cannot_ask(shop: Shop, transport: str, mode: str) -> None:
    async with open_client(transport, shop.server.url, shop.consumer.key, mode, "always") as client:
        before = await known_ids(client)
        assert "CONFIRMATION_UNAVAILABLE" in await refusal(client, "request_view", **await a_wish(client))
        assert await known_ids(client) == before


async def test_an_agent_extends_a_view_within_its_limit_once_after_its_user_was_asked(shop: Shop) -> None:
    user = User("accept")
    async with open_client("http", shop.server.url, shop.consumer.key, "auto", "auto", user) as client:
        session = json_of(await call(client, "request_view", **await a_wish(client)))
        more = {"session_id": session["sessionId"], "seconds": SECONDS + 60}
        try:
            above = await refusal(client, "extend_view", **more, max_charge_usdc=session["holdUsdc"])
            rate = Decimal(session["holdUsdc"]) / SECONDS
            assert f"may cost up to {(rate * (SECONDS + 60)).normalize():f} USDC, above max_charge_usdc" in above
            assert (
                f"Nothing was added. max_charge_usdc pays for {SECONDS} s: call extend_view with at most that many"
                in above
            )
            user.action = "decline"
            assert "DECLINED" in await refusal(client, "extend_view", **more, max_charge_usdc="5")
            user.action = "accept"
            for _ in range(2):
                longer = json_of(await call(client, "extend_view", **more, max_charge_usdc="5"))
                assert longer["maxSeconds"] == SECONDS + 60
            assert longer["nextStep"].startswith(f"Nothing was added: the view has {SECONDS + 60} s")
        finally:
            await call(client, "end_session", session_id=session["sessionId"])
            await call(client, "end_session", session_id=session["sessionId"])
            over = await refusal(client, "extend_view", **more | {"seconds": SECONDS + 120}, max_charge_usdc="5")
            assert over.startswith("INVALID_STATE: the session is ENDED.")
            assert "'nope' is not the id" in await refusal(
                client, "extend_view", **more | {"session_id": "nope"}, max_charge_usdc="5"
            )
    place = "11.000000, 11.000000"
    text = (
        f"Sightline: extend the running view at {place} by 60 s, to {SECONDS + 60} s in all, for up to "
        f"{(rate * (SECONDS + 60)).normalize():f} USDC in all; your limit is 5 USDC?"
    )
    assert user.questions[1:] == [text] * 2, "not for what is refused, nor for what adds nothing"


async def test_never_does_not_ask(shop: Shop) -> None:
    user = User("decline")
    async with open_client("http", shop.server.url, shop.consumer.key, "auto", "never", user) as client:
        session = json_of(await call(client, "request_view", **await a_wish(client)))
        await call(client, "end_session", session_id=session["sessionId"])
    assert user.questions == []


async def test_an_unknown_value_of_confirm_is_refused(shop: Shop) -> None:
    headers = {"authorization": f"Bearer {shop.consumer.key}"}
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{shop.server.url}/mcp?confirm=sometimes", json={}, headers=headers)
    assert (answer.status_code, answer.json()) == (400, {"error": "confirm is auto, always or never"})


async def test_an_approval_is_not_valid_with_another_key(shop: Shop) -> None:
    """The client carries the sealed question; only the key that was asked may bring the answer."""
    stranger = await a_tenant(shop.server.url, "CONSUMER", "thief")
    async with open_client("http", shop.server.url, shop.consumer.key, "auto", "always", User("accept")) as client:
        wish = await a_wish(client)
        asked = await client.session.call_tool("request_view", wish, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult)
        assert asked.input_requests
    answers = {name: ElicitResult(action="accept", content={"approve": True}) for name in asked.input_requests}
    async with open_client("http", shop.server.url, stranger.key, "auto", "always", User("accept")) as client:
        with pytest.raises(MCPError, match="requestState"):
            await client.session.call_tool(
                "request_view",
                wish,
                input_responses=answers,
                request_state=asked.request_state,
                allow_input_required=True,
            )


async def test_20_parallel_requests_stay_within_the_limit_of_the_key(shop: Shop) -> None:
    async with open_client("http", shop.server.url, shop.consumer.key) as client:
        quote = json_of(await call(client, "check_place", lat=EMPTY_PLACE[0], lng=EMPTY_PLACE[1], seconds=SECONDS))
    limit = 3 * usdc(quote["priceUsdc"]) + 1
    key = await a_limited_key(shop, perDayMicroUsdc=str(limit))
    refused: list[str] = []
    async with Api(shop.server.url, key=key) as api, open_client("http", shop.server.url, key) as client:
        wishes = [await a_wish(client, EMPTY_PLACE) for _ in range(20)]

        async def request(wish: dict[str, Any]) -> None:
            result = await client.call_tool("request_view", wish)
            refused.extend([result.content[0].text] if result.is_error else [])

        async def unfinished() -> list[Session]:
            return [each async for each in api.sessions.list(view="consumer", state=["REQUESTED", "ASSIGNED", "LIVE"])]

        async with trio.open_nursery() as nursery:
            for wish in wishes:
                nursery.start_soon(request, wish)
            all_20 = "every request is refused or has a session"
            sessions = await until(unfinished, lambda seen: len(seen) + len(refused) == 20, all_20)
            said = set(refused)
            for session in sessions:  # the requests that wait for an operator return then
                await call(client, "end_session", session_id=session.id)
    assert 1 <= len(sessions) <= 3
    assert sum(session.hold_micro_usdc for session in sessions) <= limit
    assert {text for text in said if "INSUFFICIENT_CREDIT (apiKey:spendLimit)" not in text} == set()


async def a_limited_key(shop: Shop, **limits: str) -> str:
    async with Api(shop.server.url) as api:
        await api.auth.sign_in(shop.consumer.wallet)
        await api.post("/auth/workspace/select", workspaceId=shop.consumer.workspace_id)
        minted = await api.post(
            f"/workspaces/{shop.consumer.workspace_id}/api-keys",
            label="limited",
            environment="TEST",
            scopes=["sessions:read", "sessions:create", "pricing:read"],
            limits=limits,
        )
    return str(minted["plaintext"])


async def known_ids(client: Client) -> list[str]:
    """The ids of the newest sessions. Sessions of other tests may still change."""
    shown = json_of(await call(client, "list_sessions", only_open=False))
    return [each["sessionId"] for each in shown["sessions"]]


async def test_a_hold_above_max_charge_creates_nothing(shop: Shop) -> None:
    async with open_client("http", shop.server.url, shop.consumer.key) as client:
        before = await known_ids(client)
        wish = await a_wish(client)
        assert "MAX_CHARGE" in await refusal(client, "request_view", **wish | {"max_charge_usdc": "0.000001"})
        assert await known_ids(client) == before
        session = json_of(await call(client, "request_view", **wish))  # a higher limit may use the same quote
        await call(client, "end_session", session_id=session["sessionId"])


async def test_a_user_is_not_asked_for_a_view_whose_price_is_above_the_limit(shop: Shop) -> None:
    user = User("accept")
    async with open_client("memory", shop.server.url, shop.consumer.key, "auto", "auto", user) as client:
        before = await known_ids(client)
        wish = await a_wish(client)
        assert "max_charge_usdc pays for no second" in await refusal(
            client, "request_view", **wish | {"max_charge_usdc": "0.000001"}
        )
        nope = await refusal(client, "request_view", **wish | {"quote_id": "nope"})
        assert nope.startswith("INVALID_ARGUMENT: quote_id 'nope' is not the id of a quote. Call check_place")
        assert (user.questions, await known_ids(client)) == ([], before)


async def test_a_quote_whose_session_is_over_is_an_error_that_names_the_next_step(shop: Shop) -> None:
    async with open_client("http", shop.server.url, shop.consumer.key) as client:
        wish = await a_wish(client)
        session = json_of(await call(client, "request_view", **wish))
        await call(client, "end_session", session_id=session["sessionId"])
        said = await refusal(client, "request_view", **wish)
    assert f"SESSION_OVER: session {session['sessionId']} of this quote_id is ENDED" in said
    assert "call check_place again" in said


async def test_a_quote_that_was_used_with_other_arguments_is_named(shop: Shop) -> None:
    async with open_client("http", shop.server.url, shop.consumer.key) as client:
        wish = await a_wish(client)
        session = json_of(await call(client, "request_view", **wish))
        assert "other arguments" in await refusal(client, "request_view", **wish | {"max_charge_usdc": "4"})
        await call(client, "end_session", session_id=session["sessionId"])


INTERNAL = {"statusCode": 500, "code": "INTERNAL_ERROR", "message": "Internal error"}
NO_OPERATOR = {"statusCode": 503, "code": "UNAVAILABLE", "message": "Busy", "detail": "dispatch:noOperator"}


class Faulty(httpx2.AsyncBaseTransport):
    """Sends requests to the server, except those whose method or end of path is in `broken`."""

    def __init__(self, *broken: str, answer: dict[str, Any] = INTERNAL) -> None:
        self._broken = broken
        self._answer = answer
        self._real = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith(self._broken) or request.method in self._broken:
            return httpx2.Response(self._answer["statusCode"], json=self._answer, request=request)
        return await self._real.handle_async_request(request)

    async def aclose(self) -> None:
        await self._real.aclose()


async def failed_request(shop: Shop, *broken: str) -> tuple[str, Session]:
    """What request_view says when calls fail after the creation, and the session as it is then."""
    async with httpx2.AsyncClient(transport=Faulty(*broken)) as http:
        built = build_server(lambda _ctx: AsyncSightline(shop.server.url, shop.consumer.key, http=http))
        async with Client(built) as client:
            said = await refusal(client, "request_view", **await a_wish(client, EMPTY_PLACE))
    async with Api(shop.server.url, key=shop.consumer.key) as api:
        return said, (await api.sessions.page(view="consumer", limit=1)).items[0]


async def test_a_request_that_fails_after_its_creation_closes_the_session_and_names_it(shop: Shop) -> None:
    said, session = await failed_request(shop, "/dispatch")
    assert session.state == "CANCELLED"
    assert "INTERNAL_ERROR" in said
    assert f"Session {session.id} is CANCELLED, charged 0 USDC" in said


async def test_a_request_that_cannot_be_closed_says_so_and_names_the_session(shop: Shop) -> None:
    said, session = await failed_request(shop, "/dispatch", "DELETE")
    assert session.state == "REQUESTED"
    assert f"Session {session.id} could not be closed" in said
    assert "end_session" in said
    async with Api(shop.server.url, key=shop.consumer.key) as api:
        await api.sessions.cancel(session.id)


async def test_a_request_that_is_cancelled_closes_the_session(shop: Shop) -> None:
    faulty = Faulty("/dispatch", answer=NO_OPERATOR)
    async with Api(shop.server.url, key=shop.consumer.key) as api, httpx2.AsyncClient(transport=faulty) as http:
        built = build_server(lambda _ctx: AsyncSightline(shop.server.url, shop.consumer.key, http=http))
        async with Client(built) as client, trio.open_nursery() as nursery:
            wish = await a_wish(client, EMPTY_PLACE)
            nursery.start_soon(client.call_tool, "request_view", wish)

            async def opened() -> list[Session]:
                return [each async for each in api.sessions.list(view="consumer", state=["REQUESTED"])]

            session = (await until(opened, bool, "the request is created"))[0]
            nursery.cancel_scope.cancel()

        async def state() -> str:
            return (await api.sessions.get(session.id)).state

        await until(state, lambda seen: seen == "CANCELLED", "the request is cancelled")


async def test_a_view_has_a_lease_of_60_s_that_its_agent_renews_by_asking_for_frames(shop: Shop) -> None:
    sent: list[dict[str, Any]] = []

    async def record(request: httpx2.Request) -> None:
        if (request.method, request.url.path) == ("POST", "/api/v1/sessions"):
            sent.append(json.loads(request.content))

    async with httpx2.AsyncClient(event_hooks={"request": [record]}) as http:
        built = build_server(lambda _ctx: AsyncSightline(shop.server.url, shop.consumer.key, http=http))
        async with Client(built) as client:
            session = json_of(await call(client, "request_view", **await a_wish(client)))
            await call(client, "end_session", session_id=session["sessionId"])
    assert [body["consumerLeaseSeconds"] for body in sent] == [60]


async def test_refusals_name_the_code_and_the_next_step(running_server: Server) -> None:
    owner = await a_tenant(running_server.url, "CONSUMER", "owner")
    stranger = await a_tenant(running_server.url, "CONSUMER", "stranger")
    async with Api(running_server.url, key=owner.key) as api:
        session_id = (await api.post("/sessions", lat=40.0, lng=40.0))["id"]
    async with open_client("http", running_server.url, stranger.key) as client:
        assert "NOT_AUTHORIZED" in await refusal(client, "get_session", session_id=session_id)
        assert "NOT_AUTHORIZED" in await refusal(client, "end_session", session_id=session_id)
        assert "Pass USDC" in await refusal(
            client, "request_view", lat=1, lng=1, seconds=60, quote_id=session_id, max_charge_usdc="cheap"
        )


async def test_a_page_of_a_listed_origin_may_call_mcp(running_server: Server) -> None:
    sent = {"origin": PAGE_ORIGIN, "access-control-request-method": "POST"}
    async with httpx2.AsyncClient(base_url=running_server.url) as http:
        allowed = await http.request("OPTIONS", "/mcp", headers=sent)
        refused = await http.request("OPTIONS", "/mcp", headers=sent | {"origin": "https://evil.example"})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (204, PAGE_ORIGIN)
    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (401, False)


@pytest.mark.parametrize("key", [None, "anything", "svc_test_000000_" + "A" * 43])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_mcp_without_a_known_key_is_refused_before_the_mcp_server(
    running_server: Server, key: str | None, method: str
) -> None:
    headers = {"accept": "application/json, text/event-stream"}
    headers |= {} if key is None else {"authorization": f"Bearer {key}"}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx2.AsyncClient(headers=headers) as http:
        answer = await http.request(method, f"{running_server.url}/mcp", json=listing)
    error = "" if key is None else 'error="invalid_token", '
    where = f'Bearer {error}resource_metadata="{running_server.url}/.well-known/oauth-protected-resource/mcp"'
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, where)
    detail = "auth:missing" if key is None else "auth:credential"
    assert (answer.json()["code"], answer.json()["detail"]) == ("NOT_AUTHENTICATED", detail)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_mcp_has_no_streams_and_no_sessions(shop: Shop, method: str) -> None:
    headers = {"authorization": f"Bearer {shop.consumer.key}", "accept": "text/event-stream"}
    async with httpx2.AsyncClient(headers=headers) as http:
        answer = await http.request(method, f"{shop.server.url}/mcp")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
