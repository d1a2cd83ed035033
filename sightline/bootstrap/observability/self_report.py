"""What this server says about itself every few seconds: its address, its version, and how late its event loop is."""

from collections import deque
from importlib.metadata import version
from typing import Final, NoReturn, final

import trio

from sightline.bootstrap.core import Core
from sightline.bootstrap.listeners.ports import Ports
from sightline.ports.leases import ServerFigures
from sightline.storage.postgres.operations.ownership import report_figures
from sightline.system.loops import run_forever

TICK_S: Final = 0.25
WINDOW_S: Final = 10.0
REPORT_EVERY_S: Final = 5.0


@final
class LoopDelay:
    """Measures how late the event loop runs a task whose time has come."""

    def __init__(self) -> None:
        self._late_s: deque[float] = deque(maxlen=round(WINDOW_S / TICK_S))

    @property
    def worst_s(self) -> float:
        """The longest delay of the last WINDOW_S, in seconds."""
        return max(self._late_s, default=0.0)

    async def run(self) -> NoReturn:
        """Measure until cancelled."""
        while True:
            due = trio.current_time() + TICK_S
            await trio.sleep_until(due)
            self._late_s.append(trio.current_time() - due)


@final
class SelfReport:
    """Writes this server's figures beside its lease, where `sightline nodes` reads those of all servers."""

    def __init__(self, core: Core, ports: Ports, delay: LoopDelay) -> None:
        self._core = core
        self._delay = delay
        worker, build = ports.shared_from, core.base.settings.build_sha
        self._name = core.base.server.host if worker is None else f"{core.base.server.host}/{worker.name}"
        self._url = ports.internal_url
        self._version = version("sightline-live") + ("" if build == "unknown" else f"+{build[:10]}")

    async def run(self) -> None:
        """Measure and report until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._delay.run)
            await run_forever("self_report", self._report, every_s=REPORT_EVERY_S)

    async def _report(self) -> None:
        figures = ServerFigures(
            name=self._name, url=self._url, version=self._version, loop_delay_ms=round(self._delay.worst_s * 1_000)
        )
        await report_figures(self._core.stores.database, self._core.base.server.incarnation, figures)
