"""Checks of addresses in settings. Errors say what is expected; they do not repeat the value, which may be secret."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

HOST: Final = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)


def check_http_url(url: str) -> str:
    """Return the URL if it is an http or https URL of a host.

    Raises:
        ValueError: It is none, or names an impossible port.
    """
    if not url.isascii() or any(letter.isspace() for letter in url):
        raise ValueError("a URL has no spaces and no letters outside of ASCII")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write http://HOST or https://HOST, with a port if it is not the usual one")
    check_host(parts.hostname)
    if parts.port == 0:  # of an impossible port it raises a ValueError
        raise ValueError("port 0 cannot be reached")
    return url


def check_base_url(url: str) -> str:
    """Return an http or https URL of scheme and authority only, without a slash at its end.

    Raises:
        ValueError: As `check_http_url`, or it has more parts.
    """
    parts = urlsplit(check_http_url(url))
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError("write scheme, host and port only, as in https://video.example.com")
    return url.removesuffix("/")


def check_host(host: str) -> str:
    """Return the host if it is a name or an IP address.

    Raises:
        ValueError: It is neither.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not HOST.fullmatch(host) or host.replace(".", "").isdigit():
            raise ValueError("write a host name or an IP address, without scheme and port") from None
    return host


def check_host_port(text: str) -> str:
    """Return the text if it is HOST:PORT.

    Raises:
        ValueError: It has no port, or names no host.
    """
    parts = urlsplit(f"//{text}")
    if parts.netloc != text or parts.username is not None or not parts.hostname or not parts.port:
        raise ValueError("write HOST:PORT, without a scheme")
    check_host(parts.hostname)
    return text


def check_ip_address(address: str) -> str:
    """Return the address if it is an IP address.

    Raises:
        ValueError: It is none.
    """
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ValueError("write IP addresses of this machine") from None
    return address


def check_advertised(address: str) -> str:
    """Return the address if it is a host name, or an IP address to which others can send.

    Raises:
        ValueError: It is neither.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return check_host(address)
    if found.is_unspecified or found.is_multicast:
        raise ValueError("write addresses at which others reach this machine")
    return address


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read addresses and networks, such as 10.0.0.2, 172.16.0.0/12 or fd00::/8.

    Raises:
        ValueError: A text is neither.
    """
    return tuple(map(_network, texts))


def check_port_range(first: int, last: int) -> None:
    """Accept 0 and 0, for any free port, or a first port that is not above the last.

    Raises:
        ValueError: The range is empty.
    """
    if (first == 0) != (last == 0):
        raise ValueError("set both ends of the range, or neither")
    if first > last:
        raise ValueError(f"the range {first} to {last} is empty")


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is neither an address nor a network ({error}): write 10.0.0.2 or 10.0.0.0/8"
        ) from None
