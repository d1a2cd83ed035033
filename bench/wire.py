"""A small HTTP/1.1 and WebSocket client on asyncio, fast enough that it does not limit the measured server."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from uuid import uuid4

PERCENTS = (50, 95, 99)
UNKNOWN_TRIES = 5
"""How often a call of the setup is tried while its outcome is unknown."""


def percentiles(times_s: list[float]) -> dict[str, float]:
    """Return p50, p95, p99 and the maximum in milliseconds."""
    ordered = sorted(times_s) or [0.0]
    found = {f"p{part}": ordered[min(len(ordered) - 1, len(ordered) * part // 100)] * 1000 for part in PERCENTS}
    return {name: round(value, 3) for name, value in (found | {"max": ordered[-1] * 1000}).items()}


def request(method: str, path: str, key: str = "", body: bytes = b"", extra: str = "") -> bytes:
    """Encode one request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{extra}"
    if key:
        head += f"Authorization: Bearer {key}\r\n"
    if body or method in {"POST", "PATCH"}:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class Tally:
    """Counts of responses and their latencies."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []
        self.lost = 0
        self.bodies: list[bytes] | None = None
        self.acknowledged: dict[str, list[int]] = {}


class Caller(asyncio.Protocol):
    """A keep-alive connection with one request at a time. `next_request` returns None at the end."""

    def __init__(self, tally: Tally, next_request: Callable[[], bytes | None], *, paced: bool = False) -> None:
        self.tally = tally
        self.next_request = next_request
        self.paced = paced
        self.buffer = b""
        self.needed = 0
        self.began = 0.0
        self.status = 0
        self.is_over = asyncio.get_running_loop().create_future()
        self.transport: Any = None
        self.is_waiting = False
        self.on_answer: Callable[[int, bytes], None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self.paced:
            self.send()

    def send(self) -> None:
        data = self.next_request()
        if data is None:
            self.finish()
            return
        self.is_waiting = True
        self.began = time.perf_counter()
        self.transport.write(data)

    def finish(self) -> None:
        if not self.is_over.done():
            self.is_over.set_result(None)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer = self.buffer + data if self.buffer else data
        if not self.needed:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self.status = int(buffer[9:12])
            head = buffer[:end].lower()
            place = head.find(b"\r\ncontent-length:")
            length = int(head[place + 17 :].split(b"\r\n", 1)[0]) if place >= 0 and self.status != 304 else 0
            self.needed = end + 4 + length
            self.body_from = end + 4
        if len(buffer) < self.needed:
            return
        self.tally.times.append(time.perf_counter() - self.began)
        self.tally.statuses[self.status] += 1
        if self.tally.bodies is not None:
            self.tally.bodies.append(buffer[self.body_from : self.needed])
        if self.on_answer is not None:
            self.on_answer(self.status, buffer[self.body_from : self.needed])
        self.buffer = buffer[self.needed :]
        self.needed = 0
        self.is_waiting = False
        if not self.paced:
            self.send()

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_waiting = False
        if not self.is_over.done():
            self.tally.lost += 1
            self.is_over.set_result(None)


class Streamer(asyncio.Protocol):
    """A WebSocket that keeps `window` messages in flight; each answer is one acknowledgement."""

    def __init__(self, tally: Tally, handshake: bytes, next_message: Callable[[], bytes | None], window: int) -> None:
        self.tally = tally
        self.handshake = handshake
        self.next_message = next_message
        self.window = window
        self.buffer = b""
        self.sent: list[float] = []
        self.acknowledged: list[int] | None = None
        self.is_open = False
        self.is_over = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.handshake)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.is_open:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            if b" 101 " not in self.buffer[:20]:
                raise ConnectionError(self.buffer.decode())
            self.buffer = self.buffer[end + 4 :]
            self.is_open = True
            self.fill()
        while (frame := self.take_frame()) is not None:
            if b'"ok":true' in frame:
                self.tally.statuses[200] += 1
                self.tally.times.append(time.perf_counter() - self.sent.pop(0))
                if self.acknowledged is not None:
                    self.acknowledged.append(json.loads(frame)["sequence"])
            elif b'"ok":false' in frame:
                self.tally.statuses[409] += 1
                self.sent.pop(0)
        self.fill()

    def take_frame(self) -> bytes | None:
        buffer = self.buffer
        if len(buffer) < 2:
            return None
        length, start = buffer[1] & 0x7F, 2
        if length == 126:
            if len(buffer) < 4:
                return None
            length, start = int.from_bytes(buffer[2:4], "big"), 4
        if len(buffer) < start + length:
            return None
        self.buffer = buffer[start + length :]
        return buffer[start : start + length]

    def fill(self) -> None:
        out = []
        now = time.perf_counter()
        while len(self.sent) < self.window:
            message = self.next_message()
            if message is None:
                if not self.sent:
                    self.finish()
                break
            # A mask of zeros is valid and leaves the payload unchanged.
            size = len(message)
            head = bytes((0x81, 0x80 | size)) if size < 126 else bytes((0x81, 0xFE)) + size.to_bytes(2, "big")
            out.append(head + b"\0\0\0\0" + message)
            self.sent.append(now)
        if out:
            self.transport.write(b"".join(out))

    def finish(self) -> None:
        if not self.is_over.done():
            self.is_over.set_result(None)
        self.transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.is_over.done():
            self.tally.lost += 1
            self.is_over.set_result(None)


class Client:
    """A client for the setup: one connection, calls that return JSON, a jar for one cookie."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.cookie = ""

    async def call(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        """Return the `data` of the answer.

        An unknown outcome (504) is repeated with the same Idempotency-Key.

        Raises:
            RuntimeError: For any status except 200, and for an outcome that is still unknown at the last try.
        """
        extra = f"Cookie: {self.cookie}\r\n" if self.cookie and not key else ""
        if method == "POST":
            extra += f"Idempotency-Key: {uuid4()}\r\n"
        content = b"" if body is None else json.dumps(body).encode()
        wanted, tries = request(method, f"/api/v1{path}", key, content, extra), 1
        status, answer = await self._exchange(wanted)
        while status == HTTPStatus.GATEWAY_TIMEOUT and tries < UNKNOWN_TRIES:
            tries += 1
            status, answer = await self._exchange(wanted)
        if status != HTTPStatus.OK:
            raise RuntimeError(f"{method} {path}: {status} {answer[:300].decode()}")
        return json.loads(answer)["data"]

    async def _exchange(self, wanted: bytes) -> tuple[int, bytes]:
        """Send one request and return the status and the body of its answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(wanted)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
        answer = await reader.readexactly(int(fields.get("content-length", "0")))
        if fields.get("connection", "").strip() == "close":
            self.close()
        for line in head.split("\r\n"):
            if line.lower().startswith("set-cookie:") and "svc_session=" in line:
                self.cookie = line.split(":", 1)[1].strip().split(";", 1)[0]
        return int(head[9:12]), answer

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
