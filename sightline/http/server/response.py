"""Encodes the head of a response and decides how its body is framed (RFC 9112, 6)."""

from http import HTTPStatus

from sightline.http.server.asgi import Headers

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
# Hop-by-hop headers, which the server sets itself.
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"proxy-connection"})


class ResponseHead:
    """Framing of one response. `length` is None until it is declared."""

    __slots__ = ("bodiless", "chunked", "close", "headers", "length", "status")

    def __init__(self, status: int, headers: Headers, *, method: str) -> None:
        self.status = status
        self.headers: Headers = []
        self.length: int | None = None
        self.close = False
        self.chunked = False
        self.bodiless = method == "HEAD" or status in (204, 304) or status < 200
        for raw_name, value in headers:
            name = raw_name.lower()
            if name == b"content-length":
                self.length = int(value)
                if status == 204:
                    continue
            elif name in _HOP_BY_HOP:
                if name == b"connection" and value.lower() == b"close":
                    self.close = True
                continue
            self.headers.append((name, value))

    def declare(self, length: int) -> None:
        """Declare the length of a complete body."""
        if self.length is None and self.status not in (204, 304) and self.status >= 200:
            self.length = length
            self.headers.append((b"content-length", b"%d" % length))

    def encode(self, *, date: bytes, version: str, keep_alive: bool) -> bytes:
        """Encode the status line and all headers.

        Raises:
            ValueError: If a header contains a line break (response splitting).
        """
        lines = [_STATUS_LINES.get(self.status) or b"HTTP/1.1 %d \r\n" % self.status]
        lines += [b"%b: %b\r\n" % pair for pair in self.headers]
        lines.append(date)
        if self.chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not keep_alive:
            lines.append(b"connection: close\r\n")
        elif version == "1.0":
            lines.append(b"connection: keep-alive\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            msg = "a response header holds a line break or NUL"
            raise ValueError(msg)
        return head + b"\r\n"


def chunk(body: bytes) -> bytes:
    """One chunk of the chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(body), body)
