"""HTTP/2 connections that cost the server more than the client: floods of small frames, responses that are not read."""

from typing import Any

import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes

from tests.http.server.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    FrameReader,
    frame,
    header_block,
    settings,
)
from tests.http.server.h2_client import H2Client

BODY_BYTES = 100_000
GET, POST = header_block("GET", "/"), header_block("POST", "/")


async def app(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    body = message["body"] or bytes(BODY_BYTES)
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


async def frames_until(reader: FrameReader, kind: int) -> list[tuple[int, int, bytes]]:
    """Read frames up to the first of a kind, which is the last of the list."""
    found = [await reader.read()]
    while found[-1][0] != kind:
        assert found[-1][0] != GOAWAY or kind == GOAWAY, found
        found.append(await reader.read())
    return found


@pytest.mark.parametrize(
    "piece",
    [
        frame(SETTINGS, 0, 0, b""),
        frame(PING, 0, 0, bytes(8)),
        frame(PING, 1, 0, bytes(8)),
        frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
        frame(PRIORITY, 0, 3, b"\0\0\0\0\x10"),
        frame(DATA, 0, 1, b""),
        frame(DATA, 8, 1, b"\xc8" + bytes(200)),
        frame(0xFA, 0, 0, bytes(20)),
    ],
    ids=["settings", "ping", "ping ack", "window update", "priority", "empty data", "padding", "unknown"],
)
async def test_frames_without_content_end_their_connection(running: Any, piece: bytes) -> None:
    limits = {"h2_overhead_bytes_max": 10_000, "h2_overhead_bytes_per_s": 0.001}
    async with running(app, h2c=True, limits=limits) as server, server.client() as client:
        await client.send(PREFACE + settings() + frame(HEADERS, END_HEADERS, 1, POST))
        await client.send(piece * (12_000 // len(piece)))
        *_, (_, _, said) = await frames_until(FrameReader(client.stream), GOAWAY)
        assert int.from_bytes(said[4:8], "big") == ErrorCodes.ENHANCE_YOUR_CALM


async def test_requests_and_uploads_of_a_connection_are_no_overhead(running: Any) -> None:
    limits = {"h2_overhead_bytes_max": 20_000, "h2_overhead_bytes_per_s": 0.001}
    async with running(app, h2c=True, limits=limits) as server, server.client() as client:
        h2_client = H2Client(client.stream)
        for size in (1, 50_000) * 30:
            answered, body = await h2_client.ask("/x", b"a" * size)
            assert (answered[":status"], len(body)) == ("200", size)


async def test_a_response_that_is_not_read_is_reset_and_the_connection_serves_others(running: Any) -> None:
    async with running(app, h2c=True, limits={"write_s": 0.4}) as server, server.client() as client:
        await client.send(PREFACE + settings((INITIAL_WINDOW_SIZE, 0)) + frame(HEADERS, 5, 1, GET))
        reader = FrameReader(client.stream)
        *_, (_, stream, _) = await frames_until(reader, RST_STREAM)
        assert stream == 1
        await client.send(settings((INITIAL_WINDOW_SIZE, 65_535)) + frame(HEADERS, 5, 3, GET))
        *_, (_, stream, _) = await frames_until(reader, DATA)
        assert stream == 3


async def test_a_slow_reader_that_makes_progress_gets_its_whole_response(
    running: Any, mock_clock: trio.testing.MockClock
) -> None:
    async with running(app, h2c=True, limits={"write_s": 0.4}) as server, server.client() as client:
        await client.send(PREFACE + settings((INITIAL_WINDOW_SIZE, 0)) + frame(HEADERS, 5, 1, GET))
        reader, got, piece = FrameReader(client.stream), 0, 10_000
        await frames_until(reader, HEADERS)
        while got < BODY_BYTES:
            update = frame(WINDOW_UPDATE, 0, 1, piece.to_bytes(4, "big"))
            await client.send(update + frame(WINDOW_UPDATE, 0, 0, piece.to_bytes(4, "big")))
            want = got + piece
            while got < want:
                *_, (_, _, data) = await frames_until(reader, DATA)
                got += len(data)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.15)
            await trio.testing.wait_all_tasks_blocked()
        assert got == BODY_BYTES


async def test_a_connection_holds_one_large_response_when_others_hold_many(running: Any) -> None:
    limits = {"h2_unread_bytes_max": BODY_BYTES, "h2_unread_bytes_all_max": 3 * BODY_BYTES}
    open_streams = b"".join(frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * each, GET) for each in range(6))
    async with running(app, h2c=True, limits=limits) as server, server.client() as first, server.client() as second:
        await first.send(PREFACE + settings((INITIAL_WINDOW_SIZE, 0)) + open_streams)
        reader = FrameReader(first.stream)
        reset = {(await frames_until(reader, RST_STREAM))[-1][1] for _ in range(3)}
        assert len(reset) == 3
        answered, body = await H2Client(second.stream).ask("/x")
        assert (answered[":status"], len(body)) == ("200", BODY_BYTES)


async def test_content_after_an_early_response_does_not_end_the_connection(running: Any) -> None:
    async with running(app, h2c=True, limits={"body_bytes_max": 1_000}) as server, server.client() as client:
        await client.send(PREFACE + settings() + frame(HEADERS, END_HEADERS, 1, POST))
        await client.send(frame(DATA, 0, 1, bytes(1_001)))
        reader = FrameReader(client.stream)
        await frames_until(reader, DATA)
        await client.send(frame(DATA, 0, 1, bytes(1_000)) + frame(HEADERS, END_STREAM | END_HEADERS, 3, GET))
        found = await frames_until(reader, HEADERS)
        assert found[-1][1] == 3


async def test_what_a_client_does_not_read_stays_with_the_application(running: Any) -> None:
    taken, piece, pieces = 0, bytes(16_384), 12

    async def in_pieces(scope: Any, receive: Any, send: Any) -> None:
        nonlocal taken
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            taken += 1
        await send({"type": "http.response.body", "body": b""})

    async with running(in_pieces, h2c=True) as server, server.client() as client:
        await client.send(PREFACE + settings((INITIAL_WINDOW_SIZE, 0)) + frame(HEADERS, 5, 1, GET))
        reader = FrameReader(client.stream)
        await frames_until(reader, HEADERS)
        for _ in range(3):  # each makes the server look for what it may send
            update = frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1") + settings((INITIAL_WINDOW_SIZE, 0))
            await client.send(update)
            assert sum(len(data) for kind, _, data in await frames_until(reader, DATA) if kind == DATA) == 1
            await trio.testing.wait_all_tasks_blocked()
        assert taken == 2
        await client.send(
            settings((INITIAL_WINDOW_SIZE, 2**20)) + frame(WINDOW_UPDATE, 0, 0, (2**20).to_bytes(4, "big"))
        )
        got = 3
        while got < pieces * len(piece):
            got += len((await frames_until(reader, DATA))[-1][2])
    assert taken == pieces
