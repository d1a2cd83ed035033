"""Parses HTTP/1.1 bytes into complete requests with llhttp, without I/O (RFC 9112).

llhttp in its strict mode refuses bare LF, obs-fold, conflicting or repeated framing headers, bad tokens and control
characters. This module adds what llhttp does not check: sizes and counts, Host, versions, transfer codings
other than chunked, CONNECT, and the Upgrade header, which makes llhttp ignore the body's framing.

A request is returned only when it is complete: bodies are small, and every framing error is answered before the
application runs.

Clients repeat the same head on one connection. A head that equals the previous one byte for byte is not parsed again.
"""

import re
from collections import deque
from typing import Any
from urllib.parse import unquote

import httptools

from sightline.http.server.asgi import Headers
from sightline.http.server.options import Fault, Limits

# Bytes on the wire allowed per byte of body: a chunk of one byte takes six.
_CHUNK_OVERHEAD = 8
# One read may hold the end of a message and the start of the next, so this limit allows one more read.
READ_BYTES = 32 * 1024

_METHOD_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} ")
_HOST = re.compile(rb"[A-Za-z0-9.\-_~%!$&'()*+,;=:\[\]]*\Z")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)(.*)\Z", re.DOTALL)
_SINGLE = frozenset({b"host", b"content-length", b"transfer-encoding", b"expect"})
_UNUSUAL = frozenset({b"transfer-encoding", b"expect"})
_KNOWN_BYTES_MAX = 4 * 1024
"""Longest head that is remembered, in bytes; bounds the memory of an idle connection."""


class Request:
    """A complete request."""

    __slots__ = (
        "body",
        "headers",
        "keep_alive",
        "made_of_head",
        "method",
        "path",
        "query",
        "raw_path",
        "request_id",
        "version",
        "websocket",
    )

    def __init__(self) -> None:
        self.method = "GET"
        self.path = "/"
        self.raw_path = b"/"
        self.query = b""
        self.version = "1.1"
        self.headers: Headers = []
        self.body = b""
        self.keep_alive = True
        self.websocket = False
        self.request_id: bytes | None = None
        self.made_of_head: dict[str, Any] = {}
        """What the application made of the head alone; kept for as long as the same head comes."""

    def again(self, body: bytes) -> "Request":
        """Return the same request with another body. Both share the headers, which are not modified any more."""
        request = Request.__new__(Request)
        request.method, request.version = self.method, self.version
        request.path, request.raw_path, request.query = self.path, self.raw_path, self.query
        request.headers, request.request_id, request.made_of_head = self.headers, self.request_id, self.made_of_head
        request.body, request.keep_alive, request.websocket = body, True, False
        return request


class _FaultError(Exception):
    def __init__(self, status: int, label: str) -> None:
        super().__init__(label)
        self.status = status
        self.label = label


