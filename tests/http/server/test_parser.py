"""The parser without a socket: a head that comes again is not parsed again, and nobody can tell."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from sightline.http.server.options import Limits
from sightline.http.server.parser import Request, RequestParser


def post(body: bytes, *extra: str, path: str = "/a") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *extra]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


MESSAGES = [
    post(b""),
    post(b"12"),
    post(b"34"),
    post(b"\r\n"),
    post(b"\r\n\r\n"),
    post(b"12") + b"\r\n",
    post(b"\r\n") + b"\r\n",
    b"\r\n" + post(b"12"),
    post(b"12") + post(b"34"),
    post(b"12", path="/b?c=%2F"),
    post(b"12", "X-Request-Id: one"),
    post(b"12", "Expect: 100-continue"),
    post(b"12", "Connection: close"),
    post(b"12", "Upgrade: h2c", "Connection: Upgrade"),
    post(b"12", "X-Bad\x00: 1"),
    b"GET /a HTTP/1.1\r\nHost: here\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n12\r\n0\r\n\r\n",
    b"\r",
    b"\n",
    b"rubbish\r\n\r\n",
]


def outcome(parser: RequestParser) -> tuple[object, ...]:
    told = [[getattr(request, name) for name in Request.__slots__] for request in parser.ready]
    return told, parser.fault, parser.finished, parser.leftover, parser.begun, parser.in_body


@given(st.lists(st.sampled_from(MESSAGES), max_size=8), st.integers(0, 7), st.integers(1, 200))
def test_what_is_read_means_the_same_however_it_is_cut(messages, cut, at):
    """One parser gets each message in a read of its own (one of them in two), so that heads come again; the other one
    gets a byte at a time, which leaves nothing to recognise."""
    whole, bytewise = RequestParser(Limits()), RequestParser(Limits())
    for number, message in enumerate(messages):
        for piece in (message[:at], message[at:]) if number == cut else (message,):
            whole.feed(piece)
    for byte in b"".join(messages):
        bytewise.feed(bytes([byte]))
    if whole.fault is None:
        assert outcome(whole) == outcome(bytewise)
    else:
        assert bytewise.fault is not None
        assert outcome(whole)[0] == outcome(bytewise)[0]


def test_a_head_that_comes_again_is_recognised_and_its_body_is_its_own():
    parser = RequestParser(Limits())
    for body in (b"12", b"34", b"56"):
        parser.feed(post(body))
    first, second, third = parser.ready
    assert [first.body, second.body, third.body] == [b"12", b"34", b"56"]
    assert second.headers is first.headers is third.headers
    parser.feed(post(b"789"))
    assert parser.ready[-1].headers is not first.headers
    assert parser.ready[-1].body == b"789"


def test_a_long_head_is_not_kept_by_an_idle_connection():
    parser = RequestParser(Limits())
    for _ in range(2):
        parser.feed(post(b"12", "X-Long: " + "x" * 5_000))
    first, second = parser.ready
    assert first.headers == second.headers
    assert first.headers is not second.headers


def test_a_closed_parser_is_freed_without_a_garbage_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        parser = RequestParser(Limits())
        parser.feed(post(b"12"))
        parser.close()
        del parser
        assert [each for each in gc.get_objects() if isinstance(each, RequestParser)] == []
    finally:
        gc.enable()
