"""One request, one answer: what a client of HTTP/1.1 sees over a real socket."""

import json
from typing import Any

import pytest
import trio
import trio.testing


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what arrived."""
    message = await receive()
    seen = {
        "method": scope["method"],
        "path": scope["path"],
        "raw_path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "version": scope["http_version"],
        "scheme": scope["scheme"],
        "client": scope["client"][0],
        "headers": [[n.decode(), v.decode("latin-1")] for n, v in scope["headers"]],
        "body": message["body"].decode("latin-1"),
    }
    body = json.dumps(seen).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"echo")]})
    await send({"type": "http.response.body", "body": body})


async def test_a_request_reaches_the_application_and_its_answer_the_client(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        answer = await client.get("/a%20b/c?x=1&y=%32", "X-Thing:  spaced  ", "Accept: */*")
    assert answer.status == 200
    assert answer.headers["x-app"] == "echo"
    assert answer.headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    seen = answer.json()
    assert (seen["path"], seen["raw_path"], seen["query"]) == ("/a b/c", "/a%20b/c", "x=1&y=%32")
    assert ["x-thing", "spaced"] in seen["headers"]


async def test_the_first_answer_after_a_time_without_connections_has_the_present_date(running: Any) -> None:
    async with running(echo) as server:
        server.clock.ms += 3_600_000
        async with server.client() as client:
            assert (await client.get("/")).headers["date"] == "Tue, 14 Nov 2023 23:13:20 GMT"


async def test_one_connection_serves_many_requests(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        for number in range(5):
            answer = await client.get(f"/{number}")
            assert answer.json()["path"] == f"/{number}"


async def test_pipelined_requests_are_answered_in_order(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        many = b"".join(b"GET /%d HTTP/1.1\r\nHost: t\r\n\r\n" % number for number in range(100))
        await client.send(many)
        assert [(await client.answer()).json()["path"] for _ in range(100)] == [f"/{n}" for n in range(100)]


async def test_what_is_pipelined_behind_a_slow_answer_is_kept(running: Any) -> None:
    go = trio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/slow":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)  # watches for the disconnect and so reads ahead
                await go.wait()
                nursery.cancel_scope.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async with running(slow) as server, server.client() as client:
        await client.send(b"GET /slow HTTP/1.1\r\nHost: t\r\n\r\n")
        await client.send(b"GET /next HTTP/1.1\r\nHost: t\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked(0.005)
        go.set()
        assert (await client.answer()).body == b"/slow"
        assert (await client.answer()).body == b"/next"


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_a_request_may_arrive_in_any_pieces(running: Any, step: int) -> None:
    request = (
        b"POST /p HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;name=value\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Trailer: 1\r\n\r\n"
    )
    async with running(echo) as server, server.client() as client:
        for start in range(0, len(request), step):
            await client.send(request[start : start + step])
        seen = (await client.answer()).json()
        assert seen["body"] == "abcdefg"
        assert "x-trailer" not in dict(seen["headers"])
        assert (await client.get("/again")).json()["path"] == "/again"


async def test_a_client_that_expects_100_is_told_to_go_on(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert (await client.answer()).status == 100
        await client.send(b"abc")
        assert (await client.answer()).json()["body"] == "abc"


async def test_a_client_that_does_not_wait_for_100_gets_one_answer(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
        assert (await client.answer()).status == 200


async def test_head_has_the_length_and_no_body(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        await client.send(b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n")
        answer = await client.answer(to_head=True)
        assert int(answer.headers["content-length"]) > 0
        assert (await client.get("/after")).json()["path"] == "/after"


@pytest.mark.parametrize(
    ("request_line", "extra", "stays"),
    [
        ("GET / HTTP/1.1", b"", True),
        ("GET / HTTP/1.1", b"Connection: close\r\n", False),
        ("GET / HTTP/1.0", b"", False),
        ("GET / HTTP/1.0", b"Connection: keep-alive\r\n", True),
    ],
)
async def test_a_connection_is_kept_when_both_sides_can(
    running: Any, request_line: str, extra: bytes, stays: bool
) -> None:
    async with running(echo) as server, server.client() as client:
        await client.send(request_line.encode() + b"\r\nHost: t\r\n" + extra + b"\r\n")
        answer = await client.answer()
        assert answer.status == 200
        if stays:
            assert (await client.get()).status == 200
        else:
            assert answer.headers["connection"] == "close"
            assert await client.closed()


async def test_an_absolute_target_names_the_host(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        seen = (await client.get("http://other.example/x?y")).json()
    assert (seen["path"], seen["query"], dict(seen["headers"])["host"]) == ("/x", "y", "other.example")


async def test_another_protocol_that_is_offered_is_declined_by_answering(running: Any) -> None:
    upgrade = "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"
    async with running(echo) as server, server.client() as client:
        assert (await client.get("/x", *upgrade)).json()["path"] == "/x"
        head = "\r\n".join(["POST /y HTTP/1.1", "Host: t", *upgrade, "Content-Length: 26", "", ""])
        await client.send(head.encode() + b"GET /smuggled HTTP/1.1\r\n\r\n")
        seen = (await client.answer()).json()
        assert (seen["path"], seen["body"]) == ("/y", "GET /smuggled HTTP/1.1\r\n\r\n")
        assert (await client.get("/z")).json()["path"] == "/z"


async def test_a_stream_arrives_as_it_is_sent_and_ends(running: Any) -> None:
    step = trio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await step.wait()
        await send({"type": "http.response.body", "body": b"two", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with running(stream) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        head = await client.head()
        assert head.headers["transfer-encoding"] == "chunked"
        assert await client.chunk() == b"one"
        step.set()
        assert await client.chunk() == b"two"
        assert await client.chunk() == b""
        assert (await client.get()).body == b"onetwo"


async def test_a_stream_to_http_1_0_ends_by_closing(running: Any) -> None:
    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async with running(stream) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = await client.answer()
        assert answer.body == b"onetwo"
        assert answer.headers["connection"] == "close"


async def test_a_large_answer_waits_for_its_reader(running: Any) -> None:
    piece = b"x" * 1_000_000
    sent = 0

    async def big(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(20):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent += 1
        await send({"type": "http.response.body"})

    async with running(big) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await client.head()
        await trio.testing.wait_all_tasks_blocked(0.005)
        assert sent < 20
        total = 0
        while data := await client.chunk():
            total += len(data)
        assert total == 20_000_000


async def test_the_application_learns_that_its_client_has_gone(running: Any) -> None:
    told: list[Any] = []
    entered, left = trio.Event(), trio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        entered.set()
        told.append(await receive())
        left.set()

    async with running(wait) as server:
        async with server.client() as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
            await entered.wait()
        await left.wait()
    assert told == [{"type": "http.disconnect"}]


async def test_an_application_that_does_not_ask_runs_to_its_end_without_its_client(running: Any) -> None:
    entered, go, finished = trio.Event(), trio.Event(), trio.Event()

    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        entered.set()
        await go.wait()
        finished.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    async with running(stubborn) as server:
        async with server.client() as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: t\r\n\r\n")
            await entered.wait()
        go.set()
        await finished.wait()


async def test_a_failing_application_is_a_500_in_the_envelope_and_the_next_request_works(running: Any) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/group":
            async with trio.open_nursery():
                raise ValueError("secret")
        if scope["path"] == "/silent":
            return
        if scope["path"] == "/bad-header":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nb: c")]})
            await send({"type": "http.response.body"})
        if scope["path"] == "/short":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"x"})
        raise ValueError("secret")

    async with running(fail) as server, server.client() as client:
        for path in ("/plain", "/group", "/silent", "/bad-header", "/short"):
            answer = await client.get(path, "x-request-id: mine")
            assert (answer.status, answer.json()["detail"]) == (500, "http:internal"), path
            assert answer.headers["x-request-id"] == "mine"
            assert b"secret" not in answer.body


async def test_an_application_that_fails_in_the_middle_cuts_the_connection(running: Any) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        raise ValueError("boom")

    async with running(fail) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        assert (await client.rest()).endswith(b"3\r\nabc\r\n")


async def test_a_proxy_speaks_for_its_client_only_when_it_is_trusted(running: Any) -> None:
    claim = ("X-Forwarded-For: 6.6.6.6, 9.9.9.9", "X-Forwarded-Proto: https")
    async with running(echo) as server, server.client() as client:
        seen = (await client.get("/", *claim)).json()
        assert (seen["client"], seen["scheme"]) == ("127.0.0.1", "http")
    for trusted in ("127.0.0.1", "127.0.0.0/8"):
        async with running(echo, trusted_proxies=(trusted,)) as server, server.client() as client:
            seen = (await client.get("/", *claim)).json()
            assert (seen["client"], seen["scheme"]) == ("9.9.9.9", "https")
