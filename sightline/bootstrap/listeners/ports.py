"""Bind the addresses of both listeners before anything else starts."""

import errno
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import final

from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.listeners.own_tls import own_address
from sightline.config import Settings
from sightline.domain.value import Value


@final
class Ports(Value, kw_only=True):
    """The bound sockets of both listeners."""

    public: socket.socket
    internal: socket.socket
    public_url: str
    """URL of the public listener itself, as if SIGHTLINE_PUBLIC_URL were not set."""
    shared_from: Path | None = None
    """Directory of this process, if others beside it accept connections on the public socket too."""

    @property
    def public_port(self) -> int:
        """Port of the public listener."""
        return int(self.public.getsockname()[1])

    @property
    def internal_port(self) -> int:
        """Port of the internal listener."""
        return int(self.internal.getsockname()[1])

    @property
    def internal_url(self) -> str:
        """URL of the internal listener as other servers reach it; one bound to every address gives this machine's."""
        host = str(self.internal.getsockname()[0])
        if ipaddress.ip_address(host).is_unspecified:
            host = own_address() or "127.0.0.1"
        return f"http://[{host}]:{self.internal_port}" if ":" in host else f"http://{host}:{self.internal_port}"


@contextmanager
def reserve_ports(settings: Settings) -> Iterator[Ports]:
    """Bind both addresses, without accepting connections; close them when the block ends.

    A port that is in use is reported before the database starts, and no other process can take a free port that was
    chosen.

    Raises:
        StartError: An address cannot be bound. The message names each one.
    """
    with ExitStack() as stack:
        bound: list[socket.socket] = []
        errors: list[OSError] = []
        said: list[str] = []
        wanted = (
            (settings.host, settings.port, ""),
            (settings.internal_host, settings.internal_port or 0, "INTERNAL_"),
        )
        for host, port, setting in wanted:
            try:
                bound.append(stack.enter_context(_reserve(host, port)))
            except OSError as error:
                errors.append(error)
                said.append(str(listen_error(error, host, port, setting=setting)))
        if errors:
            raise StartError(" ".join(said)) from errors[0]
        public, internal = bound
        port = int(public.getsockname()[1])
        scheme = "https" if settings.tls_cert is not None else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield Ports(public=public, internal=internal, public_url=f"{scheme}://{host}:{port}")


def reserve_internal(settings: Settings, port: int) -> socket.socket:
    """Bind the address of the internal listener, without accepting connections.

    Raises:
        StartError: The address cannot be bound.
    """
    try:
        return _reserve(settings.internal_host, port)
    except OSError as error:
        raise listen_error(error, settings.internal_host, port, setting="INTERNAL_") from error


def _reserve(host: str, port: int) -> socket.socket:
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, port))
    except OSError:
        reserved.close()
        raise
    return reserved


def listen_error(error: OSError, host: str, port: int, *, setting: str) -> StartError:
    """Explain why an address cannot be bound.

    Args:
        setting: Prefix of HOST and PORT in the names of the listener's settings: "" or "INTERNAL_".
    """
    port_setting = f"SIGHTLINE_{setting}PORT (--{setting.lower().replace('_', '-')}port)"
    if error.errno == errno.EADDRINUSE:
        return StartError(f"Port {port} on {host} is already in use. Set {port_setting}, or stop the other server.")
    if error.errno == errno.EACCES:
        return StartError(f"Port {port} needs privileges that this account lacks. Set {port_setting} to 1024 or more.")
    return StartError(f"Cannot listen on {host}: {error.strerror or error}. Set SIGHTLINE_{setting}HOST.")
