"""Who is at the other end, and the ASGI scope that tells it."""

from sightline.http.server.asgi import Scope
from sightline.http.server.parser import Request

MADE_OF_HEAD = "sightline.made_of_head"
"""ASGI extension: a dict for what the application makes of the head alone. The next request of the connection has the
same one if its head is the same, byte for byte."""


class Peer:
    """Who is at the other end, as the scope tells it."""

    __slots__ = ("client", "secure", "server", "trusted")

    def __init__(self, client: tuple[str, int], server: tuple[str, int], *, secure: bool, trusted: bool) -> None:
        self.client = client
        self.server = server
        self.secure = secure
        self.trusted = trusted


def make_scope(kind: str, request: Request, peer: Peer) -> Scope:
    """The scope of ASGI 3.0 for an HTTP/1.1 request."""
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
    """What a trusted proxy says of its caller: the last address it appended, never what the caller claims."""
    for name, value in request.headers:
        if name == b"x-forwarded-for":
            client = (value.rpartition(b",")[2].strip().decode("latin-1"), 0)
        elif name == b"x-forwarded-proto" and value in (b"http", b"https"):
            scheme = value.decode("ascii")
    return scheme, client
