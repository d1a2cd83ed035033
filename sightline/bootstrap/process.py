"""What each server process does: prepare its data directory and sockets, serve until SIGTERM, and choose its exit code.

Stop order: HTTP drains, the actors finish their accepted messages, then the core closes in reverse order of its start.
"""

import io
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias, final

import structlog
import trio

from sightline.bootstrap.children import Children, open_children
from sightline.bootstrap.failures.errors import StartError, TakenOverError, check_setting, leaves_of
from sightline.bootstrap.importing import importing
from sightline.bootstrap.listeners.own_tls import FOLDER, OwnTls, issue, own_address
from sightline.bootstrap.listeners.ports import Ports, reserve_ports
from sightline.bootstrap.listeners.tls import check_tls_files
from sightline.bootstrap.membership.bus import require_protected_nats
from sightline.bootstrap.options.frame_signing import require_signing
from sightline.bootstrap.server_run import RunOptions
from sightline.config import Settings
from sightline.domain.value import Value, replace
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
    require_own_account,
    was_used,
)
from sightline.system.ids import SystemIds
from sightline.system.lock import lock_directory
from sightline.system.secrets import Secrets, load_secrets
from sightline.video.worker_template import WorkerTemplate, open_template

OPEN_FILES: Final = 65_536
EXIT_FENCED: Final = 3
"""Exit code after another server has taken over. The server may be started again: it waits, or joins the others."""
FIRST_START: Final = (
    "A new service begins in this directory. If one has used it before, its volume is not mounted: stop, and mount it."
)

log = structlog.get_logger("sightline")


@final
class Prepared(Value, kw_only=True):
    """A locked data directory, bound sockets and secrets."""

    settings: Settings
    """With an absolute data directory, and with the files of the certificate that was issued."""
    secrets: Secrets
    ports: Ports
    own_tls: OwnTls | None

    @property
    def public_url(self) -> str:
        """URL under which callers reach the server."""
        return self.settings.public_url or self.ports.public_url

    def note_ready(self) -> None:
        """Tell devices how to trust the server, and record the parts of the data directory."""
        if self.own_tls is not None:
            sys.stderr.write(devices_text(self.public_url, self.own_tls))
            sys.stderr.flush()
        try:
            record_parts(self.settings.data_dir, kept_parts(self.settings))
        except OSError as error:
            log.warning("data_directory_parts_not_recorded", error=str(error))


@contextmanager
def prepare(settings: Settings) -> Iterator[Prepared]:
    """Lock the data directory, bind both sockets and read the secrets; release them when the block ends.

    Raises:
        DataDirectoryInUseError, OtherAccountError, PartMissingError, StartError: The server cannot start.
    """
    with ExitStack() as stack:
        directory = settings.data_dir
        with check_setting(f"SIGHTLINE_DATA_DIR (--data-dir) {directory}"):
            directory = directory.resolve()
            require_own_account(directory)
            stack.enter_context(lock_directory(directory))
        settings = settings.model_copy(update={"data_dir": directory})
        check_tls_files(settings)
        require_signing(settings)
        require_protected_nats(settings)
        restrict_new_files()
        own_tls = _issue_certificate(settings) if settings.tls_auto else None
        if own_tls is not None:
            settings = settings.model_copy(update={"tls_cert": own_tls.certificate, "tls_key": own_tls.key})
        ports = stack.enter_context(reserve_ports(settings))
        if own_tls is not None:
            ports = replace(ports, public_url=f"https://{own_tls.address}:{ports.public_port}")
        raise_open_file_limit()
        check_parts(directory, kept_parts(settings))
        with check_setting(f"The secrets in {settings.secrets_path} (SIGHTLINE_DATA_DIR, SIGHTLINE_SECRETS_FILE)"):
            require_kept_secrets(settings)
            is_first_start = not settings.secrets_path.exists()
            secrets = load_secrets(settings.secrets_path, SystemIds())
        if is_first_start:
            log.info("service_begins", data_dir=str(directory), advice=FIRST_START)
        if readers := others_may_read(settings.secrets_path):
            advice = f"chmod 600 {settings.secrets_path}"
            log.warning("secrets_readable_by_others", path=str(settings.secrets_path), mode=readers, advice=advice)
        yield Prepared(settings=settings, secrets=secrets, ports=ports, own_tls=own_tls)


def require_kept_secrets(settings: Settings) -> None:
    """Require that the secrets of a data directory that was used exist: new ones would end every API key and sign-in.

    Raises:
        StartError: They do not, because SIGHTLINE_SECRETS_FILE is mistyped or a volume is not mounted.
    """
    if settings.secrets_file is not None and not settings.secrets_file.exists() and was_used(settings.data_dir):
        raise StartError(
            f"{settings.secrets_file} (SIGHTLINE_SECRETS_FILE) does not exist, and {settings.data_dir} has been used "
            "with secrets, which every API key and sign-in needs. Correct the path, or restore the file."
        )


