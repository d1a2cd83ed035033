"""Sends one webhook by HTTP: to checked addresses only, without redirects and proxies, within a time limit.

The host is resolved here, each address is checked, and the connection is made to a checked address: a name that
resolves to another address a moment later (DNS rebinding) has no effect. TLS and the Host header use the name.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final, TypeAlias, final

import httpcore
import trio
from msgspec import field

from sightline.domain.value import Value
from sightline.ports.clock import Clock
from sightline.webhooks.addresses import is_loopback, is_public

TIMEOUT_S: Final = 15.0
"""For one attempt: resolving, connecting, sending, and the response."""
RESPONSE_BYTES_MAX: Final = 65_536
"""A response of at most this length is read, so that its connection can be used again; others are cut off."""
ADDRESSES_TRIED_MAX: Final = 4
RESOLVERS: Final = 16
"""Threads that resolve names. A slow name server occupies these only."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host to IP addresses. Raises OSError."""


class AddressRefusedError(Exception):
    """The host resolves to an address that webhooks must not be sent to."""


class NameNotResolvedError(Exception):
    """The host has no address."""


@final
class SendOutcome(Value):
    """What the endpoint answered, or the kind of error."""

    status: int | None = None
    error: str | None = None
    retry_after_s: int | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether the answer was 2xx."""
        return self.status is not None and 200 <= self.status < 300


def system_resolver() -> Resolve:
    """A resolver that asks the operating system, in threads of its own."""
    threads = trio.CapacityLimiter(RESOLVERS)

    async def resolve(host: str, port: int) -> list[str]:
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await trio.to_thread.run_sync(ask, abandon_on_cancel=True, limiter=threads)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    return resolve


@final
class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to public addresses only. Raises AddressRefusedError and NameNotResolvedError."""

    def __init__(self, resolve: Resolve, network: httpcore.AsyncNetworkBackend, *, allows_loopback: bool) -> None:
        self._resolve = resolve
        self._network = network
        self._allows_loopback = allows_loopback

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the signature of httpcore
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve, check every address, and connect to the first that accepts."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise NameNotResolvedError(host) from error
        refused = [address for address in addresses if not self._is_allowed(address)]
        if refused:
            raise AddressRefusedError(f"{host} resolves to {refused[0]}")
        failure: Exception = NameNotResolvedError(host)
        for address in addresses[:ADDRESSES_TRIED_MAX]:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore.ConnectError as error:
                failure = error
        raise failure

    def _is_allowed(self, address: str) -> bool:
        return is_public(address) or (self._allows_loopback and is_loopback(address))

    async def connect_unix_socket(self, *_: object, **__: object) -> httpcore.AsyncNetworkStream:
        """Refuse."""
        raise AddressRefusedError("webhooks are not sent to Unix sockets")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await trio.sleep(seconds)


@final
class WebhookClientOptions(Value, kw_only=True):
    """How to send."""

    allows_loopback: bool = False
    """For development: also to this machine."""
    user_agent: str = "Sightline-Webhooks/1"
    timeout_s: float = TIMEOUT_S
    ssl_context: ssl.SSLContext = field(default_factory=httpcore.default_ssl_context)
    resolve: Resolve = field(default_factory=system_resolver)
    network: httpcore.AsyncNetworkBackend = field(default_factory=httpcore.TrioBackend)
    """Opens connections to checked addresses."""


@final
class WebhookClient:
    """Posts messages. Connections are kept for a short time and shared by the messages of one endpoint."""

    def __init__(self, clock: Clock, options: WebhookClientOptions | None = None) -> None:
        self._clock = clock
        self._options = options = options or WebhookClientOptions()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=options.ssl_context,
            # Without a maximum: a queue here would let a silent endpoint delay others. The caller limits its calls.
            max_connections=None,
            max_keepalive_connections=64,
            keepalive_expiry=10.0,
            network_backend=CheckedNetwork(options.resolve, options.network, allows_loopback=options.allows_loopback),
        )

    async def close(self) -> None:
        """Close the kept connections."""
        await self._pool.aclose()

    async def post(self, url: str, headers: dict[str, str], body: str | bytes) -> SendOutcome:
        """Send one message. Errors of the network and of the endpoint are outcomes, not exceptions."""
        sent = {"content-type": "application/json", "user-agent": self._options.user_agent} | headers
        content = body.encode() if isinstance(body, str) else body
        try:
            with trio.fail_after(self._options.timeout_s):
                async with self._pool.stream("POST", url, headers=list(sent.items()), content=content) as answer:
                    length = _header(answer, b"content-length")
                    if length.isdigit() and len(length) <= 9 and int(length) <= RESPONSE_BYTES_MAX:
                        await answer.aread()
                    return self._outcome(answer)
        except AddressRefusedError:
            return SendOutcome(error="address_refused")
        except NameNotResolvedError:
            return SendOutcome(error="name_not_resolved")
        except (trio.TooSlowError, httpcore.TimeoutException):
            return SendOutcome(error="timeout")
        except httpcore.ConnectError as error:
            is_tls = isinstance(error.__cause__ or error.__context__, ssl.SSLError | trio.BrokenResourceError)
            return SendOutcome(error="tls_failed" if is_tls else "connect_failed")
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol):
            return SendOutcome(error="connection_lost")

    def _outcome(self, answer: httpcore.Response) -> SendOutcome:
        status = answer.status
        if 200 <= status < 300:
            return SendOutcome(status=status)
        error = "redirect_refused" if 300 <= status < 400 else "bad_status"
        return SendOutcome(status, error, retry_after_s(_header(answer, b"retry-after"), self._clock.now_ms()))


def _header(answer: httpcore.Response, wanted: bytes) -> str:
    return next((value for name, value in answer.headers if name.lower() == wanted), b"").decode("latin-1").strip()


def retry_after_s(text: str, now_ms: int) -> int | None:
    """Seconds of a Retry-After header (RFC 9110, section 10.2.3), or None if it is absent or invalid."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return max(0, round((at - datetime.fromtimestamp(now_ms / 1_000, UTC)).total_seconds()))
