"""The origin check: a cookie is sent by the browser whoever wrote the page, so unsafe cookie requests must
be our own pages'.

SameSite=Lax keeps other sites out but not sibling subdomains, and calls without a body need no CORS
preflight.
"""

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from sightline.domain.access import Principal, WalletPrincipal
from sightline.domain.refusal import Refusal
from sightline.identity.authenticate import Headers
from sightline.identity.refusals import FOREIGN_ORIGIN

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OWN_SITE: Final = frozenset({"same-origin", "none"})


def check_origin(
    principal: Principal, method: str, headers: Headers, own_origins: Collection[str], *, is_websocket: bool = False
) -> Refusal | None:
    """Refuse an unsafe request that carries a cookie and comes from a page of another origin.

    A request with neither Origin nor Sec-Fetch-Site is no browser's and is allowed. A WebSocket opens with
    GET but is unsafe.

    Args:
        own_origins: Like `https://host:port`, compared without regard to case and default ports.
    """
    is_safe = method.upper() in _SAFE_METHODS and not is_websocket
    if is_safe or not isinstance(principal, WalletPrincipal):
        return None
    return foreign_origin(headers, own_origins)


def foreign_origin(headers: Headers, own_origins: Collection[str]) -> Refusal | None:
    """Refuse a request that a browser says was made by a page of another origin."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        own = {normalized_origin(each) for each in own_origins}
        return None if normalized_origin(origin) in own - {None} else FOREIGN_ORIGIN
    return None if site is None or site.lower() in _OWN_SITE else FOREIGN_ORIGIN


def normalized_origin(origin: str) -> str | None:
    """Lower case, without a default port; None for what is no http(s) origin (`null` too)."""
    try:
        parts = urlsplit(origin.strip().lower())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path or parts.query or parts.username:
        return None
    default = 443 if parts.scheme == "https" else 80
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" if port in {None, default} else f"{parts.scheme}://{host}:{port}"