def others_may_read(path: Path) -> str | None:
    """Return the mode of a file that other accounts may use, in octal; None if only its owner may."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"{mode:04o}" if mode & 0o077 else None


def restrict_new_files() -> None:
    """Let files that this process and its children create be readable by their account only."""
    os.umask(0o077)


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files. Each connection takes a descriptor, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(OPEN_FILES, hard) if hard != resource.RLIM_INFINITY else OPEN_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@final
class ServerRun:
    """One run of a server in this process, from its start until SIGTERM."""

    def __init__(self, run: RunOptions) -> None:
        self.is_ready = False
        self._run = run
        self._stop = trio.Event()

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve until SIGTERM or SIGINT.

        Args:
            on_ready: Called with the URL of the internal listener when calls are accepted.
        """

        def note_ready(internal_url: str) -> None:
            self.is_ready = True
            on_ready(internal_url)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_signal, self._stop, nursery.cancel_scope, lambda: self.is_ready)
            is_worker = self._run.worker_directory is not None
            async with open_children(self._run.settings, is_worker=is_worker) as children, open_template() as media:
                serve = await trio.to_thread.run_sync(_import_serving)
                await serve(self._run, children, media, self._stop, note_ready)
            nursery.cancel_scope.cancel()


async def stop_on_signal(stop: trio.Event, start: trio.CancelScope, is_ready: Callable[[], bool]) -> None:
    """At SIGTERM or SIGINT set `stop`, or cancel the start if no calls are accepted yet."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("stopping", signal=signal.Signals(number).name)
            stop.set()
            if not is_ready():
                start.cancel()


def exit_code_of(settings: Settings, run: Callable[[], None], is_ready: Callable[[], bool]) -> int:
    """Run a server process; returns its exit code.

    0 after a stop, 1 when the server could not start or failed, 3 when another server took over, 130 after a Ctrl-C
    before signals were handled. The reason of a failed start is one line on stderr; the stack is logged at debug level.
    """
    try:
        if sys.flags.optimize:
            raise StartError("Sightline does not run under python -O, which removes its assertions. Start without -O.")
        run()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # Catches everything: each failure becomes one line on stderr and an exit code.
        if any(isinstance(leaf, TakenOverError) for leaf in leaves_of(error)):
            log.critical("server_fenced", action="stopped", exit_code=EXIT_FENCED)
            return EXIT_FENCED
        if is_ready():
            log.critical("server_failed", exc_info=error)
        else:
            from sightline.bootstrap.failures.line import start_line

            log.debug("start_failed", exc_info=error)
            sys.stderr.write(start_line(error, settings) + "\n")
        return 1
    return 0


def say_ready(url: str, internal_url: str, data_dir: Path) -> None:
    """Print `ready URL` on stdout, and on a terminal, where log lines surround it, a frame with what to open."""
    sys.stdout.write(f"ready {url}\n")
    if sys.stdout.isatty():
        sys.stdout.write(summary(url, internal_url, data_dir))
    sys.stdout.flush()


def summary(url: str, internal_url: str, data_dir: Path) -> str:
    """Frame the addresses of a server that accepts calls."""
    # What these import is loaded when a server is ready.
    from sightline.http.console.manual import is_manual_built
    from sightline.http.links import other_devices_hint

    is_here = other_devices_hint(url) is not None
    lines = [
        f"Sightline runs. Open {url}/",
        "",
        f"API             {url}/docs",
        *([f"Manual          {url}/manual/"] if is_manual_built() else []),
        f"Operations      {internal_url}/ops (token: sightline admin token)",
        f"Data            {data_dir}",
        *(["Other devices   cannot open these: start with --tls auto, or see SIGHTLINE_PUBLIC_URL"] if is_here else []),
        "Ctrl-C stops the server.",
    ]
    width = max(map(len, lines))
    framed = "".join(f"│ {line.ljust(width)} │\n" for line in lines)
    return f"\n┌{'─' * (width + 2)}┐\n{framed}└{'─' * (width + 2)}┘\n\n"


Serve: TypeAlias = Callable[[RunOptions, Children, WorkerTemplate, trio.Event, Callable[[str], None]], Awaitable[None]]


def _import_serving() -> Serve:
    with importing():
        from sightline.bootstrap.serving import serve

    return serve


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


def _issue_certificate(settings: Settings) -> OwnTls:
    directory = settings.data_dir
    with check_setting(f"SIGHTLINE_TLS_AUTO (--tls auto) with the authority in {directory / FOLDER}"):
        return issue(directory, SystemIds(), SystemClock().now_ms(), own_address(), socket.gethostname())


def devices_text(url: str, tls: OwnTls) -> str:
    """Tell how a phone trusts the server, with a QR code of the authority's URL, or that no phone can reach it."""
    import segno

    from sightline.http.links import other_devices_hint

    if other_devices_hint(url) is not None:
        found = "it has no network" if tls.left_out is None else f"it has {tls.left_out}"
        return (
            f"\nNo phone can open {url}/: --tls auto issues certificates for addresses of private networks, and this "
            f"machine has none ({found}). Get a certificate for its name, and set SIGHTLINE_TLS_CERT and "
            "SIGHTLINE_TLS_KEY.\n\n"
        )
    code = io.StringIO()
    segno.make(f"{url}/ca.crt", error="m").terminal(out=code, compact=True)
    return (
        f"\nFor phones on this network: install the authority from {url}/ca.crt, then open {url}/\n"
        f"Compare its SHA-256 on the phone: {tls.fingerprint}\n\n{code.getvalue()}"
    )
