"""Stopping: no new work, old work finishes, endless work is ended, and nobody waits for ever."""

from typing import Any

import trio
import trio.testing


async def test_a_request_in_flight_finishes_and_its_connection_closes(running: Any) -> None:
    entered, go = trio.Event(), trio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async with running(slow) as server, server.client() as idle, server.client() as busy:
        await busy.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await entered.wait()
        server.shutdown.set()
        assert await idle.closed()
        assert not server.stopped.is_set()
        go.set()
        answer = await busy.answer()
        assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        await server.stopped.wait()


async def test_a_request_that_follows_an_answer_at_once_is_answered_and_its_connection_closes(running: Any) -> None:
    async def quick(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async with running(quick) as server, server.client() as client, server.client() as silent:
        assert (await client.get()).headers.get("connection") != "close"
        await silent.get()
        server.shutdown.set()
        await trio.testing.wait_all_tasks_blocked()
        answer = await client.get()
        assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        assert await silent.closed()
        await server.stopped.wait()


async def test_nobody_is_accepted_while_draining(running: Any) -> None:
    entered, go = trio.Event(), trio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await go.wait()

    async with running(slow) as server, server.client() as busy, trio.open_nursery() as nursery:
        await busy.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await entered.wait()
        server.shutdown.set()
        while True:
            try:
                async with server.client() as late:
                    await late.rest()
            except OSError:
                break
        go.set()
        nursery.cancel_scope.cancel()


async def test_a_stream_without_end_is_ended(running: Any) -> None:
    async def forever(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await trio.sleep_forever()

    async with running(forever, drain_s=50) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await client.head()
        assert await client.chunk() == b"x"
        server.shutdown.set()
        assert await client.closed()
        await server.stopped.wait()


async def test_what_does_not_finish_in_time_is_cancelled(running: Any) -> None:
    entered, cancelled = trio.Event(), trio.Event()

    async def stuck(scope: Any, receive: Any, send: Any) -> None:
        try:
            entered.set()
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with running(stuck, drain_s=0.1) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await entered.wait()
        server.shutdown.set()
        await cancelled.wait()
        await server.stopped.wait()


async def test_a_websocket_is_told_that_the_server_goes_away(running: Any) -> None:
    async def talk(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()

    async with running(talk, drain_s=50) as server, server.client() as client:
        await client.send(
            b"GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert (await client.head()).status == 101
        server.shutdown.set()
        assert await client.rest() == b"\x88\x02\x03\xe9"
        await server.stopped.wait()


async def test_the_application_starts_before_the_first_request_and_stops_after_the_last(running: Any) -> None:
    story: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                message = await receive()
                story.append(message["type"])
                await send({"type": f"lifespan.{step}.complete"})
            return
        story.append("request")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async with running(app, lifespan=True) as server, server.client() as client:
        await client.get()
        server.shutdown.set()
        await server.stopped.wait()
    assert story == ["lifespan.startup", "request", "lifespan.shutdown"]
