"""Start units in parallel. A task of its own opens and closes each unit."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar, final

import trio

T = TypeVar("T")


@final
class Unit(Generic[T]):
    """A unit that is being opened, and then stays open until all units are closed."""

    def __init__(self, context: AbstractAsyncContextManager[T], leave: trio.Event) -> None:
        self._context = context
        self._leave = leave
        self._up = trio.Event()
        self._opened: list[T] = []

    async def hold(self) -> None:
        """Open the unit, keep it open, and close it when all units are closed."""
        async with self._context as opened:
            self._opened.append(opened)
            self._up.set()
            await self._leave.wait()

    async def ready(self) -> T:
        """Wait until the unit is open and return it. If it cannot be opened, the error cancels the waiting tasks."""
        await self._up.wait()
        return self._opened[0]


@final
class Units:
    """Opens units. Created by `open_units`."""

    def __init__(self, nursery: trio.Nursery, leave: trio.Event) -> None:
        self._nursery = nursery
        self._leave = leave

    def open(self, context: AbstractAsyncContextManager[T]) -> Unit[T]:
        """Start opening a unit; `ready` of the result waits until it is open."""
        unit = Unit(context, self._leave)
        self._nursery.start_soon(unit.hold)
        return unit


@asynccontextmanager
async def open_units() -> AsyncIterator[Units]:
    """Yield an object that opens units in parallel, and close them in parallel when the block ends.

    Units must not depend on each other, because they are closed in no particular order.

    Cancellation: every unit is cancelled and runs its own clean-up.
    """
    async with trio.open_nursery() as nursery:
        leave = trio.Event()
        yield Units(nursery, leave)
        leave.set()
