"""Reverse proxies that are trusted to say who their clients are."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias, final

from sightline.http.server.asgi import Headers

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

REMEMBERED_MAX: Final = 1_024
ENTRIES_MAX: Final = 32
"""Entries of X-Forwarded-For that are looked at, from the right. A chain of proxies is shorter."""


@final
class TrustedProxies:
    """The networks of the proxies in front of a listener."""

    __slots__ = ("_caller_of", "_networks", "trusts")

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        self._networks = tuple(networks)
        # A connection asks once, each of its requests asks for the same header again.
        self.trusts: Final = lru_cache(maxsize=REMEMBERED_MAX)(self._trusts)
        self._caller_of = lru_cache(maxsize=REMEMBERED_MAX)(self._read)

    def _trusts(self, host: str) -> bool:
        """Whether the address belongs to a proxy."""
        address = _address(host)
        return address is not None and self._holds(address)

    def caller(self, headers: Headers, client: tuple[str, int]) -> tuple[str, int]:
        """The client of a request that a trusted proxy has sent.

        It is the right-most address of X-Forwarded-For that is not a proxy's own: each proxy appends the address of
        its client, so what stands left of that was written by the client itself.
        """
        values = [value for name, value in headers if name == b"x-forwarded-for"]
        found = self._caller_of(b",".join(values)) if values else None
        return client if found is None else (found, 0)

    def _read(self, value: bytes) -> str | None:
        found: str | None = None
        for entry in reversed(value.rsplit(b",", ENTRIES_MAX)[-ENTRIES_MAX:]):
            address = _address(_without_port(entry.decode("latin-1").strip()))
            if address is None:  # not written by a proxy that appends addresses
                return found
            found = str(address)
            if not self._holds(address):
                return found
        return found

    def _holds(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def forwarded_scheme(headers: Headers, scheme: str) -> str:
    """The scheme of X-Forwarded-Proto, which the nearest proxy has set."""
    for name, value in headers:
        if name == b"x-forwarded-proto" and value in (b"http", b"https"):
            scheme = value.decode("ascii")
    return scheme


def _address(text: str) -> Address | None:
    """Read an address; an IPv4 address that IPv6 carries becomes IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _without_port(entry: str) -> str:
    """Some proxies append `address:port`, with brackets around IPv6."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry
