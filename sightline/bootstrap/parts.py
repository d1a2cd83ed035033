"""Parts that come up side by side: each is opened and closed by a task of its own."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar, final

import trio

T = TypeVar("T")


@final
class Part(Generic[T]):
    """Something that is being opened, and stays open until all parts are closed."""

    def __init__(self, context: AbstractAsyncContextManager[T], leave: trio.Event) -> None:
        self._context = context
        self._leave = leave
        self._up = trio.Event()
        self._opened: list[T] = []

    async def hold(self) -> None:
        """Open it, keep it, close it when everybody leaves."""
        async with self._context as opened:
            self._opened.append(opened)
            self._up.set()
            await self._leave.wait()

    async def ready(self) -> T:
        """What was opened. If it cannot be, the failure cancels whoever waits here."""
        await self._up.wait()
        return self._opened[0]


@final
class Parts:
    """Opens parts. Made by `open_parts`."""

    def __init__(self, nursery: trio.Nursery, leave: trio.Event) -> None:
        self._nursery = nursery
        self._leave = leave

    def open(self, context: AbstractAsyncContextManager[T]) -> Part[T]:
        """Begin to open a part; it is up when `ready` returns."""
        part = Part(context, self._leave)
        self._nursery.start_soon(part.hold)
        return part


@asynccontextmanager
async def open_parts() -> AsyncIterator[Parts]:
    """Let parts be opened, and close them, also side by side, when the block ends; so they must not need each other.

    Cancellation: the parts are cancelled, and close as they do then.
    """
    async with trio.open_nursery() as nursery:
        leave = trio.Event()
        yield Parts(nursery, leave)
        leave.set()
