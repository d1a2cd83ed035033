"""Where actors are found: by kind and id, in memory or not.

The registry owns every task of the kernel. It is one `run`: workers, helpers, the timers' task, the deadlines' task and
the passivation sweep live in its nursery. It ends by `close`, which drains first, or by cancellation; either way
everything that still waits for an answer gets one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, final

import structlog
import trio

from sightline.actors.kernel.cell import Activate, Cell, Phase
from sightline.actors.kernel.deadlines import Deadlines
from sightline.actors.kernel.kind import Kind, KindOptions
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.kernel.ref import Ref
from sightline.actors.kernel.statistics import KernelStatistics
from sightline.actors.kernel.timers import Timers
from sightline.actors.kernel.waitfor import WaitForGraph
from sightline.actors.kernel.workers import Workers
from sightline.domain.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from sightline.actors.kernel.behaviour import Factory, Rng
    from sightline.actors.kernel.wire import Wire
    from sightline.ports.clock import Clock

SWEEP_SLICE = 500
"""Cells looked at by the passivation sweep before other tasks run."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """Limits of the whole kernel.

    Attributes:
        workers_idle_max: Workers kept for the next burst.
        sweep_every_s: How often idle actors are looked for.
        clock_check_s: A step of the wall clock is noticed by the timers within this time.
        stop_grace_s: How long `stop` lets a turn in progress finish.
        detect_ask_cycles: Test mode: raise `AskCycleError` instead of waiting in a circle.
    """

    workers_idle_max: int = 256
    sweep_every_s: float = 10.0
    clock_check_s: float = 1.0
    stop_grace_s: float = 5.0
    detect_ask_cycles: bool = False


class KernelLog(Protocol):
    """The part of a structlog logger that the kernel uses."""

    def warning(self, event: str, **fields: object) -> object:
        """Log something that needs no action now."""
        ...

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> object:
        """Log a failed actor."""
        ...


class Stage(IntEnum):
    """The life of a registry, in order."""

    NEW = 0
    RUNNING = 1
    DRAINING = 2
    STOPPED = 3


@final
class Registry:
    """All actors of one process."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: Rng,
        options: KernelOptions | None = None,
        wire: Wire | None = None,
        log: KernelLog | None = None,
    ) -> None:
        self.options = options or KernelOptions()
        self.clock = clock
        self.rng = rng
        self.wire = wire
        self.log: KernelLog = log or structlog.get_logger("sightline.actors")
        self.now: Callable[[], float] = trio.current_time
        self.workers = Workers(idle_max=self.options.workers_idle_max)
        self.timers = Timers(clock, clock_check_s=self.options.clock_check_s)
        self.deadlines = Deadlines()
        self.wait_for = WaitForGraph() if self.options.detect_ask_cycles else None
        self._kinds: dict[str, Kind] = {}
        self._stage = Stage.NEW
        self._nursery: trio.Nursery | None = None
        self._timer_scope = trio.CancelScope()
        self.at_work = 0
        """Cells with a worker."""
        self._helpers = 0
        self._quiet: trio.Event | None = None
        self._finished = trio.Event()

    # Finding actors.

    def register(self, kind: str, factory: Factory, options: KindOptions | None = None) -> None:
        """Say how actors of a kind are made; once per kind."""
        if kind in self._kinds:
            message = f"kind {kind} is registered already"
            raise InvariantError(message)
        self._kinds[kind] = Kind(self, kind, factory, options or KindOptions())

    def ref(self, kind: str, actor_id: str) -> Ref:
        """A ref to the actor, which need not be in memory; its first message brings it there."""
        return Ref(self._kinds[kind], actor_id)

    def peek(self, kind: str, actor_id: str) -> Any | None:
        """The snapshot the actor last published; None while it is not in memory, loading, or parked."""
        cell = self._kinds[kind].cells.get(actor_id)
        return cell.snapshot if cell is not None else None

    def snapshots(self, kind: str) -> Iterator[tuple[str, Any]]:
        """Id and snapshot of every actor of the kind that publishes one now. Do not await while iterating."""
        for actor_id, cell in self._kinds[kind].cells.items():
            if cell.snapshot is not None:
                yield actor_id, cell.snapshot

    async def activate(self, kind: str, actor_id: str, *, timeout_s: float = inf) -> Any | None:
        """Bring the actor into memory and return its snapshot.

        Raises:
            UnavailableError: It could not be loaded, is parked or is stopping.
            AskTimeoutError: It has not loaded in time; it goes on trying.
        """
        ref = self.ref(kind, actor_id)
        await ref.ask(Activate, timeout_s=timeout_s, lane=Lane.CONTROL)
        return ref.snapshot

    async def revive(self, kind: str, actor_id: str, *, timeout_s: float = 10.0) -> Any | None:
        """Give a parked actor another chance; otherwise as `activate`."""
        cell = self._kinds[kind].cells.get(actor_id)
        if cell is not None:
            cell.revive()
        return await self.activate(kind, actor_id, timeout_s=timeout_s)

    async def stop(self, kind: str, actor_id: str) -> None:
        """Put one actor out of memory now; a later message brings it back.

        What waits is answered `ActorStoppedError`. A turn in progress has `stop_grace_s` to end, then it is cancelled
        and answered `TurnLostError`.
        """
        cell = self._kinds[kind].cells.get(actor_id)
        if cell is None:
            return
        cell.begin_stop()
        if cell.running:
            if cell.idle is None:
                cell.idle = trio.Event()
            with trio.move_on_after(self.options.stop_grace_s):
                await cell.idle.wait()
            if cell.scope is not None:
                cell.scope.cancel()
            await cell.idle.wait()

    def reloads(self, kind: str) -> int:
        """How often actors of the kind were loaded again, crashes included."""
        counters = self._kinds[kind].counters
        return counters.reloads + counters.restarts + counters.load_failures

    def statistics(self) -> KernelStatistics:
        """Copy all counts; walks over all cells."""
        return KernelStatistics(
            kinds={name: kind.statistics() for name, kind in self._kinds.items()},
            workers=self.workers.count,
            workers_idle=self.workers.idle,
            helpers=self._helpers,
            timers=len(self.timers),
            timer_heap=self.timers.heap_size,
        )

    # Running.

    @property
    def accepts_asks(self) -> bool:
        """Whether intake is open."""
        return self._stage is Stage.RUNNING

    @property
    def accepts_work(self) -> bool:
        """Whether actors may still send each other messages."""
        return self._stage is Stage.RUNNING or self._stage is Stage.DRAINING

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the kernel until `close` or cancellation; start it with `nursery.start`."""
        assert self._stage is Stage.NEW, "a registry runs once"
        self.now = trio.lowlevel.current_clock().current_time
        for kind in self._kinds.values():
            kind.now = self.now
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.workers.open(nursery)
                nursery.start_soon(self.deadlines.run)
                nursery.start_soon(self._run_timers)
                nursery.start_soon(self._sweep)
                nursery.start_soon(self._refuse_when_cancelled)
                self._stage = Stage.RUNNING
                task_status.started()
        finally:
            self._stage = Stage.STOPPED
            for cell in self._cells():
                cell.phase = Phase.STOPPING
                cell.turn_everything_away()
            self._finished.set()

    async def close(self, *, drain_s: float) -> bool:
        """Stop intake, let what was taken in finish for `drain_s`, then cancel the rest.

        Returns:
            Whether everything finished in time.
        """
        if self._stage is not Stage.RUNNING:
            return self._stage is Stage.STOPPED
        self._stage = Stage.DRAINING
        self._timer_scope.cancel()
        self._quiet = trio.Event()
        self.note_quiet()
        with trio.move_on_after(drain_s):
            await self._quiet.wait()
        drained = self._quiet.is_set()
        self._stage = Stage.STOPPED
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()
        await self._finished.wait()
        return drained

    async def wait_closed(self) -> None:
        """Wait until `run` has ended."""
        await self._finished.wait()

    def note_quiet(self) -> None:
        """Tell a waiting `close` if nothing is at work any more."""
        if self._quiet is not None and not self._helpers and not self.at_work:
            self._quiet.set()

    def start_helper(self, helper: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a helper of a cell in the nursery."""
        assert self._nursery is not None
        self._helpers += 1
        self._nursery.start_soon(self._run_helper, helper, args)

    async def _run_helper(self, helper: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        try:
            await helper(*args)
        except* Exception as group:
            # Only the function that makes a message of an error can raise here: a bug, and no reason to stop others.
            self.log.error("helper_failed", exc_info=group)
        finally:
            self._helpers -= 1
            self.note_quiet()

    async def _refuse_when_cancelled(self) -> None:
        """Refuse new messages before the nursery of the workers closes, if somebody above cancels it."""
        try:
            await trio.sleep_forever()
        finally:
            self._stage = Stage.STOPPED

    async def _run_timers(self) -> None:
        with self._timer_scope:
            await self.timers.run()

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(self.options.sweep_every_s)
            for kind in self._kinds.values():
                idle_since = self.now() - kind.options.idle_s
                for index, cell in enumerate(list(kind.cells.values())):
                    if index % SWEEP_SLICE == SWEEP_SLICE - 1:
                        await trio.lowlevel.checkpoint()
                    kind.passivate_if_idle(cell, idle_since)

    def _cells(self) -> list[Cell]:
        return [cell for kind in self._kinds.values() for cell in kind.cells.values()]
