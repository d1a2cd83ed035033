"""Start parts in parallel. A task of its own opens and closes each part."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar, final

import trio

T = TypeVar("T")


@final
class Part(Generic[T]):
    """A part that is being opened, and then stays open until all parts are closed."""

    def __init__(self, context: AbstractAsyncContextManager[T], leave: trio.Event) -> None:
        self._context = context
        self._leave = leave
        self._up = trio.Event()
        self._opened: list[T] = []

    async def hold(self) -> None:
        """Open the part, keep it open, and close it when all parts are closed."""
        async with self._context as opened:
            self._opened.append(opened)
            self._up.set()
            await self._leave.wait()

    async def ready(self) -> T:
        """Wait until the part is open and return it. If it cannot be opened, the error cancels the waiting tasks."""
        await self._up.wait()
        return self._opened[0]


@final
class Parts:
    """Opens parts. Created by `open_parts`."""

    def __init__(self, nursery: trio.Nursery, leave: trio.Event) -> None:
        self._nursery = nursery
        self._leave = leave

    def open(self, context: AbstractAsyncContextManager[T]) -> Part[T]:
        """Start opening a part; `ready` of the result waits until it is open."""
        part = Part(context, self._leave)
        self._nursery.start_soon(part.hold)
        return part


@asynccontextmanager
async def open_parts() -> AsyncIterator[Parts]:
    """Yield an object that opens parts in parallel, and close them in parallel when the block ends.

    Parts must not depend on each other, because they are closed in no particular order.

    Cancellation: every part is cancelled and runs its own clean-up.
    """
    async with trio.open_nursery() as nursery:
        leave = trio.Event()
        yield Parts(nursery, leave)
        leave.set()
