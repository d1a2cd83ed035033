"""The server as a process: signals, lock, memory, and the order of going down.

Down: HTTP drains, actors finish what they took, then the core in reverse.
"""

import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

from sightline.bootstrap.core import Core, open_core
from sightline.chain.service import ChainRefusedError
from sightline.chain.signer import KeyRefusedError
from sightline.config import Settings
from sightline.domain.errors import UnavailableError
from sightline.ports.chain import ChainChangedError
from sightline.storage.database.migrate import SchemaError
from sightline.system.children import ChildFailedError
from sightline.system.ids import SystemIds
from sightline.system.lock import DataDirectoryInUseError, lock_directory
from sightline.system.logs import configure_logs
from sightline.system.secrets import load_secrets

OPEN_FILES: Final = 65_536

REASONS_NOT_TO_START: Final = (
    ChainChangedError,
    ChainRefusedError,
    ChildFailedError,
    DataDirectoryInUseError,
    KeyRefusedError,
    SchemaError,
    UnavailableError,
)
"""What an operator can put right: said in a line, without a stack."""

log = structlog.get_logger("sightline")


def run_server(settings: Settings) -> int:
    """Run a server until SIGTERM or SIGINT; returns the exit code."""
    if sys.flags.optimize:
        sys.stderr.write("Sightline does not run under python -O: its invariants are asserts\n")
        return 2
    configure_logs(settings.log_level)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    settings = settings.model_copy(update={"data_dir": settings.data_dir.resolve()})
    try:
        with lock_directory(settings.data_dir), reserve_port(settings.host, settings.port) as reserved:
            prepare_process()
            trio.run(_serve, settings, reserved)
    except OSError as error:
        sys.stderr.write(f"cannot serve on {settings.host}:{settings.port}: {error}\n")
        return 1
    except Exception as error:
        reasons = [leaf for leaf in leaves_of(error) if isinstance(leaf, REASONS_NOT_TO_START)]
        if not reasons:
            raise
        for reason in reasons:
            sys.stderr.write(f"cannot serve: {reason}\n")
        return 1
    return 0


def leaves_of(error: BaseException) -> list[BaseException]:
    """The errors inside nested groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves_of(inner)]
    return [error]


async def _serve(settings: Settings, reserved: socket.socket) -> None:
    port = reserved.getsockname()[1]
    scheme = "https" if settings.tls_cert is not None else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    public_url = settings.public_url or f"{scheme}://{host}:{port}"
    secrets = load_secrets(settings.data_dir, SystemIds())
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_await_signal, stop)
        # Half of what there is to import is not needed until the children are up, which takes them as long.
        nursery.start_soon(trio.to_thread.run_sync, _import_listeners)
        async with open_core(settings, secrets, public_url) as core:
            serve_http = await trio.to_thread.run_sync(_import_listeners)
            await serve_http(core, port, public_url, stop)
        nursery.cancel_scope.cancel()


def _import_listeners() -> Callable[[Core, int, str, trio.Event], Awaitable[None]]:
    from sightline.bootstrap.listen import serve_http

    return serve_http


async def _await_signal(stop: trio.Event) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("stopping", signal=signal.Signals(number).name)
            stop.set()


def prepare_process() -> None:
    """Let many connections in."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(OPEN_FILES, hard) if hard != resource.RLIM_INFINITY else OPEN_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def reserve_port(host: str, port: int) -> socket.socket:
    """Bind the address without listening, so that its port is known, and ours, before anything else comes up.

    Raises:
        OSError: The address is taken.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((host, port))
    return reserved
