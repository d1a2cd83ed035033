"""Which URLs and addresses webhooks may be sent to. Customers choose the URL, so it must not reach our own network."""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from sightline.domain.refusal import Code, Refusal

URL_LENGTH_MAX: Final = 2_048
_GLOBAL_UNICAST_V6: Final = ipaddress.IPv6Network("2000::/3")
# Inside 2000::/3: IETF assignments with Teredo, documentation, 6to4 (which names an IPv4 address), documentation.
_SPECIAL_V6: Final = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
# Not private for Python 3.11: IETF assignments, and the relays of 6to4.
_SPECIAL_V4: Final = tuple(map(ipaddress.IPv4Network, ("192.0.0.0/24", "192.88.99.0/24")))
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\.?", re.ASCII)


def is_public(address: str) -> bool:
    """Whether an IP address belongs to a host on the internet.

    False for private, shared (CGNAT), loopback, link-local (with cloud metadata), multicast and reserved addresses, and
    for IPv6 addresses that stand for an IPv4 address: v4-mapped, v4-compatible, NAT64, 6to4, Teredo.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        return ip.scope_id is None and ip in _GLOBAL_UNICAST_V6 and not any(ip in network for network in _SPECIAL_V6)
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _SPECIAL_V4)


def is_loopback(address: str) -> bool:
    """Whether an IP address is a loopback address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_url(url: str, *, allows_loopback: bool) -> Refusal | None:
    """Return why a URL cannot be an endpoint, or None. Names are not resolved: their addresses can change.

    Args:
        allows_loopback: For development: also addresses of this machine, and http to them.
    """
    if len(url) > URL_LENGTH_MAX or not url.isascii() or not url.isprintable() or " " in url:
        return _bad(f"url must have at most {URL_LENGTH_MAX} visible ASCII characters; write other hosts in punycode")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return _bad("url must be an absolute URL")
    is_local = allows_loopback and (host == "localhost" or is_loopback(host))
    if parts.scheme != "https" and not (is_local and parts.scheme == "http"):
        return _bad("url must begin with https://" + (", or http:// and this machine" if allows_loopback else ""))
    if parts.username is not None or parts.password is not None or parts.fragment:
        return _bad("url must have neither user name, password nor fragment")
    if port == 0:
        return _bad("url must not have port 0")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None if _HOST.fullmatch(host) else _bad("url must have a host name")
    if is_public(host) or (allows_loopback and is_loopback(host)):
        return None
    return _bad("url must not name a private address")


def _bad(message: str) -> Refusal:
    return Refusal(Code.INVALID_INPUT, "webhook:url", message)
