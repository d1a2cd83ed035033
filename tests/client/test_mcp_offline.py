"""What the MCP server decides without a Sightline server."""

from typing import Any

import httpx2
import pytest
from mcp import Client

from sightline_client import NO_RETRY, AsyncSightline, usdc
from sightline_client.mcp_confirm import Confirm, limit_of
from sightline_client.mcp_server import build_server

WISH = {"lat": 1.0, "lng": 2.0, "quote_id": "q", "seconds": 60}


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
