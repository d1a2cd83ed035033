"""Ids are one segment of a path: one that would name another path is refused before anything is sent."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from mcp import Client

from sightline_client import AsyncSightline, InvalidIdError
from sightline_client.mcp_server import build_server

URL = "http://127.0.0.1:9"
HOSTILE = ("../wallet", "..", ".", "", "a/b", "a?b=c", "a#b", "a%2Fb", "%2e%2e", "a\\b", "a\n", "a b", "x" * 129)
CALLS: dict[str, Callable[[AsyncSightline, str], Awaitable[Any]]] = {
    "session": lambda sl, name: sl.sessions.get(name),
    "frame": lambda sl, name: sl.sessions.frame(name),
    "clip": lambda sl, name: sl.sessions.clip(name),
    "dispatch": lambda sl, name: sl.sessions.dispatch(name),
    "end": lambda sl, name: sl.sessions.end(name),
    "settlement": lambda sl, name: sl.sessions.settlement(name),
    "workspace": lambda sl, name: sl.workspaces.get(name),
    "member": lambda sl, name: sl.workspaces.remove_member("w", name),
    "key": lambda sl, name: sl.keys.revoke("w", name),
    "share": lambda sl, name: sl.sessions.revoke_share("s", name),
    "webhook": lambda sl, name: sl.webhooks.get(name),
    "sign-in": lambda sl, name: sl.auth.end_sign_in(name),
}


class Recorder(httpx2.AsyncBaseTransport):
    """Answers nothing, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(str(request.url))
        return httpx2.Response(404, json={"code": "NOT_FOUND", "message": "Resource not found"}, request=request)


@pytest.mark.parametrize("call", CALLS)
async def test_an_id_that_names_another_path_is_refused_and_nothing_is_sent(call: str) -> None:
    recorder = Recorder()
    async with httpx2.AsyncClient(transport=recorder) as http:
        sl = AsyncSightline(URL, "svc_test_000000_" + "A" * 43, http=http)
        for name in HOSTILE:
            with pytest.raises(InvalidIdError):
                await CALLS[call](sl, name)
    assert recorder.asked == []


async def test_an_id_that_no_session_has_is_named_as_such() -> None:
    async with httpx2.AsyncClient(transport=(recorder := Recorder())) as http:
        sl = AsyncSightline(URL, "svc_test_000000_" + "A" * 43, http=http)
        with pytest.raises(InvalidIdError, match="'nope' is not a session id"):
            await sl.sessions.get("nope")
    assert recorder.asked == []


async def test_an_agent_cannot_reach_another_path_by_a_session_id() -> None:
    recorder = Recorder()
    async with httpx2.AsyncClient(transport=recorder) as http:
        built = build_server(lambda _ctx: AsyncSightline(URL, "svc_test_000000_" + "A" * 43, http=http))
        async with Client(built) as client:
            for tool in ("get_session", "get_frame", "get_clip", "end_session", "cancel_request", "verify_receipt"):
                answer = await client.call_tool(tool, {"session_id": "../wallet"})
                assert answer.is_error
                assert "is not the id of a view" in str(answer.content[0])
    assert recorder.asked == []
