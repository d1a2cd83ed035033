"""Runs work that continues after its client has disconnected."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, final

import outcome
import trio

from sightline.domain.errors import OutcomeUnknownError

T = TypeVar("T")


@final
class Background:
    """Runs tasks in a nursery that lives as long as the application. Outside `running`: in the caller's."""

    def __init__(self, finish_s: float) -> None:
        self._finish_s = finish_s
        self._nursery: trio.Nursery | None = None
        self._count = 0
        self._idle = trio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run tasks until the block ends; then they have `finish_s` to finish and are cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                yield
            finally:
                self._nursery = None
                with trio.CancelScope(shield=True), trio.move_on_after(self._finish_s):
                    while self._count:
                        self._idle = trio.Event()
                        await self._idle.wait()
                nursery.cancel_scope.cancel()

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` and return its result.

        Raises:
            OutcomeUnknownError: If the application stopped first.

        Cancellation: stops waiting; the work continues.
        """
        if self._nursery is None:
            return await work()
        done = trio.Event()
        result: list[outcome.Maybe[T]] = []

        async def do() -> None:
            try:
                result.append(outcome.Value(await work()))
            except Exception as error:  # noqa: BLE001 (handed to whoever waits)
                result.append(outcome.Error(error))
            finally:
                done.set()

        self.spawn(do)
        await done.wait()
        if not result:
            # The application stopped before the work was done.
            raise OutcomeUnknownError
        return result[0].unwrap()

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start `work`, which must not raise. Only within `running`."""
        assert self._nursery is not None
        self._count += 1
        self._nursery.start_soon(self._counted, work)

    async def _counted(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()
