"""The kernel of one process: finds actors by kind and id, and owns the nursery in which their tasks run.

`run` lasts until `close`, which drains first, or until it is cancelled. Every ask is answered either way.
"""

from __future__ import annotations

from contextvars import Context as ContextVars
from contextvars import copy_context
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, cast, final

import structlog
import trio

from sightline.actors.kernel.cell import Activate
from sightline.actors.kernel.deadlines import Deadlines
from sightline.actors.kernel.kind import KernelLog, Kind, KindOptions
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.kernel.ref import Ref
from sightline.actors.kernel.statistics import Counters, KernelStatistics
from sightline.actors.kernel.supervisor import Supervisor
from sightline.actors.kernel.timers import Timers
from sightline.actors.kernel.waitfor import WaitForGraph
from sightline.domain.errors import InvariantError
from sightline.domain.value import Value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from sightline.actors.kernel.behaviour import Factory, Rng
    from sightline.actors.kernel.cell import Cell
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.message import KindName
    from sightline.actors.kernel.ref import Key, Remote, Wire
    from sightline.ports.clock import Clock

M = TypeVar("M")
S = TypeVar("S")

SWEEP_SLICE: Final = 500
"""Actors examined by the passivation sweep before other tasks run."""

SETTLE_LOOK_S: Final = 0.01
"""Polling interval of `settle_where`."""


