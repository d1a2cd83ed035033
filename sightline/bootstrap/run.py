"""Run a server: `sightline serve`."""

import os
from collections.abc import Callable
from typing import Protocol

import structlog
import trio

from sightline.bootstrap.observability.service_manager import ServiceManager
from sightline.bootstrap.process import Prepared, ServerRun, exit_code_of, prepare, say_ready
from sightline.bootstrap.server_run import RunOptions
from sightline.config import Settings
from sightline.system.logs import configure_logs
from sightline.system.server_address_file import write_server_addresses

log = structlog.get_logger("sightline")


class Serving(Protocol):
    """A run of a server, or of the supervisor of several."""

    @property
    def is_ready(self) -> bool:
        """Whether calls are accepted."""
        ...

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Run until SIGTERM or SIGINT; call `on_ready` with the internal URL when calls are accepted."""
        ...


def run_server(settings: Settings) -> int:
    """Run a server, or several workers, until SIGTERM or SIGINT. Prints `ready URL` on stdout when calls are accepted.

    Returns:
        The exit code, see `exit_code_of`.
    """
    configure_logs(settings.log_level)
    runs: list[Serving] = []
    manager = ServiceManager(os.environ)

    def run() -> None:
        with prepare(settings) as prepared:
            runs.append(_choose(prepared))
            trio.run(_run_watched, runs[0], _announce(prepared, manager), manager)

    return exit_code_of(settings, run, lambda: bool(runs) and runs[0].is_ready)


async def _run_watched(chosen: Serving, announce: Callable[[str], None], manager: ServiceManager) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.keep_watchdog)
        await chosen.run(announce)
        nursery.cancel_scope.cancel()


def _choose(prepared: Prepared) -> Serving:
    if prepared.settings.workers > 1:
        from sightline.bootstrap.workers.supervisor import WorkerSupervisor

        return WorkerSupervisor(prepared)
    return ServerRun(
        RunOptions(
            settings=prepared.settings,
            secrets=prepared.secrets,
            ports=prepared.ports,
            public_url=prepared.public_url,
        )
    )


def _announce(prepared: Prepared, manager: ServiceManager) -> Callable[[str], None]:
    """What to do when calls are accepted, with the URL of the internal listener."""
    url, data_dir = prepared.public_url, prepared.settings.data_dir

    def announce(internal_url: str) -> None:
        write_server_addresses(data_dir, url=url, internal_url=internal_url)
        prepared.note_ready()
        log.info("ready", url=url, internal_url=internal_url, data_dir=str(data_dir))
        say_ready(url, internal_url, data_dir)
        manager.ready()

    return announce
