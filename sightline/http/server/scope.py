"""The client's address, and the ASGI scope of a request."""

from sightline.http.server.asgi import Headers, Scope
from sightline.http.server.parser import Request
from sightline.http.server.proxies import TrustedProxies, forwarded_scheme

MADE_OF_HEAD = "sightline.made_of_head"
"""ASGI extension: a dict in which the application caches what it derives from the head. The next request of the
connection gets the same dict if its head is equal byte for byte."""


class Peer:
    """Address and scheme of the other end of a connection.

    `proxies` is set if that is a trusted proxy: its requests say who their clients are.
    """

    __slots__ = ("client", "proxies", "secure", "server")

    def __init__(
        self, client: tuple[str, int], server: tuple[str, int], *, secure: bool, proxies: TrustedProxies | None
    ) -> None:
        self.client = client
        self.server = server
        self.secure = secure
        self.proxies = proxies

    def caller(self, headers: Headers, scheme: str) -> tuple[str, tuple[str, int]]:
        """Scheme (http or https) and address of the client of a request."""
        if self.proxies is None:
            return scheme, self.client
        return forwarded_scheme(headers, scheme), self.proxies.caller(headers, self.client)


def make_scope(kind: str, request: Request, peer: Peer) -> Scope:
    """Build the ASGI 3.0 scope of an HTTP/1.1 request."""
    scheme, client = peer.caller(request.headers, "https" if peer.secure else "http")
    if kind == "websocket":
        scheme = "wss" if scheme == "https" else "ws"
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": request.version,
        "method": request.method,
        "scheme": scheme,
        "path": request.path,
        "raw_path": request.raw_path,
        "query_string": request.query,
        "root_path": "",
        "headers": request.headers,
        "client": client,
        "server": peer.server,
        "state": {},
        "extensions": {MADE_OF_HEAD: request.made_of_head},
    }
