"""The client's address, and the ASGI scope of a request."""

from sightline.http.server.asgi import Scope
from sightline.http.server.parser import Request

MADE_OF_HEAD = "sightline.made_of_head"
"""ASGI extension: a dict in which the application caches what it derives from the head. The next request of the
connection gets the same dict if its head is equal byte for byte."""


class Peer:
    """Address and scheme of the client."""

    __slots__ = ("client", "secure", "server", "trusted")

    def __init__(self, client: tuple[str, int], server: tuple[str, int], *, secure: bool, trusted: bool) -> None:
        self.client = client
        self.server = server
        self.secure = secure
        self.trusted = trusted


def make_scope(kind: str, request: Request, peer: Peer) -> Scope:
    """Build the ASGI 3.0 scope of an HTTP/1.1 request."""
    scheme = "https" if peer.secure else "http"
    client = peer.client
    if peer.trusted:
        scheme, client = _forwarded(request, scheme, client)
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


def _forwarded(request: Request, scheme: str, client: tuple[str, int]) -> tuple[str, tuple[str, int]]:
    """Return the address that a trusted proxy appended last. Earlier entries come from the client and are not used."""
    for name, value in request.headers:
        if name == b"x-forwarded-for":
            client = (value.rpartition(b",")[2].strip().decode("latin-1"), 0)
        elif name == b"x-forwarded-proto" and value in (b"http", b"https"):
            scheme = value.decode("ascii")
    return scheme, client
