"""What the MCP server decides without a Sightline server."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import stdio_client
from mcp.types import ElicitRequestParams, ElicitResult

from sightline_client import NO_RETRY, AsyncSightline, usdc
from sightline_client.mcp_confirm import Confirm, limit_of
from sightline_client.mcp_server import build_server
from sightline_client.runtime import unix_s

WISH = {"lat": 1.0, "lng": 2.0, "quote_id": "3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50", "seconds": 60}


async def refusal(max_charge_usdc: Any) -> tuple[str, list[bytes]]:
    """What request_view says, and the bodies of the calls it made; none is answered."""
    sent: list[bytes] = []

    async def lose(request: httpx2.Request) -> None:
        sent.append(request.content)
        raise httpx2.ReadError("lost", request=request)

    async with httpx2.AsyncClient(event_hooks={"request": [lose]}) as http:
        built = build_server(
            lambda _ctx: AsyncSightline("http://127.0.0.1:9", http=http, retry=NO_RETRY), lambda _ctx: Confirm.NEVER
        )
        async with Client(built) as client:
            answer = await client.call_tool("request_view", WISH | {"max_charge_usdc": max_charge_usdc})
    assert answer.is_error
    return str(answer.content[0]), sent


@pytest.mark.parametrize(
    ("said", "micro"), [("0.50", 500_000), (0.5, 500_000), (0.1, 100_000), (1, 1_000_000), ("3", 3_000_000)]
)
async def test_max_charge_is_text_or_a_number_and_its_decimal_text_counts(said: Any, micro: int) -> None:
    _, sent = await refusal(said)
    assert f'"maxHoldMicroUsdc":"{micro}"'.encode() in sent[0].replace(b" ", b"")


@pytest.mark.parametrize("said", [True, None, [1], -0.5, "cheap", 0.1234567])
async def test_a_max_charge_that_is_no_amount_requests_nothing(said: Any) -> None:
    text, sent = await refusal(said)
    assert "max_charge_usdc" in text
    assert sent == []


def test_the_smallest_amount_is_read_from_a_number() -> None:
    assert limit_of(0.000001) == usdc("0.000001") == 1


@pytest.mark.parametrize(
    ("left_s", "held_today", "refused"),
    [
        (-1, "0", "INSUFFICIENT_CREDIT (session:consent)"),
        (3_600, "970000", "the mandate leaves 0.03 USDC for a view, which pays for 30 s"),
        (3_600, "900000", None),
    ],
)
async def test_a_user_is_not_asked_about_a_view_that_the_mandate_cannot_pay(
    left_s: int, held_today: str, refused: str | None
) -> None:
    """Where payments are held in escrow: nothing but the mandate can pay for the view of an agent."""
    limits = dict.fromkeys(("maxPerSession", "maxPerDay", "maxRatePerSecond"), "1000000")
    mandate = {"payer": "0x" + "a1" * 20, "maxFeeBps": 1_500, "salt": "0x0", "validUntil": int(unix_s()) + left_s}
    quote = {
        "quoteId": WISH["quote_id"], "estimatedTotalMicroUsdc": "60000", "ratePerSecondMicroUsdc": "1000",
        "durationSeconds": 60, "baseRatePerSecondMicroUsdc": "1000",
        "availableOperators": 1, "supplyFactor": 1, "demandFactor": 1, "corridorMultiplier": 1,
        "expiresAt": "2030-01-01T00:00:00.000Z", "lat": 1, "lng": 2,
    }  # fmt: skip
    names = ("environment", "chainName", "rpcUrl", "explorerUrl", "usdcAddress", "settlementAddress")
    funds = ("trackedBalance", "trackedAllowance", "availableMicroUsdc", "heldMicroUsdc")
    wallet = {"workspaceId": "", "walletAddress": "", "lastSyncBlock": "1", "updatedAt": quote["expiresAt"]}
    known: dict[str, dict[str, Any]] = {
        "/api/v1/wallet": wallet | dict.fromkeys(funds, "5000000"),
        "/api/v1/sessions": {"items": []},
        "/api/v1/config": dict.fromkeys(names, "") | {"chainId": 1, "isEscrow": True},
        "/api/v1/wallet/mandate": mandate | limits | {"heldToday": held_today},
        "/api/v1/pricing/quote": quote,
    }
    questions: list[str] = []

    async def decline(_context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        questions.append(params.message)
        return ElicitResult(action="decline")

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"statusCode": 200, "data": known[request.url.path]})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        built = build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", http=http), lambda _ctx: Confirm.AUTO)
        async with Client(built, elicitation_callback=decline) as client:
            place = (await client.call_tool("check_place", {"lat": 1, "lng": 2, "seconds": 60})).structured_content
            assert place["maxSecondsAffordable"] == max(0, (1_000_000 - int(held_today)) // 1_000) * (left_s > 0)
            said = str((await client.call_tool("request_view", WISH | {"max_charge_usdc": "1"})).content[0])
    assert len(questions) == (refused is None)
    assert (refused or "DECLINED") in said
    assert refused is None or "Nothing was requested." in said


class NotFound(BaseHTTPRequestHandler):
    """Answers 404 to every call."""

    def do_GET(self) -> None:
        body = b'{"code": "NOT_FOUND", "message": "Not found"}'
        self.send_response(404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""


@pytest.fixture
def url() -> Iterator[str]:
    """URL of a server that knows no path."""
    with HTTPServer(("127.0.0.1", 0), NotFound) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.mark.parametrize(("level", "is_logged"), [(None, False), ("info", True)])
async def test_sightline_mcp_logs_http_requests_only_if_asked_to(
    url: str, tmp_path: Path, level: str | None, is_logged: bool
) -> None:
    env = os.environ | {"SIGHTLINE_URL": url, "SIGHTLINE_API_KEY": "svc_test_000000_" + "A" * 43}
    env |= {} if level is None else {"SIGHTLINE_MCP_LOG_LEVEL": level}
    started = StdioServerParameters(command=sys.executable, args=["-m", "sightline_client.mcp_server"], env=env)
    path = tmp_path / "stderr"
    with path.open("w") as log:
        async with Client(stdio_client(started, errlog=log)) as client:
            answer = await client.call_tool("wallet", {})
    assert "NOT_FOUND" in str(answer.content[0])
    lines = [line for line in path.read_text().splitlines() if "HTTP Request" in line]
    assert [f"GET {url}/api/v1/wallet" in line and "404" in line for line in lines] == [True] * is_logged
    assert is_logged or path.read_text() == ""


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"SIGHTLINE_MCP_LOG_LEVEL": "loud"}, "SIGHTLINE_MCP_LOG_LEVEL is 'LOUD'"),
        (
            {"SIGHTLINE_MCP_CONFIRM": "maybe", "SIGHTLINE_API_KEY": "svc_test_000000_" + "A" * 43},
            "SIGHTLINE_MCP_CONFIRM is 'maybe'",
        ),
        (
            {"SIGHTLINE_URL": "video.example.com", "SIGHTLINE_API_KEY": "svc_test_000000_" + "A" * 43},
            "video.example.com",
        ),
        ({"SIGHTLINE_API_KEY": ""}, "SIGHTLINE_API_KEY is not set"),
    ],
)
def test_sightline_mcp_refuses_at_its_start_what_no_call_could_use(env: dict[str, str], said: str) -> None:
    line = [sys.executable, "-m", "sightline_client.mcp_server"]
    done = subprocess.run(
        line, env=os.environ | env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_sightline_mcp_says_how_it_is_set_up_and_its_version() -> None:
    line = [sys.executable, "-m", "sightline_client.mcp_server"]
    answered = [
        subprocess.run([*line, word], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        for word in ("--help", "--version", "--verbose")
    ]
    helped, version, wrong = answered
    assert [each.returncode for each in answered] == [0, 0, 1]
    for name in ("SIGHTLINE_URL", "SIGHTLINE_API_KEY", "SIGHTLINE_MCP_CONFIRM", "SIGHTLINE_MCP_LOG_LEVEL"):
        assert name in helped.stdout
    assert version.stdout.startswith("sightline-mcp 0.")
    assert "takes no '--verbose'" in wrong.stderr


async def test_the_guide_names_every_tool_and_no_other() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "mcp.md").read_text()
    table = guide.partition("## The tools\n")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    async with Client(build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY))) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert named == set(tools)
    assert all(tool.title for tool in tools.values())


async def test_every_tool_but_the_picture_s_declares_what_it_returns() -> None:
    async with Client(build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY))) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {name for name, tool in tools.items() if tool.output_schema is None} == {"get_frame", "get_clip"}
    quote = tools["check_place"].output_schema["properties"]
    assert {"quoteId", "priceUsdc", "expiresAt"} < set(quote)
    assert quote["expiresAt"]["format"] == "date-time"
    assert all("\n    " not in tool.description for tool in tools.values())


async def test_a_host_is_shown_a_prompt_resources_and_the_version() -> None:
    async with Client(build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY))) as client:
        resources = [each.uri_template for each in (await client.list_resource_templates()).resource_templates]
        wish = {"lat": "52.5", "lng": "13.4", "question": "How many buses?"}
        [message] = (await client.get_prompt("watch_place", wish)).messages
        [limited] = (await client.get_prompt("watch_place", wish | {"budget_usdc": "0.30"})).messages
        assert client.server_info.version == version("sightline-client")
    session = "sightline://sessions/{session_id}"
    assert resources == [f"{session}/frame", session + "/clip/{seconds}", f"{session}/receipt"]
    assert "52.5, 13.4" in message.content.text
    assert "How many buses?" in message.content.text
    assert "USDC" not in message.content.text, "no budget is invented"
    assert "Ask me for a budget before you buy" in message.content.text
    assert "for at most 0.30 USDC" in limited.content.text
    assert "Ask me" not in limited.content.text


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("watch_place", {"lat": "52.5"}, "Arguments of watch_place are missing: lng, question."),
        ("watch_paint", {}, "The prompt 'watch_paint' does not exist. There is watch_place."),
    ],
)
async def test_a_prompt_that_cannot_be_made_is_refused_as_invalid_params(
    name: str, given: dict[str, str], said: str
) -> None:
    async with Client(build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY))) as client:
        with pytest.raises(MCPError) as refused:
            await client.get_prompt(name, given)
    assert (refused.value.error.code, refused.value.error.message) == (-32602, said)


async def test_wrong_arguments_are_named_in_one_line() -> None:
    async with Client(build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY))) as client:
        answer = await client.call_tool("check_place", {"lat": 100, "lng": "east"})
        unlimited = await client.call_tool("request_view", WISH)
    assert answer.is_error
    assert answer.content[0].text == (
        "INVALID_ARGUMENT: lat: must be at most 90; lng: must be a number (degrees, not a name)"
    )
    assert unlimited.content[0].text == "INVALID_ARGUMENT: max_charge_usdc: is missing (ask the user for a budget)"


async def test_an_argument_that_a_tool_does_not_have_is_named_with_the_one_that_was_meant() -> None:
    async with Client(build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY))) as client:
        answer = await client.call_tool(
            "get_frame", {"session_id": "00000000-0000-4000-8000-000000000001", "waitSeconds": 3, "x": 1}
        )
    assert answer.is_error
    assert answer.content[0].text == (
        "INVALID_ARGUMENT: waitSeconds is not known (did you mean wait_seconds?); x is not known. "
        "The arguments are session_id, width, after, wait_seconds."
    )


async def test_a_server_that_is_not_reached_is_a_matter_of_the_user_and_not_of_arguments_of_python() -> None:
    async with Client(build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY))) as client:
        said = (await client.call_tool("wallet", {})).content[0].text
    assert said.startswith(
        "NOT_REACHED: Cannot reach http://127.0.0.1:9: all attempts to connect to 127.0.0.1:9 failed. "
    )
    assert said.endswith("Tell the user to check that the server runs. Do not repeat the call until then.")
    assert "url=" not in said


async def test_what_answers_in_place_of_the_server_is_a_matter_of_the_user() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text="<html>")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        built = build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", http=http))
        async with Client(built) as client:
            said = (await client.call_tool("wallet", {})).content[0].text
    assert said == (
        "INVALID_RESPONSE: http://127.0.0.1:9 answered 200 with a body that is not Sightline's. Tell the user to check "
        "that its address is right. Do not repeat the call until then."
    )


async def test_a_resource_that_cannot_be_read_says_why() -> None:
    async with Client(build_server(lambda _ctx: AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY))) as client:
        with pytest.raises(MCPError, match="NOT_REACHED: Cannot reach"):
            await client.read_resource(f"sightline://sessions/{WISH['quote_id']}/frame")
        with pytest.raises(MCPError, match="INVALID_ARGUMENT: session_id 'none' is not the id of a view"):
            await client.read_resource("sightline://sessions/none/frame")
