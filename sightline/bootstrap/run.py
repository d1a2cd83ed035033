"""The server as a process: lock, ports, signals, exit code.

Stop order: HTTP drains, the actors finish their accepted messages, then the core closes in reverse order of its start.
"""

import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, final

import structlog
import trio

from sightline.bootstrap.core import Core, open_core
from sightline.bootstrap.fencing import EXIT_FENCED
from sightline.bootstrap.listeners.own_tls import FOLDER, OwnTls, issue, own_address
from sightline.bootstrap.listeners.ports import Ports, reserve_ports
from sightline.bootstrap.listeners.tls import check_tls_files
from sightline.bootstrap.observability.traces import open_tracer
from sightline.bootstrap.start_errors import StartError, TakenOverError, check_setting, leaves_of, start_line
from sightline.config import Settings
from sightline.system.clock import SystemClock
from sightline.system.data_directory import (
    CHAIN_DATABASE,
    CHAIN_KEYS,
    CLUSTER,
    FRAME_ROOT,
    SECRETS,
    DataPart,
    check_parts,
    record_parts,
)
from sightline.system.ids import SystemIds
from sightline.system.lock import lock_directory
from sightline.system.logs import configure_logs
from sightline.system.secrets import load_secrets

OPEN_FILES: Final = 65_536

log = structlog.get_logger("sightline")


def run_server(settings: Settings) -> int:
    """Run a server until SIGTERM or SIGINT.

    Returns:
        The exit code: 0 after a stop, 1 when the server could not start or failed, 3 when another server took over.
        The reason of a failed start is one line on stderr; the stack is logged at debug level.
    """
    configure_logs(settings.log_level)
    run = _Run(settings)
    try:
        if sys.flags.optimize:
            raise StartError("Sightline does not run under python -O, which removes its assertions. Start without -O.")
        run.run()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # Catches everything: each failure becomes one line on stderr and an exit code.
        if any(isinstance(leaf, TakenOverError) for leaf in leaves_of(error)):
            log.critical("server_fenced", action="stopped", exit_code=EXIT_FENCED)
            return EXIT_FENCED
        if run.is_ready:
            log.critical("server_failed", exc_info=error)
        else:
            log.debug("start_failed", exc_info=error)
            sys.stderr.write(start_line(error, settings) + "\n")
        return 1
    return 0


@final
class _Run:
    """State of one server run."""

    def __init__(self, settings: Settings) -> None:
        self.is_ready = False
        self._after_ready: Callable[[], None] | None = None
        self._settings = settings
        self._stop = trio.Event()

    def run(self) -> None:
        with ExitStack() as stack:
            directory = self._settings.data_dir
            with check_setting(f"SIGHTLINE_DATA_DIR (--data-dir) {directory}"):
                directory = directory.resolve()
                stack.enter_context(lock_directory(directory))
            self._settings = self._settings.model_copy(update={"data_dir": directory})
            check_tls_files(self._settings)
            # Files that the server and its children create (logs, the chain's database) are readable by their account
            # only.
            os.umask(0o077)
            own_tls = self._issue_certificate() if self._settings.tls_auto else None
            ports = stack.enter_context(reserve_ports(self._settings))
            _raise_open_file_limit()
            check_parts(directory, kept_parts(self._settings))
            if own_tls is not None:
                url = f"https://{own_tls.address}:{ports.public}"
                ports = replace(ports, public_url=url)
                self._after_ready = partial(_tell_devices, self._settings.public_url or url, own_tls.fingerprint)
            trio.run(self._serve, ports)

    def _issue_certificate(self) -> OwnTls:
        """Issue the listener's certificate, and use it like files that the settings name."""
        directory = self._settings.data_dir
        with check_setting(f"SIGHTLINE_TLS_AUTO (--tls auto) with the authority in {directory / FOLDER}"):
            issued = issue(directory, SystemIds(), SystemClock().now_ms(), own_address(), socket.gethostname())
        files = {"tls_cert": issued.certificate, "tls_key": issued.key}
        self._settings = self._settings.model_copy(update=files)
        return issued

    async def _serve(self, ports: Ports) -> None:
        settings = self._settings
        public_url = settings.public_url or ports.public_url
        with check_setting(f"The secrets in {settings.secrets_path} (SIGHTLINE_DATA_DIR, SIGHTLINE_SECRETS_FILE)"):
            secrets = load_secrets(settings.secrets_path, SystemIds())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._await_signal, nursery.cancel_scope)
            # Half of the imports are not needed before the children are ready: import them while the children start.
            nursery.start_soon(trio.to_thread.run_sync, _import_listeners)
            async with open_tracer(settings) as tracer, open_core(settings, secrets, public_url, tracer) as core:
                serve_http = await trio.to_thread.run_sync(_import_listeners)
                await serve_http(core, ports, public_url, self._stop, self._note_ready)
            nursery.cancel_scope.cancel()

    def _note_ready(self) -> None:
        self.is_ready = True
        if self._after_ready is not None:
            self._after_ready()
        try:
            record_parts(self._settings.data_dir, kept_parts(self._settings))
        except OSError as error:
            log.warning("data_directory_parts_not_recorded", error=str(error))

    async def _await_signal(self, start: trio.CancelScope) -> None:
        """Stop on SIGTERM or SIGINT: drain if calls are accepted already, else cancel the start."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                log.info("stopping", signal=signal.Signals(number).name)
                self._stop.set()
                if not self.is_ready:
                    start.cancel()


ServeHttp: TypeAlias = Callable[[Core, Ports, str, trio.Event, Callable[[], None]], Awaitable[None]]


def _import_listeners() -> ServeHttp:
    from sightline.bootstrap.listen import serve_http

    return serve_http


def kept_parts(settings: Settings) -> list[DataPart]:
    """List the parts of the data directory that a server with these settings uses."""
    parts = []
    if settings.secrets_file is None:
        parts.append(SECRETS)
    if settings.database_url is None:
        parts.append(CLUSTER)
    if settings.chain_rpc_url is None:
        parts += [CHAIN_KEYS, CHAIN_DATABASE]
    if settings.frame_signing_key is None:
        parts.append(FRAME_ROOT)
    return parts


def _tell_devices(url: str, fingerprint: str) -> None:
    """Print how a phone on this network trusts the server: a code with the URL of the authority."""
    import segno

    sys.stderr.write(
        f"\nFor phones on this network: install the authority from {url}/ca.crt, then open {url}/\n"
        f"Compare its SHA-256 on the phone: {fingerprint}\n\n"
    )
    segno.make(f"{url}/ca.crt", error="m").terminal(out=sys.stderr, compact=True)
    sys.stderr.flush()


def _raise_open_file_limit() -> None:
    """Raise the soft limit of open files. Each connection takes a descriptor, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(OPEN_FILES, hard) if hard != resource.RLIM_INFINITY else OPEN_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
