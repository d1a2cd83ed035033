"""Frames of HTTP/2 as bytes (RFC 9113, 4.1), also those that no library would send."""

import hpack
import trio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in pairs))


def request(method: str, path: str) -> list[tuple[str, str]]:
    """The pseudo-header fields of a request."""
    return [(":method", method), (":path", path), (":scheme", "https"), (":authority", "localhost")]


def header_block(method: str, path: str, *more: tuple[str, str]) -> bytes:
    """An HPACK block that may be repeated: it adds nothing to the dynamic table."""
    pairs = [*request(method, path), *more]
    return bytes(hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*pair) for pair in pairs]))


class FrameReader:
    """Reads frames of a stream."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def read(self) -> tuple[int, int, bytes]:
        """Return kind, stream and payload of the next frame; kind GOAWAY if the connection ends without one."""
        head = await self._take(9)
        if len(head) < 9:
            return GOAWAY, 0, b""
        return head[3], int.from_bytes(head[5:9], "big"), await self._take(int.from_bytes(head[:3], "big"))

    async def _take(self, count: int) -> bytes:
        while len(self._rest) < count:
            try:
                piece = await self._stream.receive_some(65_536)
            except trio.BrokenResourceError:
                piece = b""
            if not piece:
                break
            self._rest += bytes(piece)
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken
