"""The same calls over HTTP/2: both doors, refusals, streams."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.http.server.h2_client import H2Client

ID = "3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44"


@asynccontextmanager
async def h2(app: Any, *headers: tuple[str, str]) -> AsyncIterator[H2Client]:
    stream = await trio.open_tcp_stream(app.bound.host, app.bound.port)
    try:
        yield H2Client(stream, *headers)
    finally:
        await trio.aclose_forcefully(stream)


async def test_calls_are_answered_alike(running: Any, door: str) -> None:
    async with running(h2c=True) as app, h2(app, ("authorization", "Bearer reader")) as client:
        head, body = await client.ask(f"/{door}/public?color=red", method="GET")
        assert (head[":status"], head["x-request-id"]) == ("200", "mine")
        assert json.loads(body)["data"]["query"]["color"] == "red"
        head, body = await client.ask(f"/{door}/things/{ID}", method="GET")
        assert (head[":status"], json.loads(body)["data"]["params"]) == ("200", {"id": ID})
        head, body = await client.ask("/nowhere", method="GET")
        assert (head[":status"], json.loads(body)["detail"]) == ("404", "route:unknown")
        head, body = await client.ask(f"/{door}/sdp", b"a" * 70_000)
        assert (head[":status"], json.loads(body)["code"]) == ("413", "INVALID_INPUT")


async def test_a_stream_ends_with_its_client(running: Any, door: str) -> None:
    async with running(h2c=True) as app:
        async with h2(app) as client:
            with trio.move_on_after(0.3):
                await client.ask(f"/{door}/stream", method="GET")
        await app.stage.cancelled.wait()
        await app.stage.observed.wait()
