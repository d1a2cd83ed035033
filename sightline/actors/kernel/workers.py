"""The tasks that run cells. An idle actor has no task, and actors whose turns wait for nothing share one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import trio
from outcome import Value

if TYPE_CHECKING:
    from sightline.actors.kernel.cell import Cell

CALLED_MAX: Final = 4
"""Workers woken ahead for cells that are queued. Each wakes as many again, so where turns wait, few rounds of the
scheduler start them all; where none waits, no more than these were woken in vain."""

CELLS_PER_VISIT: Final = 64
"""Cells a worker runs before it lets other tasks run, should none have waited for anything."""


@final
class Workers:
    """A pool that grows with the number of turns that wait for something and shrinks to `idle_max`.

    Cells queue up, and a worker runs one after the other. Before it runs one while others are queued, it has other
    workers called, so that a turn that waits holds nobody up; where none waits, waking tasks is paid once for all cells
    that came together.
    """

    def __init__(self, *, idle_max: int) -> None:
        self._idle_max = idle_max
        self._idle: list[trio.lowlevel.Task] = []
        self._nursery: trio.Nursery | None = None
        self._count = 0
        self._queue: deque[Cell] = deque()
        self._called = 0
        """Workers that have been woken and have not looked at the queue yet."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    @property
    def idle(self) -> int:
        """How many wait for work."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """How many run a cell."""
        return self._count - len(self._idle)

    def open(self, nursery: trio.Nursery) -> None:
        """Say where workers live."""
        self._nursery = nursery

    def dispatch(self, cell: Cell) -> None:
        """Have a worker run the cell soon."""
        self._queue.append(cell)
        self._call()

    def _call(self) -> None:
        wanted = min(len(self._queue), CALLED_MAX)
        while self._called < wanted:
            self._called += 1
            if self._idle:
                trio.lowlevel.reschedule(self._idle.pop(), Value(None))
            else:
                assert self._nursery is not None, "the registry is running"
                self._count += 1
                self._nursery.start_soon(self._work)

    async def _work(self) -> None:
        try:
            # The scope lets a stop end the turn of the cell at work, and this worker with it.
            with trio.CancelScope() as scope:
                await self._run_queued(scope)
                while len(self._idle) < self._idle_max:
                    await self._wait_until_called()
                    await self._run_queued(scope)
        finally:
            self._count -= 1

    async def _run_queued(self, scope: trio.CancelScope) -> None:
        self._called -= 1
        queue = self._queue
        for _ in range(CELLS_PER_VISIT):
            if not queue:
                return
            cell = queue.popleft()
            self._call()
            await cell.run(scope)
        self._call()

    async def _wait_until_called(self) -> None:
        task = trio.lowlevel.current_task()
        self._idle.append(task)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._idle.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
