"""The URL of a database, as libpq and asyncpg accept it: one host, or several of which one accepts writes."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

SCHEMES: Final = ("postgresql", "postgres")
SESSION_ATTRIBUTES: Final = "target_session_attrs"
WRITABLE: Final = ("read-write", "primary")
"""Values of `target_session_attrs` that name the host that accepts writes."""


def check_database_url(url: str) -> None:
    """Refuse a URL with which Sightline could reach a host that accepts no writes.

    Raises:
        ValueError: The message says what to change. It does not repeat the URL, which may hold a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError("must begin with postgresql://")
    hosts = urls_of_hosts(url)
    wanted = _query(parts).get(SESSION_ATTRIBUTES)
    if len(hosts) > 1 and wanted not in WRITABLE:
        raise ValueError(f"with several hosts it needs ?{SESSION_ATTRIBUTES}=read-write")
    if wanted not in (None, "any", *WRITABLE):
        raise ValueError(f"{SESSION_ATTRIBUTES} must be read-write: every connection has to accept writes")


def urls_of_hosts(url: str) -> tuple[str, ...]:
    """Return one URL for each host that a URL names, in the same order; everything else stays.

    Raises:
        ValueError: A port is not a number from 1 to 65535, or ports and hosts differ in number.
    """
    parts = urlsplit(url)
    login, at, named = parts.netloc.rpartition("@")
    if named:
        hosts = named.split(",")
        for host in hosts:
            port = host.rpartition("]")[2].partition(":")[2]
            _check_port(port)
        return tuple(_join(parts, netloc=f"{login}{at}{host}") for host in hosts)
    query = _query(parts)
    hosts, ports = query.get("host", "").split(","), query.get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    if len(ports) != len(hosts):
        raise ValueError("it names more or fewer ports than hosts")
    for port in ports:
        _check_port(port)
    if len(hosts) == 1:
        return (url,)
    return tuple(
        _join(parts, query=query | {"host": host} | ({"port": port} if port else {}))
        for host, port in zip(hosts, ports, strict=True)
    )


def host_of(url: str) -> str:
    """Return the host of a URL with one host, and its port where the URL names one; without login and password."""
    parts = urlsplit(url)
    query = _query(parts)
    port = query.get("port")
    return parts.netloc.rpartition("@")[2] or query.get("host", "the default host") + (f":{port}" if port else "")


def without_password(url: str) -> tuple[str, str | None]:
    """Split a URL into one without a password, and the password."""
    parts = urlsplit(url)
    query = _query(parts)
    password = query.pop("password", None)
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, quoted = login.partition(":")
    if colon:
        password = unquote(quoted)
    return _join(parts, netloc=f"{user}{at}{hosts}", query=query), password


def _check_port(port: str) -> None:
    if port and not (port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError("a port is not a number from 1 to 65535")


def _query(parts: SplitResult) -> dict[str, str]:
    return dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))


def _join(parts: SplitResult, *, netloc: str | None = None, query: Mapping[str, str] | None = None) -> str:
    """Like `parts.geturl()`, which leaves out the // that libpq needs if there is no host."""
    text = parts.query if query is None else urlencode(query, safe="/", quote_via=quote)
    return f"{parts.scheme}://{parts.netloc if netloc is None else netloc}{parts.path}{'?' if text else ''}{text}"
