"""Check the origin of unsafe requests with a cookie: browsers send the cookie whichever page makes the request.

SameSite=Lax blocks other sites but not sibling subdomains, and calls without a body need no CORS preflight.
"""

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from sightline.domain.access import Principal, WalletPrincipal
from sightline.domain.refusal import Refusal
from sightline.identity.authenticate import CredentialHeaders
from sightline.identity.refusals import FOREIGN_ORIGIN

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OWN_SITE: Final = frozenset({"same-origin", "none"})


def check_origin(
    principal: Principal,
    method: str,
    headers: CredentialHeaders,
    own_origins: Collection[str],
    *,
    is_websocket: bool = False,
) -> Refusal | None:
    """Refuse an unsafe request that carries a cookie and was made by a page of another origin.

    A request with neither Origin nor Sec-Fetch-Site does not come from a browser and is allowed. A WebSocket
    handshake is a GET but counts as unsafe.

    Args:
        own_origins: Like `https://host:port`; compared without case, default ports ignored.
    """
    is_safe = method.upper() in _SAFE_METHODS and not is_websocket
    if is_safe or not isinstance(principal, WalletPrincipal):
        return None
    return foreign_origin(headers, own_origins)


def foreign_origin(headers: CredentialHeaders, own_origins: Collection[str]) -> Refusal | None:
    """Refuse a request that, according to the browser, was made by a page of another origin."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        own = {normalized_origin(each) for each in own_origins}
        return None if normalized_origin(origin) in own - {None} else FOREIGN_ORIGIN
    return None if site is None or site.lower() in _OWN_SITE else FOREIGN_ORIGIN


def normalized_origin(origin: str) -> str | None:
    """Return the origin in lower case without a default port; None if it is not an http(s) origin (`null` included)."""
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
