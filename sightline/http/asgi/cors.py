"""Cross-origin calls from browsers: pages of listed origins may call /api/v1, /rpc, /mcp and OAuth.

Cookies stay same-origin: without Access-Control-Allow-Credentials a browser does not show a page the answer to a
request with a cookie, and a listed origin is not an own origin for unsafe requests with a cookie (docs/adr/0123, 0248).

Source: WHATWG Fetch, section "CORS protocol".
"""

from collections.abc import Collection
from typing import Any, Final, final

from sightline.http.server import ASGIApp, Receive, Scope, Send
from sightline.http.server import Headers as RawHeaders

PREFIXES: Final = ("/api/v1/", "/oauth/", "/.well-known/")
PATHS: Final = ("/rpc", "/mcp")
_VARY: Final = (b"vary", b"origin")
_REQUEST_HEADERS: Final = (
    b"authorization",
    b"content-type",
    b"idempotency-key",
    b"if-none-match",
    b"last-event-id",
    b"mcp-method",
    b"mcp-name",
    b"mcp-protocol-version",
    b"mcp-session-id",
    b"payment-signature",
    b"x-request-id",
    b"x-svc-consistency-token",
)
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PATCH, DELETE"),
    (b"access-control-allow-headers", b", ".join(_REQUEST_HEADERS)),
    (b"access-control-max-age", b"7200"),
    (b"content-length", b"0"),
)
_EXPOSE: Final = (b"access-control-expose-headers", b"*")
"""`*` exposes every header, but only to requests without credentials; no others are allowed here."""


@final
class Cors:
    """Answers preflights, and adds the headers that let a page of a listed origin read the answer."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        """`origins`: as browsers write them, for example `https://app.example.com`."""
        self._app = app
        self._origins = frozenset(origin.encode("ascii") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or not (scope["path"].startswith(PREFIXES) or scope["path"] in PATHS):
            await self._app(scope, receive, send)
            return
        sent = dict(scope["headers"])
        origin: bytes | None = sent.get(b"origin")
        added: RawHeaders = [_VARY]  # also without Origin: a cache must not give that answer to a page
        if origin is not None and origin in self._origins:
            added.append((b"access-control-allow-origin", origin))
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in sent:
                await _answer_preflight([*added, *_PREFLIGHT], receive, send)
                return
            added.append(_EXPOSE)

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = message | {"headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


async def _answer_preflight(headers: RawHeaders, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
