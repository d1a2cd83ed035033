"""WHIP and WHEP answers that need no peer: CORS, OPTIONS, GET, wrong methods and content types, problem bodies. Pure.

Source: RFC 9725 (WHIP), draft-ietf-wish-whep (WHEP), RFC 9457 (problem bodies), the Fetch standard (CORS).
Accepts known deviations of real clients; docs/ops/video.md lists them.
"""

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Final, final

import orjson

from sightline.domain.value import Value, hiding
from sightline.ports.video import SignalReply, SignalRequest
from sightline.video.options import IceServer

SDP_TYPE: Final = "application/sdp"
TRICKLE_TYPE: Final = "application/trickle-ice-sdpfrag"
METHODS: Final = "OPTIONS, GET, HEAD, POST, PATCH, DELETE"
IDLE_RETRY_S: Final = 2
_UFRAG: Final = re.compile(r"[a-zA-Z0-9+/]{4,256}")
_PASSWORD: Final = re.compile(r"[a-zA-Z0-9+/]{22,256}")
CORS: Final = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", METHODS),
    ("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, If-None-Match, ETag"),
    (
        "Access-Control-Expose-Headers",
        "Location, ETag, Link, Accept-Post, Accept-Patch, Retry-After, Access-Control-Allow-Methods",
    ),
    ("Access-Control-Max-Age", "86400"),
)


def problem(status: int, title: str, detail: str = "", headers: Sequence[tuple[str, str]] = ()) -> SignalReply:
    """A refusal with a problem body."""
    body = {"type": "about:blank", "title": title, "status": status, **({"detail": detail} if detail else {})}
    return SignalReply(
        status=status,
        headers=(*CORS, ("Content-Type", "application/problem+json"), *headers),
        body=orjson.dumps(body),
    )


def ice_links(servers: Sequence[IceServer]) -> list[tuple[str, str]]:
    """A Link header per STUN or TURN server."""
    links: list[tuple[str, str]] = []
    for server in servers:
        value = f'<{server.url}>; rel="ice-server"'
        if server.username:
            value += f'; username="{server.username}"; credential="{server.credential}"; credential-type="password"'
        links.append(("Link", value))
    return links


def with_turn_credentials(
    servers: Sequence[IceServer], *, secret: str, ttl_s: int, now_ms: int, user: str
) -> tuple[IceServer, ...]:
    """Give TURN servers without credentials short-lived ones (draft-uberti-behave-turn-rest-00, section 2.2).

    Args:
        secret: Shared with the TURN servers; empty: servers stay as they are.
        user: Named in the username, for the TURN server's log.
    """
    if not secret:
        return tuple(servers)
    username = f"{now_ms // 1000 + ttl_s}:{user}"
    credential = b64encode(hmac.digest(secret.encode(), username.encode(), hashlib.sha1)).decode()
    return tuple(
        IceServer(url=server.url, username=username, credential=credential)
        if server.url.startswith(("turn:", "turns:")) and not server.username
        else server
        for server in servers
    )


def content_type(request: SignalRequest) -> str:
    """The media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def options_reply(request: SignalRequest, servers: Sequence[IceServer]) -> SignalReply:
    """The answer to OPTIONS, with the ICE servers unless it is a CORS preflight (RFC 9725, section 4.6)."""
    headers = [*CORS, ("Accept-Post", SDP_TYPE), ("Accept-Patch", TRICKLE_TYPE)]
    if "access-control-request-method" not in request.headers:
        headers += ice_links(servers)
    return SignalReply(status=200, headers=tuple(headers))


def static_reply(request: SignalRequest, servers: Sequence[IceServer]) -> SignalReply | None:
    """The answer if it depends on no peer; else None."""
    method = request.method.upper()
    if method == "OPTIONS":
        return options_reply(request, servers)
    if method == "GET":
        return SignalReply(status=204, headers=CORS)
    if method == "HEAD":
        return SignalReply(status=200, headers=(*CORS, ("Content-Type", SDP_TYPE)))
    if method == "POST" and request.resource is None:
        if content_type(request) != SDP_TYPE:
            return problem(415, "Unsupported media type", f"send {SDP_TYPE}", [("Accept-Post", SDP_TYPE)])
        return None
    if method == "PATCH" and request.resource is not None:
        if content_type(request) != TRICKLE_TYPE:
            return problem(415, "Unsupported media type", f"send {TRICKLE_TYPE}", [("Accept-Patch", TRICKLE_TYPE)])
        return None
    if method == "DELETE" and request.resource is not None:
        return None
    return problem(405, "Method not allowed", headers=[("Allow", METHODS)])


def created(answer: bytes, *, location: str, etag: str, servers: Sequence[IceServer]) -> SignalReply:
    """201 with the SDP answer, the session's Location and the ICE servers."""
    headers = (
        *CORS,
        ("Content-Type", SDP_TYPE),
        ("Location", location),
        ("ETag", f'"{etag}"'),
        ("Accept-Patch", TRICKLE_TYPE),
        ("Cache-Control", "no-store"),
        *ice_links(servers),
    )
    return SignalReply(status=201, headers=headers, body=answer)


def idle() -> SignalReply:
    """409 with Retry-After: no publisher is connected (draft-ietf-wish-whep, section 4.4)."""
    return problem(409, "No publisher is connected yet", headers=[("Retry-After", str(IDLE_RETRY_S))])


@final
class Fragment(Value, kw_only=True):
    """What an SDP fragment says of the bundled transport (RFC 8840)."""

    ufrag: str | None = None
    password: str | None = None
    candidates: tuple[str, ...] = ()
    """candidate lines without the attribute name."""

    __repr__ = hiding("password")

    @property
    def has_credentials(self) -> bool:
        """True if ice-ufrag and ice-pwd are there and well-formed (RFC 8839, section 5.4)."""
        return bool(_UFRAG.fullmatch(self.ufrag or "") and _PASSWORD.fullmatch(self.password or ""))


def read_fragment(body: bytes) -> Fragment:
    """Read an SDP fragment. Of several m-lines the first credentials count, because media is bundled.

    End-of-candidates is ignored: after only mDNS candidates it would end a connection that peer-reflexive candidates
    can still establish.
    """
    first: dict[str, str] = {}
    candidates: list[str] = []
    for raw in body.decode(errors="replace").splitlines():
        name, _, value = raw.strip().removeprefix("a=").partition(":")
        if name == "candidate":
            candidates.append(value.strip())
        else:
            first.setdefault(name, value.strip())
    return Fragment(ufrag=first.get("ice-ufrag"), password=first.get("ice-pwd"), candidates=tuple(candidates))


def precondition(request: SignalRequest, etag: str, *, required: bool) -> SignalReply | None:
    """The refusal of a PATCH for its If-Match; None if it may go on (RFC 9725, section 4.3.1).

    Args:
        required: False to accept a request without If-Match, as many clients trickle.
    """
    wanted = request.headers.get("if-match", "").strip()
    if not wanted and required:
        return problem(428, "If-Match is required", "send If-Match: *, or the ETag of the newest answer")
    if wanted not in ("", "*", '"*"', f'"{etag}"'):
        return problem(412, "Another ICE session", "If-Match does not name the current one")
    return None


def restarted(fragment: bytes, *, etag: str) -> SignalReply:
    """200 with our side of restarted ICE (RFC 9725, section 4.3.3)."""
    headers = (*CORS, ("Content-Type", TRICKLE_TYPE), ("ETag", f'"{etag}"'), ("Cache-Control", "no-store"))
    return SignalReply(status=200, headers=headers, body=fragment)
