"""The tasks that run cells. An idle actor has no task; as many run as have something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio
from outcome import Value

if TYPE_CHECKING:
    from sightline.actors.kernel.cell import Cell


@final
class Workers:
    """A pool that grows with the number of actors at work and shrinks to `idle_max`."""

    def __init__(self, *, idle_max: int) -> None:
        self._idle_max = idle_max
        self._idle: list[trio.lowlevel.Task] = []
        self._nursery: trio.Nursery | None = None
        self._count = 0

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
        if self._idle:
            trio.lowlevel.reschedule(self._idle.pop(), Value(cell))
        else:
            assert self._nursery is not None, "the registry is running"
            self._count += 1
            self._nursery.start_soon(self._work, cell)

    async def _work(self, first: Cell) -> None:
        cell: Cell | None = first
        try:
            # The scope lets a stop end the turn of the cell at work, and this worker with it.
            with trio.CancelScope() as scope:
                while cell is not None:
                    await cell.run(scope)
                    cell = await self._wait_for_work()
        finally:
            self._count -= 1

    async def _wait_for_work(self) -> Cell | None:
        if len(self._idle) >= self._idle_max:
            return None
        task = trio.lowlevel.current_task()
        self._idle.append(task)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._idle.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        cell: Cell = await trio.lowlevel.wait_task_rescheduled(abort)
        return cell
