"""A Quart-Trio application, as its authors know it, on this server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from quart import Response, request, websocket
from quart_trio import QuartTrio
from quart_trio.wrappers import TrioResponse
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, Request, TextMessage


class Probe:
    def __init__(self) -> None:
        self.story: list[str] = []
        self.entered = trio.Event()
        self.cancelled = trio.Event()
        self.closed = trio.Event()


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
def app(probe: Probe) -> QuartTrio:
    app = QuartTrio("conformance")

    @app.before_serving
    async def start() -> None:
        probe.story.append("started")

    @app.after_serving
    async def stop() -> None:
        probe.story.append("stopped")

    @app.post("/echo/<name>")
    async def echo(name: str) -> dict[str, Any]:
        return {
            "name": name,
            "json": await request.get_json(),
            "query": request.args.get("q"),
            "ip": request.remote_addr,
        }

    @app.get("/empty")
    async def empty() -> TrioResponse:
        return TrioResponse(b"", status=204)

    @app.get("/unchanged")
    async def unchanged() -> TrioResponse:
        return TrioResponse(b"", status=304, headers={"etag": '"1"'})

    @app.get("/events")
    async def events() -> Response:
        async def generate() -> AsyncIterator[bytes]:
            try:
                yield b"data: 1\n\n"
                await trio.sleep_forever()
            finally:
                probe.closed.set()

        return TrioResponse(generate(), headers={"content-type": "text/event-stream"})

    @app.post("/wait")
    async def wait() -> str:
        probe.entered.set()
        try:
            await trio.sleep_forever()
        finally:
            probe.cancelled.set()
        return ""

    @app.get("/fail")
    async def fail() -> str:
        raise ValueError("secret")

    @app.websocket("/ws")
    async def ws() -> None:
        while True:
            await websocket.send(f"re: {await websocket.receive()}")

    return app


async def test_requests_and_answers(running: Any, app: QuartTrio) -> None:
    async with running(app, lifespan=True) as server, server.client() as client:
        body = b'{"a": [1, "\xc3\xbc"]}'
        head = f"POST /echo/J%C3%BCrgen?q=%26 HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n"
        for _ in range(3):
            await client.send(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            answer = await client.answer()
            assert answer.json() == {"name": "Jürgen", "json": {"a": [1, "ü"]}, "query": "&", "ip": "127.0.0.1"}
        assert (await client.get("/empty")).status == 204
        assert (await client.get("/unchanged")).headers["etag"] == '"1"'
        assert (await client.get("/nowhere")).status == 404
        failed = await client.get("/fail")
        assert failed.status == 500
        assert b"secret" not in failed.body
        assert (await client.get("/empty")).status == 204


async def test_its_lifespan(running: Any, app: QuartTrio, probe: Probe) -> None:
    async with running(app, lifespan=True) as server, server.client() as client:
        assert probe.story == ["started"]
        await client.get("/empty")
        server.shutdown.set()
        await server.stopped.wait()
    assert probe.story == ["started", "stopped"]


async def test_a_handler_is_cancelled_when_its_client_leaves(running: Any, app: QuartTrio, probe: Probe) -> None:
    async with running(app, lifespan=True) as server:
        async with server.client() as client:
            await client.send(b"POST /wait HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
            await probe.entered.wait()
        await probe.cancelled.wait()


async def test_a_stream_is_closed_when_its_client_leaves(running: Any, app: QuartTrio, probe: Probe) -> None:
    async with running(app, lifespan=True) as server:
        async with server.client() as client:
            await client.send(b"GET /events HTTP/1.1\r\nHost: t\r\n\r\n")
            assert (await client.head()).headers["content-type"].startswith("text/event-stream")
            assert await client.chunk() == b"data: 1\n\n"
        await probe.closed.wait()


@pytest.mark.parametrize("path", ["/ws", "/nowhere"])
async def test_websockets(running: Any, app: QuartTrio, path: str) -> None:
    async with running(app, lifespan=True) as server, server.client() as client:
        ws = WSConnection(ConnectionType.CLIENT)
        await client.send(ws.send(Request(host="t", target=path)))

        async def hear() -> Any:
            while True:
                for event in ws.events():
                    return event
                ws.receive_data(await client.stream.receive_some() or None)

        opened = await hear()
        if path == "/nowhere":
            assert isinstance(opened, RejectConnection)
            assert opened.status_code == 404
            return
        assert isinstance(opened, AcceptConnection)
        await client.send(ws.send(TextMessage("hello")))
        assert (await hear()).data == "re: hello"
