"""What the server refuses by itself: framing, sizes, slowness, crowds. Always in the envelope, always harmless."""

from typing import Any

import pytest
import trio

H = b"Host: t\r\n"
P = b"POST / HTTP/1.1\r\nHost: t\r\n"
C = P + b"Transfer-Encoding: chunked\r\n\r\n"


async def ok(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


@pytest.mark.parametrize(
    ("request_bytes", "status", "label"),
    [
        (P + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "malformed"),
        (P + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400, "malformed"),
        (P + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, "malformed"),
        (P + b"Content-Length: 3, 3\r\n\r\nabc", 400, "malformed"),
        (P + b"Content-Length: +3\r\n\r\nabc", 400, "malformed"),
        (P + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, "transferEncoding"),
        (b"POST / HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "transferEncoding"),
        (P + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, "malformed"),
        (C + b"zz\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\nHost: t\n\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\n" + H + b"X: a\r\n b\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\n" + H + b"X\x00: a\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\n" + H + b"X: a\x00\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "host"),
        (b"GET / HTTP/1.1\r\nHost: a@b/c\r\n\r\n", 400, "host"),
        (b"GET / HTTP/1.1\r\n" + H + H + b"\r\n", 400, "duplicateHeader"),
        (b"GET * HTTP/1.1\r\n" + H + b"\r\n", 400, "target"),
        (b"GET ftp://x/ HTTP/1.1\r\n" + H + b"\r\n", 400, "target"),
        (b"GET /\xff HTTP/1.1\r\n" + H + b"\r\n", 400, "target"),
        (b"GET / HTTP/2.0\r\n" + H + b"\r\n", 400, "version"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed"),
        (b"BREW / HTTP/1.1\r\n" + H + b"\r\n", 405, "method"),
        (b"CONNECT a:1 HTTP/1.1\r\n" + H + b"\r\n", 405, "method"),
        (b"GET / HTTP/1.1\r\n" + H + b"Expect: tea\r\n\r\n", 417, "expect"),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + H + b"\r\n", 414, "targetTooLong"),
        (b"GET / HTTP/1.1\r\n" + H + b"X: 1\r\n" * 101 + b"\r\n", 431, "tooManyHeaders"),
        (b"GET / HTTP/1.1\r\n" + H + b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431, "headerTooLarge"),
        (b"GET / HTTP/1.1\r\n" + H + b"X: " + b"a" * 200_000, 431, "headerTooLarge"),
        (P + b"Content-Length: 65537\r\n\r\n", 413, "bodyTooLarge"),
        (P + b"Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n", 413, "bodyTooLarge"),
        (C + b"fff0\r\n" + b"a" * 65520 + b"\r\nff\r\n" + b"a" * 255, 413, "bodyTooLarge"),
        (C + b"1;" + b"e" * 900_000, 413, "bodyTooLarge"),
    ],
)  # fmt: skip
async def test_a_request_out_of_bounds_is_refused_in_the_envelope(
    running: Any, request_bytes: bytes, status: int, label: str
) -> None:
    async with running(ok, limits={"linger_s": 0.2}) as server:
        async with server.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(_send_quietly, client, request_bytes)
            answer = await client.answer()
            assert (answer.status, answer.json()["detail"]) == (status, f"http:{label}")
            assert answer.headers["connection"] == "close"
            assert ("allow" in answer.headers) == (status == 405)
            assert await client.closed()
            nursery.cancel_scope.cancel()
        async with server.client() as client:
            assert (await client.get("/health")).body == b"/health"


async def _send_quietly(client: Any, data: bytes) -> None:
    try:
        await client.send(data)
    except trio.BrokenResourceError:
        return


async def test_a_body_of_exactly_the_limit_passes(running: Any) -> None:
    async with running(ok) as server, server.client() as client:
        await client.send(P + b"Content-Length: 65536\r\n\r\n" + b"a" * 65536)
        assert (await client.answer()).status == 200


async def test_good_requests_before_a_bad_one_are_answered(running: Any) -> None:
    async with running(ok) as server, server.client() as client:
        good = b"GET /good HTTP/1.1\r\n" + H + b"\r\n"
        await client.send(good + good + b"nonsense\r\n\r\n")
        assert [(await client.answer()).status for _ in range(3)] == [200, 200, 400]
        assert await client.closed()


async def test_what_follows_connection_close_is_ignored(running: Any) -> None:
    async with running(ok) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n" + H + b"Connection: close\r\n\r\nGET /2 HTTP/1.1\r\n" + H + b"\r\n")
        assert (await client.answer()).status == 200
        assert await client.closed()


@pytest.mark.parametrize(
    ("limit", "sent", "label"),
    [
        ("head_s", b"GET / HTTP/1.1\r\nHo", "headTimeout"),
        ("body_s", b"POST / HTTP/1.1\r\nx-request-id: r1\r\nHost: t\r\nContent-Length: 5\r\n\r\nab", "bodyTimeout"),
    ],
)
async def test_a_slow_client_gets_408(running: Any, limit: str, sent: bytes, label: str) -> None:
    async with running(ok, limits={limit: 0.1, "linger_s": 0.2}) as server, server.client() as client:
        await client.send(sent)
        answer = await client.answer()
        assert (answer.status, answer.json()["detail"]) == (408, f"http:{label}")
        assert await client.closed()


async def test_a_client_that_trickles_does_not_move_its_deadline(running: Any) -> None:
    async def trickle(client: Any) -> None:
        for byte in b"GET / HTTP/1.1\r\nX-Slow: " + b"a" * 200:
            await _send_quietly(client, bytes([byte]))
            await trio.sleep(0.01)

    async with (
        running(ok, limits={"head_s": 0.2}) as server,
        server.client() as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(trickle, client)
        assert (await client.answer()).status == 408
        nursery.cancel_scope.cancel()


async def test_an_idle_connection_is_closed_without_a_word(running: Any) -> None:
    async with running(ok, limits={"idle_s": 1.0}) as server:
        async with server.client() as client:
            assert await client.closed()
        async with server.client() as client:
            assert (await client.get()).status == 200
            assert await client.closed()


async def test_a_client_that_does_not_read_is_cut_off(running: Any) -> None:
    ended = trio.Event()

    async def big(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * 50_000_000})
        finally:
            ended.set()

    async with running(big, limits={"write_s": 0.2}) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
        await ended.wait()


async def test_a_crowd_is_turned_away_with_503_and_let_in_again(running: Any) -> None:
    async with running(ok, limits={"connections_max": 2, "linger_s": 0.2}) as server:
        async with server.client() as one, server.client() as two:
            assert (await one.get()).status == 200
            assert (await two.get()).status == 200
            async with server.client() as three:
                answer = await three.answer()
                assert (answer.status, answer.json()["detail"]) == (503, "http:connections")
        for _ in range(100):
            async with server.client() as four:
                if (await four.get()).status == 200:
                    return
        raise AssertionError("places were not given back")


async def test_one_address_cannot_take_all_places(running: Any) -> None:
    limits = {"connections_per_ip_max": 1, "per_ip_exempt": frozenset(), "linger_s": 0.2}
    async with running(ok, limits=limits) as server, server.client() as one:
        assert (await one.get()).status == 200
        async with server.client() as two:
            assert (await two.answer()).status == 503


async def test_the_server_outlives_clients_that_vanish_at_any_point(running: Any) -> None:
    request = b"POST /x HTTP/1.1\r\n" + H + b"Content-Length: 10\r\n\r\n0123456789"
    async with running(ok) as server:
        for end in range(len(request) + 1):
            async with server.client() as client:
                await client.send(request[:end] or b"\r")
        async with server.client() as client:
            assert (await client.get()).status == 200
