"""The supervisor of several workers on one machine: `sightline serve --workers N`.

It holds the data directory and the listening sockets. It runs the database, the chain and the NATS server, unless the
settings name external ones, and N workers. A worker that ends is started again; its lease is ended in the database
first, so that the other workers take its shards at once.

Order of a stop: all workers drain and stop together, then the children that they used.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

import structlog
import trio
from pydantic import SecretStr

from sightline.bootstrap.children import open_children
from sightline.bootstrap.failures.errors import check_setting
from sightline.bootstrap.membership.bus import require_protected_nats
from sightline.bootstrap.process import Prepared, stop_on_signal
from sightline.bootstrap.workers.handover import Handover, settings_of_worker
from sightline.cluster.bus.server import EmbeddedNatsOptions, run_embedded_nats
from sightline.config import Settings
from sightline.domain.errors import SightlineError
from sightline.domain.value import replace
from sightline.evidence.certificates import load_identity
from sightline.http.server import ListenerOptions
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.leases import end_server
from sightline.system.children import Child, ChildCommand
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.kept_child import keep_child
from sightline.system.lock import is_locked, lock_directory
from sightline.system.log_files import rotate_logs

FOLDER: Final = "workers"
"""Folder in the data directory with one directory for each worker."""
START_TIMEOUT_S: Final = 120.0
"""For a worker, besides the time that it waits for the database."""
STOP_TIMEOUT_S: Final = 20.0
"""For a worker, besides the time that calls in flight get."""
ORPHAN_WAIT_S: Final = 10.0
END_LEASE_TIMEOUT_S: Final = 2.0
STARTS_AFTER_SIGNAL: Final = 3
"""How often a worker that a signal ends before it is ready is started again, before the start fails."""

log = structlog.get_logger("sightline")


@final
class WorkerSupervisor:
    """One run of the supervisor, from its start until SIGTERM."""

    def __init__(self, prepared: Prepared) -> None:
        self.is_ready = False
        self._prepared = prepared
        self._ids = SystemIds()
        self._stop = trio.Event()

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Run until SIGTERM or SIGINT.

        Args:
            on_ready: Called with the URL of the first worker's internal listener when all workers are ready.

        Raises:
            ChildFailedError: The database, the chain, the NATS server or a worker did not start.
            StartError: The settings cannot be shared among the workers.
        """
        prepared, settings = self._prepared, self._prepared.settings
        require_protected_nats(settings)
        # Connections wait in the queues of these sockets until a worker accepts them, and while a worker restarts.
        for listening in (prepared.ports.public, prepared.ports.internal):
            listening.listen(ListenerOptions().backlog)
        if settings.frame_signing_key is None:
            # Otherwise each worker would create a root certificate.
            with check_setting("SIGHTLINE_DATA_DIR"):
                load_identity(settings.data_dir, self._ids, SystemClock().now_ms(), prepared.public_url)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_signal, self._stop, nursery.cancel_scope, lambda: self.is_ready)
            nursery.start_soon(rotate_logs, settings.data_dir)
            async with self._shared_parts() as shared:
                await self._run_workers(shared, on_ready)
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def _shared_parts(self) -> AsyncIterator[Settings]:
        """Run what the workers share; yields settings that name it."""
        settings = self._prepared.settings
        async with open_children(settings) as children, _open_nats(settings, self._ids) as nats_url:
            await children.chain.ready()
            yield settings.model_copy(
                update={"database_url": SecretStr(await children.dsn.ready()), "nats_url": nats_url}
            )

    async def _run_workers(self, settings: Settings, on_ready: Callable[[str], None]) -> None:
        async with trio.open_nursery() as workers:
            ready: dict[int, str] = {}

            async def start(number: int) -> None:
                ready[number] = await workers.start(self._keep_worker, settings, number)

            async with trio.open_nursery() as starting:
                for number in range(1, settings.workers + 1):
                    starting.start_soon(start, number)
            self.is_ready = True
            on_ready(ready[1])
            await self._stop.wait()
            # New connections are refused from the time on when the workers have closed the sockets too.
            self._prepared.ports.public.close()
            self._prepared.ports.internal.close()
            workers.cancel_scope.cancel()

    async def _keep_worker(
        self, settings: Settings, number: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run a worker until cancelled; report the URL of its internal listener."""
        prepared, directory = self._prepared, settings.data_dir / FOLDER / str(number)
        await self._await_unlocked(directory)
        sockets = [prepared.ports.public] + ([prepared.ports.internal] if number == 1 else [])
        handover = Handover(
            settings=settings_of_worker(settings, number),
            incarnation="",
            directory=directory,
            public_url=prepared.public_url,
            public_socket=sockets[0].fileno(),
            internal_socket=sockets[1].fileno() if number == 1 else None,
        )
        incarnation = ""

        def command() -> ChildCommand:
            nonlocal incarnation
            incarnation = self._ids.uuid()
            return ChildCommand(
                name=f"worker {number}",
                # The argument only shows in a list of processes which worker this is: its settings come on stdin.
                args=[sys.executable, "-m", "sightline.bootstrap.workers.worker", str(directory)],
                log_path=settings.data_dir / "log" / f"worker-{number}.log",
                start_timeout_s=START_TIMEOUT_S + settings.startup_timeout_seconds,
                stop_timeout_s=STOP_TIMEOUT_S + settings.drain_seconds,
                stdin=replace(handover, incarnation=incarnation).dump(),
                says_stop=True,
                inherited=[listening.fileno() for listening in sockets],
            )

        async def end_lease() -> None:
            await _end_lease(settings, number, incarnation)

        def note_ready(child: Child) -> str:
            log.info("worker_ready", worker=number, pid=child.pid, internal_url=child.ready)
            return child.ready

        await keep_child(
            command, note_ready, on_end=end_lease, starts_after_signal=STARTS_AFTER_SIGNAL, task_status=task_status
        )

    async def _await_unlocked(self, directory: Path) -> None:
        """Create a worker's directory, and wait until no earlier worker holds it.

        The data directory's lock is held by this process. A worker of a supervisor that was killed may still be ending.
        """
        with trio.move_on_after(ORPHAN_WAIT_S):
            while is_locked(directory):  # noqa: ASYNC110  another process holds it
                await trio.sleep(0.02)
        with lock_directory(directory):
            return


async def _end_lease(settings: Settings, number: int, incarnation: str) -> None:
    """End the lease of a worker whose process has ended, and its connections. Errors are only logged.

    Without it, the other workers would wait until the lease has run out, or until the worker is started again.
    """
    assert settings.database_url is not None
    pool = PoolOptions(
        dsn=settings.database_url.get_secret_value(), application_name="sightline supervisor", connections_max=1
    )
    with trio.move_on_after(END_LEASE_TIMEOUT_S):
        try:
            async with open_database(DatabaseOptions(pool=pool)) as database:
                await end_server(database, incarnation)
            log.info("worker_lease_ended", worker=number)
        except SightlineError as error:
            log.warning("worker_lease_not_ended", worker=number, error=str(error))
            return
        return
    log.warning("worker_lease_not_ended", worker=number, error=f"no answer within {END_LEASE_TIMEOUT_S:g} s")


@asynccontextmanager
async def _open_nats(settings: Settings, ids: SystemIds) -> AsyncIterator[SecretStr]:
    if settings.nats_url is not None:
        yield settings.nats_url
        return
    options = EmbeddedNatsOptions(directory=settings.data_dir / "nats", log_path=settings.data_dir / "log" / "nats.log")
    async with trio.open_nursery() as nursery:
        yield SecretStr(await nursery.start(run_embedded_nats, options, ids))
        nursery.cancel_scope.cancel()
