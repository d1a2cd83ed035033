"""Who may speak to a listener at all: the Host header must name it, and it may ask for a bearer token.

A web page can resolve a domain of its own to the address of this server (DNS rebinding). The browser then takes
the server for part of that page's site, but still sends the page's domain in the Host header.
"""

import hmac
import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Self, final
from urllib.parse import urlsplit

from sightline.domain.refusal import Code
from sightline.domain.value import Value, hiding
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.headers import Headers
from sightline.http.pipeline.routes import AnyRoute, Route

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  compared with, not bound
ANY: Final = "*"
OPERATORS: Final = "/internal/"
"""Beginning of the paths of operators' calls."""
REMEMBERED_MAX: Final = 256


@final
class AllowedHosts:
    """The hosts that a Host header may name, whatever its port."""

    __slots__ = ("_is_address_allowed", "_is_any_allowed", "_names", "admits")

    def __init__(self, names: Iterable[str], *, is_address_allowed: bool = False) -> None:
        """Create the list.

        Args:
            names: Names and addresses without ports; `*` allows every host.
            is_address_allowed: Also allow every IP address. A page's own domain is never an address.
        """
        self._names = {name.lower() for name in names}
        self._is_any_allowed = ANY in self._names
        self._is_address_allowed = is_address_allowed
        # Callers send the same few hosts again and again.
        self.admits: Final = lru_cache(maxsize=REMEMBERED_MAX)(self._admits)

    @classmethod
    def of(cls, bound: str, public_url: str | None, added: Iterable[str]) -> Self:
        """The hosts of a listener: where it is bound, loopback, the public URL's host, and those of the settings.

        A listener that is bound to every address may be named by any of them.
        """
        names = {*LOOPBACK, bound, *added}
        if public_url is not None:
            names.add(urlsplit(public_url).hostname or "")
        return cls(names, is_address_allowed=bound in WILDCARDS)

    def _admits(self, host: str) -> bool:
        """Whether the Host header names this server."""
        if self._is_any_allowed:
            return True
        name = _without_port(host).lower().removesuffix(".")
        if name in self._names or name.endswith(".localhost"):
            return True
        return self._is_address_allowed and _is_address(name)


@final
class ListenerAccess(Value, kw_only=True):
    """The rules of one listener.

    A route that checks a credential of its own is exempt.

    Attributes:
        hosts: None: any Host header.
        token: The bearer token that every route asks for; None: no such token.
        operator_token: The bearer token of the operators' calls, below /internal/, that are not for probes.
    """

    hosts: AllowedHosts | None = None
    token: str | None = None
    operator_token: str | None = None

    __repr__ = hiding("token")

    def check(self, headers: Headers, route: AnyRoute) -> None:
        """Refuse a request that this listener does not serve.

        Raises:
            ApiError: 421 for a foreign host, 401 for a missing or wrong token.
        """
        if isinstance(route, Route) and route.has_own_credential:
            return
        if self.hosts is not None:
            host = headers.get("host")
            # Only HTTP/1.0 has requests without Host, and browsers do not speak it.
            if host is not None and not self.hosts.admits(host):
                raise ApiError(
                    Code.INVALID_INPUT,
                    "http:host",
                    "This server does not serve the host of the Host header; SIGHTLINE_ALLOWED_HOSTS can add it",
                    status=421,
                )
        token = self.token
        if token is None and isinstance(route, Route) and route.path.startswith(OPERATORS) and not route.is_for_probes:
            token = self.operator_token
        if token is not None:
            given = (headers.get("authorization") or "").encode()
            if not hmac.compare_digest(given, b"Bearer " + token.encode()):
                raise ApiError(
                    Code.NOT_AUTHENTICATED,
                    "internal:token",
                    "The listener's bearer token is missing or wrong; `sightline admin token` prints it where the "
                    "settings are those of the server",
                )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
