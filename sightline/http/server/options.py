"""What the server is told: where to listen, what it tolerates, and how a fault is worded."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sightline.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """One certificate for one listener. TLS 1.2 is the floor (RFC 9325)."""

    cert_file: str
    key_file: str
    key_password: str | None = None
    alpn: tuple[str, ...] = ("h2", "http/1.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """One address to accept on.

    `trusted_proxies` are peer addresses whose X-Forwarded-For and X-Forwarded-Proto are believed. `h2c` allows
    HTTP/2 with prior knowledge on a cleartext listener; without it the preface is refused as a malformed request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tls: TlsOptions | None = None
    h2c: bool = False
    trusted_proxies: frozenset[str] = frozenset()
    backlog: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what a peer may take. Every one of them answers or closes; none of them waits for ever."""

    connections_max: int = 20_000
    connections_per_ip_max: int = 1_000
    # A proxy or a load generator on this host speaks for many.
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


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that arose inside the server, before or beside the application.

    `label` is stable (`http:headerTooLarge`); `request_id` is what the caller sent, unchecked, or None.
    """

    status: int
    label: str
    request_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class RenderedFault:
    """The answer for a fault; framing headers are added by the server."""

    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Everything one `serve` call needs beside the application."""

    listeners: tuple[ListenerOptions, ...]
    render_fault: Callable[[Fault], RenderedFault]
    clock: Clock
    limits: Limits = field(default_factory=Limits)
    drain_s: float = 10.0
    # How often deadlines are looked at; also their precision.
    sweep_s: float = 0.25
    startup_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Bound:
    """An address that is being listened on."""

    host: str
    port: int
    secure: bool

    @property
    def url(self) -> str:
        """The address as a base URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"
