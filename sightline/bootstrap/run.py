"""The server as a process: signals, lock, memory, and the order of going down.

Down: HTTP drains, actors finish what they took, then the core in reverse.
"""

import gc
import resource
import signal
import socket
import sys
from functools import partial
from typing import Final

import structlog
import trio

from sightline.bootstrap.core import Core, open_core
from sightline.bootstrap.edge import (
    listener_options,
    make_identity,
    make_internal_app,
    make_public_app,
    read_gauges,
    server_options,
)
from sightline.chain.service import ChainRefusedError
from sightline.chain.signer import KeyRefusedError
from sightline.config import Settings
from sightline.domain.errors import SightlineError, UnavailableError
from sightline.http.metrics import Metrics
from sightline.http.server import ASGIApp, Bound, ListenerOptions, serve
from sightline.identity.sign_in import SignIn
from sightline.ports.chain import ChainChangedError
from sightline.storage.migrate import SchemaError
from sightline.system.children import ChildFailedError
from sightline.system.ids import SystemIds
from sightline.system.lock import DataDirectoryInUseError, lock_directory
from sightline.system.logs import configure_logs
from sightline.system.secrets import load_secrets
from sightline.system.whereabouts import write_whereabouts

OPEN_FILES: Final = 65_536
GC_THRESHOLDS: Final = (50_000, 50, 50)
NONCES_EVERY_S: Final = 600.0

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
        async with open_core(settings, secrets, public_url) as core:
            await _serve_http(core, listener_options(settings, port), public_url, stop)
        nursery.cancel_scope.cancel()


async def _serve_http(core: Core, listener: ListenerOptions, public_url: str, stop: trio.Event) -> None:
    settings, metrics = core.settings, Metrics(partial(read_gauges, core))
    identity = make_identity(core, public_url)
    internal_listener = ListenerOptions(host=settings.internal_host, port=settings.internal_port)
    internal_app, public_app = make_internal_app(core, identity, metrics), make_public_app(core, identity, metrics)
    async with trio.open_nursery() as background:
        background.start_soon(identity.authenticator.run)
        background.start_soon(keep_nonces, identity.sign_in)
        async with trio.open_nursery() as listeners:
            (internal,) = await listeners.start(_listen, core, internal_app, internal_listener, stop)
            await listeners.start(_listen, core, public_app, listener, stop)
            settle_memory()
            write_whereabouts(settings.data_dir, url=public_url, internal_url=internal.url)
            log.info("ready", url=public_url, internal_url=internal.url, data_dir=str(settings.data_dir))
            sys.stdout.write(f"ready {public_url}\n")
            sys.stdout.flush()
        background.cancel_scope.cancel()


async def keep_nonces(sign_in: SignIn) -> None:
    """Drop nonces that nobody can use any more."""
    while True:
        try:
            await sign_in.drop_expired()
        except SightlineError as error:
            log.warning("nonces_not_dropped", error=str(error))
        await trio.sleep(NONCES_EVERY_S)


async def _listen(
    core: Core,
    app: ASGIApp,
    listener: ListenerOptions,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> None:
    await serve(app, server_options(core, listener), shutdown=stop, task_status=task_status)


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


def settle_memory() -> None:
    """After start: what is loaded stays, so the collector need not look at it again; long pauses become short."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def reserve_port(host: str, port: int) -> socket.socket:
    """Bind the address without listening, so that its port is known, and ours, before anything else comes up.

    Raises:
        OSError: The address is taken.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((host, port))
    return reserved