@final
class KernelOptions(Value, kw_only=True):
    """Limits of the whole kernel.

    Attributes:
        sweep_every_s: Interval of the sweep that passivates idle actors and loads parked ones again.
        clock_check_s: The timers notice a step of the wall clock within this time.
        stop_grace_s: How long `stop` lets a turn in progress finish.
        detect_ask_cycles: Test mode: raise `AskCycleError` for asks that wait for each other.
    """

    sweep_every_s: float = 10.0
    clock_check_s: float = 1.0
    stop_grace_s: float = 5.0
    detect_ask_cycles: bool = False


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
        owns: Callable[[str], bool] | None = None,
        admits: Callable[[str], bool] | None = None,
        on_ask: Callable[[Key, Envelope[object]], None] | None = None,
        remote: Remote | None = None,
    ) -> None:
        """Create a registry that does not run yet.

        Args:
            owns: Whether the actor with this id may run in this process; None: every one. Actors that run are not
                stopped when the answer changes; call `stop_where`.
            admits: The same for kinds that ask others; None: as `owns`. Ids for which only this is false are about to
                be given up; see `settle_where`.
            on_ask: Called in the asker's task with each ask that was admitted.
            remote: Sends messages to actors that another server owns; None: they are refused.
        """
        self.options = options or KernelOptions()
        self.clock = clock
        self.log: KernelLog = log or structlog.get_logger("sightline.actors")
        self.timers = Timers(clock, clock_check_s=self.options.clock_check_s)
        self.wait_for = WaitForGraph() if self.options.detect_ask_cycles else None
        self._on_ask = self.wait_for.note_ask if self.wait_for is not None else on_ask
        self._rng = rng
        self._wire = wire
        self._owns = owns
        self._admits = admits or owns
        self._remote = remote
        self._deadlines = Deadlines()
        self._supervisors: dict[str, Supervisor] = {}
        self._stage = Stage.NEW
        self._nursery: trio.Nursery | None = None
        self._context_vars = ContextVars()
        self._timer_scope = trio.CancelScope()
        self._finished = trio.Event()

    # Finding actors.

    def register(self, kind: KindName[M, S], factory: Factory[M, S], options: KindOptions | None = None) -> None:
        """Say how actors of a kind are made; once per kind."""
        if kind in self._supervisors:
            message = f"kind {kind} is registered already"
            raise InvariantError(message)
        shared = Kind(
            name=str(kind),
            # The types of a kind are checked where its name is used: here, in `ref` and in `peek`.
            factory=cast("Factory[object, object]", factory),
            options=options or KindOptions(),
            directory=self,
            timers=self.timers,
            clock=self.clock,
            rng=self._rng,
            log=lambda: self.log,
            now=trio.current_time,
            counters=Counters(),
        )
        self._supervisors[kind] = Supervisor(
            shared,
            self._deadlines,
            wire=self._wire,
            on_ask=self._on_ask,
            start=self._start,
            accepts_asks=lambda: self._stage is Stage.RUNNING,
            accepts_tells=lambda: self._stage is Stage.RUNNING or self._stage is Stage.DRAINING,
            owns=self._admits if shared.options.asks_others else self._owns,
            remote=self._remote,
        )

    def ref(self, kind: KindName[M, S], actor_id: str) -> Ref[M]:
        """A ref to the actor, which need not be in memory; its first message loads it."""
        return Ref(self._supervisors[kind], actor_id)

    def takes(self, kind: str, actor_id: str) -> bool:
        """Whether new messages for the actor are handled here, not sent to another server."""
        return self._supervisors[kind].takes(actor_id)

    def peek(self, kind: KindName[M, S], actor_id: str) -> S | None:
        """The snapshot that the actor last published; None while it is not in memory, loading, parked or not owned."""
        cell = self._supervisors[kind].cells.get(actor_id)
        if cell is None or (self._owns is not None and not self._owns(actor_id)):
            return None
        return cast("S | None", cell.snapshot)

    def peek_quiet(self, kind: KindName[M, S], actor_id: str) -> S | None:
        """As `peek`, but None while the actor has a message, a turn or a helper: it is what an ask would see now."""
        cell = self._supervisors[kind].cells.get(actor_id)
        return self.peek(kind, actor_id) if cell is not None and cell.is_quiet else None

    def snapshots(self, kind: KindName[M, S]) -> Iterator[tuple[str, S]]:
        """Id and snapshot of every actor of the kind that publishes one now. Do not await while iterating."""
        for actor_id, cell in self._supervisors[kind].cells.items():
            if cell.snapshot is not None and (self._owns is None or self._owns(actor_id)):
                yield actor_id, cast("S", cell.snapshot)

    async def activate(self, kind: str, actor_id: str, *, timeout_s: float = inf) -> None:
        """Load the actor if it is not in memory.

        Raises:
            UnavailableError: It cannot be loaded now, is parked or is stopping.
            AskTimeoutError: It has not loaded in time; it continues to load.
        """
        ref: Ref[Activate] = Ref(self._supervisors[kind], actor_id)
        await ref.ask(Activate(), timeout_s=timeout_s, lane=Lane.CONTROL)

    async def revive(self, kind: str, actor_id: str, *, timeout_s: float = 10.0) -> None:
        """Load a parked actor again; otherwise as `activate`."""
        self._supervisors[kind].unpark(actor_id)
        await self.activate(kind, actor_id, timeout_s=timeout_s)

    async def stop(self, kind: str, actor_id: str) -> None:
        """Remove one actor from memory now; a later message loads it again.

        Waiting messages are answered `ActorStoppedError`. A turn in progress has `stop_grace_s` to end, then it is
        cancelled and answered `TurnLostError`.
        """
        supervisor = self._supervisors[kind]
        supervisor.unpark(actor_id)
        cell = supervisor.cells.get(actor_id)
        if cell is None:
            return
        await _stop([cell], self.options.stop_grace_s)

    async def settle_where(self, belongs: Callable[[str], bool], *, within_s: float) -> None:
        """Wait until the actors of kinds that ask others, whose ids fulfil the condition, owe no answer.

        Call it while `admits` is false for these ids and `owns` is still true: these actors get no new messages, and
        those that their helpers ask still answer. Without it, `stop_where` would lose the answers of these helpers.
        """
        cells = [
            cell
            for supervisor in self._supervisors.values()
            if supervisor.kind.options.asks_others
            for cell in supervisor.cells.values()
            if belongs(cell.id)
        ]
        with trio.move_on_after(within_s):
            # An asker that gives up wakes nobody.
            while cells := [cell for cell in cells if cell.owes_answers]:  # noqa: ASYNC110
                await trio.sleep(SETTLE_LOOK_S)

    async def stop_where(self, belongs: Callable[[str], bool], *, grace_s: float) -> None:
        """Remove every actor whose id fulfils the condition from memory, parked ones too; otherwise as `stop`.

        Messages are refused from the call on. Turns in progress have `grace_s` to end. Timers of these actors are
        cancelled; load the actors again where they run next.
        """
        cells = []
        for supervisor in self._supervisors.values():
            for actor_id, cell in [item for item in supervisor.cells.items() if belongs(item[0])]:
                supervisor.unpark(actor_id)
                if supervisor.cells.get(actor_id) is cell:
                    cells.append(cell)
        await _stop(cells, grace_s)

    def reloads(self, kind: str) -> int:
        """How often actors of the kind were loaded again, crashes included."""
        counters = self._supervisors[kind].counters
        return counters.reloads + counters.restarts + counters.load_failures

    def statistics(self) -> KernelStatistics:
        """Copy all counts; iterates over all actors in memory."""
        return KernelStatistics(
            kinds={name: supervisor.statistics() for name, supervisor in self._supervisors.items()},
            timers=len(self.timers),
            timer_heap=self.timers.heap_size,
        )

    # Running.

    @property
    def accepts_asks(self) -> bool:
        """Whether the kernel is running and not draining."""
        return self._stage is Stage.RUNNING

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the kernel until `close` or cancellation; start it with `nursery.start`."""
        assert self._stage is Stage.NEW, "a registry runs once"
        for supervisor in self._supervisors.values():
            # Without the look-up of the running clock that trio.current_time does at each call.
            supervisor.now = supervisor.kind.now = trio.lowlevel.current_clock().current_time
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._context_vars = copy_context()
                nursery.start_soon(self._deadlines.run)
                nursery.start_soon(self._run_timers)
                nursery.start_soon(self._sweep)
                nursery.start_soon(self._refuse_when_cancelled)
                self._stage = Stage.RUNNING
                task_status.started()
        finally:
            self._stage = Stage.STOPPED
            self._finished.set()

    async def close(self, *, drain_s: float) -> bool:
        """Refuse new asks, let turns and helpers finish for `drain_s` seconds, then cancel the rest.

        Returns:
            Whether everything finished in time.
        """
        if self._stage is not Stage.RUNNING:
            return self._stage is Stage.STOPPED
        self._stage = Stage.DRAINING
        self._timer_scope.cancel()
        drained = False
        with trio.move_on_after(drain_s):
            while (busy := next((cell for cell in self._cells() if cell.is_busy), None)) is not None:
                await busy.idle_event().wait()
            drained = True
        self._stage = Stage.STOPPED
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()
        await self._finished.wait()
        return drained

    async def wait_closed(self) -> None:
        """Wait until `run` has ended."""
        await self._finished.wait()

    def _start(self, supervise: Callable[[Cell], Awaitable[None]], cell: Cell) -> None:
        """Start the task of an actor, without the context variables of the task that sent its first message."""
        assert self._nursery is not None
        self._context_vars.run(self._nursery.start_soon, supervise, cell)

    async def _refuse_when_cancelled(self) -> None:
        """Refuse messages before the nursery closes, if it is cancelled from above."""
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
            for supervisor in self._supervisors.values():
                idle_since = supervisor.now() - supervisor.kind.options.idle_s
                for index, cell in enumerate(list(supervisor.cells.values())):
                    if index % SWEEP_SLICE == SWEEP_SLICE - 1:
                        await trio.lowlevel.checkpoint()
                    supervisor.passivate_if_idle(cell, idle_since)
                    supervisor.retry_if_due(cell)

    def _cells(self) -> Iterator[Cell]:
        return (cell for supervisor in self._supervisors.values() for cell in supervisor.cells.values())


async def _stop(cells: Sequence[Cell], grace_s: float) -> None:
    for cell in cells:
        cell.begin_stop()
    events = [cell.idle_event() for cell in cells]
    with trio.move_on_after(grace_s):
        for ended in events:
            await ended.wait()
    for cell, ended in zip(cells, events, strict=True):
        if not ended.is_set():
            cell.cancel()
    for ended in events:
        await ended.wait()