class RequestParser:
    """Feeds bytes to llhttp and collects the requests.

    `ready` holds complete requests in order. After `fault` is set, or once `finished`, further input is ignored:
    requests already in `ready` remain valid. `leftover` holds the bytes after a WebSocket handshake.
    """

    __slots__ = (
        "_begun_in_read",
        "_body",
        "_body_bytes",
        "_current",
        "_head_bytes",
        "_in_body",
        "_known",
        "_known_bytes",
        "_known_head",
        "_limits",
        "_parser",
        "_raw_bytes",
        "_reparse",
        "_single",
        "_url",
        "begun",
        "continue_due",
        "fault",
        "finished",
        "leftover",
        "ready",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self.ready: deque[Request] = deque()
        self.fault: Fault | None = None
        self.finished = False
        self.leftover = b""
        self.continue_due = False
        self.begun = False
        self._begun_in_read = 0
        self._known: Request | None = None
        """The last request, if the next one may be like it."""
        self._known_head = b""
        self._known_bytes = 0
        self._reset()

    def _reset(self) -> None:
        self._current = Request()
        self._url = b""
        self._single: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._raw_bytes = 0
        self._in_body = False
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._reparse = False

    @property
    def in_body(self) -> bool:
        """Whether the head of the current request is complete and its body is not."""
        return self._in_body

    @property
    def request_id(self) -> bytes | None:
        """The x-request-id of the request that is being read, or None if it was not read yet."""
        return self._current.request_id

    def close(self) -> None:
        """Free llhttp's parser. It refers back to this object: without this, both wait for a garbage collection."""
        del self._parser

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Never raises: a malformed request sets `fault`."""
        known = self._known
        if known is not None and len(data) == self._known_bytes and data.startswith(self._known_head):
            self.ready.append(known.again(data[len(self._known_head) :]))
            return
        is_fresh = not self.begun
        self._known = None
        self._feed_all(data)
        if is_fresh:
            self._learn(data)

    def _learn(self, data: bytes) -> None:
        """Remember the head if one read returned exactly one complete plain request."""
        if self._begun_in_read != 1 or self.begun or self.finished or self.fault is not None:
            return
        request = self._current
        plain = not (self._single.keys() & _UNUSUAL) and not any(name == b"upgrade" for name, _ in request.headers)
        head_bytes = data.find(b"\r\n\r\n") + 4
        if plain and head_bytes <= _KNOWN_BYTES_MAX and head_bytes + len(request.body) == len(data):
            self._known, self._known_head, self._known_bytes = request, data[:head_bytes], len(data)

    def _feed_all(self, data: bytes) -> None:
        while data and self.fault is None and not self.finished:
            data = self._feed_once(data)

    def _feed_once(self, data: bytes) -> bytes:
        self._begun_in_read = 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = bytes(data[upgrade.args[0] :])
            if self._reparse:
                return self._restart(rest)
            self.leftover = rest
            self.finished = True
            return b""
        except httptools.HttpParserError as error:
            if not self.finished:
                self._refuse(error, data)
            return b""
        if self.begun:
            self._raw_bytes += len(data)
            self._check_raw_bytes()
        return b""

    def _refuse(self, error: httptools.HttpParserError, data: bytes) -> None:
        cause = error.__context__
        if isinstance(cause, _FaultError):
            self._fail(cause.status, cause.label)
        elif (
            isinstance(error, httptools.HttpParserInvalidMethodError)
            and self._begun_in_read == 1
            and _METHOD_TOKEN.match(data)
        ):
            self._fail(405, "http:method")
        elif isinstance(error, httptools.HttpParserInvalidURLError):
            self._fail(400, "http:target")
        else:
            self._fail(400, "http:malformed")

    def _fail(self, status: int, label: str) -> None:
        self.fault = Fault(status, label, self._current.request_id)

    def _check_raw_bytes(self) -> None:
        limits = self._limits
        bound = limits.header_bytes_max + limits.target_bytes_max + 2 * READ_BYTES
        if not self._in_body:
            if self._raw_bytes > bound:
                self._fail(431, "http:headerTooLarge")
        elif self._raw_bytes > bound + _CHUNK_OVERHEAD * limits.body_bytes_max:
            self._fail(413, "http:bodyTooLarge")

    def _restart(self, rest: bytes) -> bytes:
        """Parse the same request again without its Upgrade header (RFC 9110, 7.8)."""
        request = self._current
        lines = [f"{request.method} ".encode(), self._url, f" HTTP/{request.version}\r\n".encode()]
        lines += [b"%b: %b\r\n" % pair for pair in request.headers if pair[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._reset()
        return b"".join([*lines, b"\r\n", rest])

    # Called by llhttp. An exception ends the parse; `_refuse` then reads the cause.

    def on_message_begin(self) -> None:
        self._reset()
        self.begun = True
        self._begun_in_read += 1

    def on_url(self, piece: bytes) -> None:
        self._url += piece
        if len(self._url) > self._limits.target_bytes_max:
            raise _FaultError(414, "http:targetTooLong")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._limits.header_bytes_max:
            raise _FaultError(431, "http:headerTooLarge")
        if self._in_body:
            return  # a trailer field: allowed and limited, but not used
        headers = self._current.headers
        if len(headers) >= self._limits.header_count_max:
            raise _FaultError(431, "http:tooManyHeaders")
        name = name.lower()
        value = value.strip(b" \t")
        headers.append((name, value))
        if name in _SINGLE:
            if name in self._single:
                raise _FaultError(400, "http:duplicateHeader")
            self._single[name] = value
        elif name == b"x-request-id":
            self._current.request_id = value

    def on_headers_complete(self) -> None:
        request = self._current
        parser = self._parser
        request.method = parser.get_method().decode("ascii")
        request.version = parser.get_http_version()
        request.keep_alive = parser.should_keep_alive()
        if request.version not in ("1.1", "1.0"):
            raise _FaultError(400, "http:version")
        if request.method == "CONNECT":
            raise _FaultError(405, "http:method")
        self._check_framing()
        self._set_target()
        if parser.should_upgrade():
            self._decide_upgrade()
        self._in_body = True

    def _check_framing(self) -> None:
        single = self._single
        request = self._current
        host = single.get(b"host")
        if host is None:
            if request.version == "1.1":
                raise _FaultError(400, "http:host")
        elif not _HOST.match(host):
            raise _FaultError(400, "http:host")
        coding = single.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or request.version == "1.0"):
            raise _FaultError(400, "http:transferEncoding")
        length = single.get(b"content-length")
        if length is not None and int(length) > self._limits.body_bytes_max:
            raise _FaultError(413, "http:bodyTooLarge")
        expect = single.get(b"expect")
        if expect is not None and request.version == "1.1":
            if expect.lower() != b"100-continue":
                raise _FaultError(417, "http:expect")
            self.continue_due = coding is not None or length not in (None, b"0")

    def _set_target(self) -> None:
        request = self._current
        target = self._url
        if not target.startswith(b"/"):
            absolute = _ABSOLUTE.match(target)
            if absolute is None:
                raise _FaultError(400, "http:target")
            authority, target = absolute.groups()
            if not authority or not _HOST.match(authority):
                raise _FaultError(400, "http:target")
            # RFC 9112, 3.2.2: the authority of an absolute target wins over Host.
            request.headers[:] = [pair for pair in request.headers if pair[0] != b"host"]
            request.headers.append((b"host", authority))
            if not target.startswith(b"/"):
                target = b"/" + target
        target, _, _ = target.partition(b"#")
        raw_path, _, request.query = target.partition(b"?")
        request.raw_path = raw_path
        text = raw_path.decode("ascii", "replace")
        request.path = unquote(text) if "%" in text else text

    def _decide_upgrade(self) -> None:
        request = self._current
        offered = [value for name, value in request.headers if name == b"upgrade"]
        if request.method != "GET" or not offered or offered[0].lower() != b"websocket":
            self._reparse = True
        elif b"transfer-encoding" in self._single or self._single.get(b"content-length", b"0") != b"0":
            raise _FaultError(400, "websocket:body")
        else:
            request.websocket = True

    def on_body(self, piece: bytes) -> None:
        self._body_bytes += len(piece)
        if self._body_bytes > self._limits.body_bytes_max:
            raise _FaultError(413, "http:bodyTooLarge")
        self._body.append(piece)

    def on_message_complete(self) -> None:
        if self._reparse:
            return
        request = self._current
        pieces = self._body
        if pieces:
            request.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._in_body = False
        self.begun = False
        self.continue_due = False
        self._raw_bytes = 0
        self.ready.append(request)
        if not request.keep_alive:
            self.finished = True
