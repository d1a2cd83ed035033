"""Options of the server: listeners, limits, and how an error is rendered."""

import socket
from collections.abc import Callable

from msgspec import field

from sightline.domain.value import Value
from sightline.http.server.passing import ConnectionPassing
from sightline.http.server.proxies import TrustedProxies
from sightline.ports.clock import Clock


class TlsOptions(Value, kw_only=True):
    """Certificate of one listener. TLS 1.2 is the lowest version (RFC 9325)."""

    cert_file: str
    key_file: str
    key_password: str | None = None
    alpn: tuple[str, ...] = ("h2", "http/1.1")


class ListenerOptions(Value, kw_only=True):
    """One address to accept on.

    X-Forwarded-For and X-Forwarded-Proto are used only from the networks in `trusted_proxies`. `h2c` allows
    HTTP/2 with prior knowledge on a cleartext listener; without it the preface is refused as a malformed request.

    `sock` is a bound socket, used in place of host and port. `accept_batch` is how many connections are accepted before
    others get the processor: few if several processes accept on one socket, so that they share the connections.
    `passing` gives connections to other processes; not with TLS.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tls: TlsOptions | None = None
    h2c: bool = False
    trusted_proxies: TrustedProxies = field(default_factory=TrustedProxies)
    backlog: int = 1024
    sock: socket.socket | None = None
    accept_batch: int = 64
    passing: ConnectionPassing | None = None


class Limits(Value, kw_only=True):
    """Limits per connection and per client. Exceeding one gets an error response or closes the connection."""

    connections_max: int = 20_000
    connections_per_ip_max: int = 1_000
    # A proxy or a load generator on this host sends the requests of many clients.
    per_ip_exempt: frozenset[str] = frozenset({"127.0.0.1", "::1"})
    target_bytes_max: int = 8 * 1024
    header_count_max: int = 100
    header_bytes_max: int = 32 * 1024
    body_bytes_max: int = 64 * 1024
    head_s: float = 10.0
    body_s: float = 30.0
    idle_s: float = 75.0
    write_s: float = 30.0
    handshake_s: float = 10.0
    linger_s: float = 1.0
    websocket_message_bytes_max: int = 64 * 1024
    websocket_ping_s: float = 20.0
    h2_streams_max: int = 100
    h2_requests_max: int = 10_000
    # Streams of a connection that may be reset at once, and per second after that.
    h2_resets_max: int = 200
    h2_resets_per_s: float = 10.0
    # Bytes of a connection that are neither header fields nor content, at once, and per second after that.
    h2_overhead_bytes_max: int = 64 * 1024
    h2_overhead_bytes_per_s: float = 1024.0
    # Bytes of responses that the peer of a connection has not read. More is queued only below the sum of all.
    h2_unread_bytes_max: int = 1 << 20
    h2_unread_bytes_all_max: int = 64 << 20


class Fault(Value):
    """An error that the server answers itself, without the application.

    `label` is stable (`http:headerTooLarge`); `request_id` is the client's x-request-id, not validated, or None.
    """

    status: int
    label: str
    request_id: bytes | None = None


class RenderedFault(Value):
    """The response for a fault; the server adds the framing headers."""

    headers: list[tuple[bytes, bytes]]
    body: bytes


class ServerOptions(Value, kw_only=True):
    """Options of one `serve` call."""

    listeners: tuple[ListenerOptions, ...]
    render_fault: Callable[[Fault], RenderedFault]
    clock: Clock
    limits: Limits = field(default_factory=Limits)
    drain_s: float = 10.0
    # Interval at which deadlines are checked, and therefore their precision.
    sweep_s: float = 0.25
    startup_s: float = 30.0


class Bound(Value):
    """A bound listener."""

    host: str
    port: int
    secure: bool

    @property
    def url(self) -> str:
        """The address as a base URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"
