"""The NATS protocol: what arrives in pieces, and servers that do not keep to it."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from sightline.cluster.bus.nats import NatsOptions
from sightline.cluster.bus.nats_wire import LINE_MAX, NatsError, Parser, connect, endpoint

from .nats_process import refusal_of

STREAM = (
    b"PING\r\n"
    b"MSG sl.x.n.two 1 sl.x.u.one.7 5\r\nab\r\nc\r\n"
    b"HMSG sl.x.u.two.8 3 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    b"HMSG sl.x.all 2 sl.x.b.one.9 12 15\r\nNATS/1.0\r\n\r\nabc\r\n"
    b"MSG sl.x.all 2 0\r\n\r\n"
    b"-ERR 'Slow Consumer'\r\n"
)
READ = [
    ("PING", b""),
    (b"sl.x.n.two", b"sl.x.u.one.7", b"ab\r\nc", False),
    (b"sl.x.u.two.8", b"", b"", True),
    (b"sl.x.all", b"sl.x.b.one.9", b"abc", False),
    (b"sl.x.all", b"", b"", False),
    ("-ERR", b"'Slow Consumer'"),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, len(STREAM)])
def test_a_stream_is_read_alike_in_pieces_of_any_size(size: int) -> None:
    read: list[tuple[object, ...]] = []
    parser = Parser(lambda *message: read.append(message), lambda name, rest: read.append((name.decode(), rest)))
    for start in range(0, len(STREAM), size):
        parser.feed(STREAM[start : start + size])
    assert read == READ


def test_a_line_without_end_is_refused() -> None:
    parser = Parser(lambda *_: None, lambda *_: None)
    parser.feed(b"x" * LINE_MAX)
    with pytest.raises(NatsError, match="too long"):
        parser.feed(b"x")


def test_user_and_password_are_decoded_and_a_url_for_logs_has_none() -> None:
    url = "nats://us%40er:pass%2Fword@broker:4333"
    said = connect({"headers": True}, url, "one", None)
    assert b'"user": "us@er", "pass": "pass/word"' in said
    assert (endpoint(url), endpoint("nats://token@broker")) == ("broker:4333", "broker:4222")


@pytest.mark.parametrize(
    ("greeting", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak the NATS protocol"),
        (b"INFO {\r\n", "does not speak the NATS protocol"),
        (b"INFO []\r\n", "does not speak the NATS protocol"),
        (b"INFO {}\r\n", "does not speak the NATS protocol"),
        (b'INFO {"max_payload": 1048576}\r\n', "older than 2.2"),
        # Bytes that are injected before TLS starts must not be read as if they had come through TLS.
        (b'INFO {"max_payload": 1048576, "tls_required": true}\r\nPONG\r\n', "does not speak the NATS protocol"),
        (b'INFO {"max_payload": 1048576, "headers": true}\r\n', "closed the connection"),
        (b"", "does not speak the NATS protocol"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_server_that_does_not_keep_to_the_protocol_fails_the_start(
    greeting: bytes, reason: str, mock_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, greeting)
        options = NatsOptions(key=b"k" * 32, servers=(f"nats://127.0.0.1:{port}",), cluster="test", incarnation="one")
        assert reason in await refusal_of(options, mock_clock)
        nursery.cancel_scope.cancel()


async def serve(greeting: bytes, *, task_status: trio.TaskStatus[int]) -> None:
    """Greet each client, read one message of it, and close."""

    async def greet(stream: trio.SocketStream) -> None:
        async with stream:
            if greeting:
                with suppress(trio.BrokenResourceError):  # the client gives up by a reset
                    await stream.send_all(greeting)
                    await stream.receive_some()

    report: Callable[[int], None] = task_status.started
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, greet, 0, host="127.0.0.1"))
        report(listener.socket.getsockname()[1])
