"""Coalesces concurrent calls into batches (leader and followers).

At most `at_once` batches run at the same time. A call that finds a free slot leads: it takes along the calls that
wait, serves them as one batch, and then promotes the first waiting call to leader. A single call never waits for
others, and no task of its own is needed.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, final

import trio
from msgspec import Struct, field


class BatchedCall(Struct, eq=False):
    """One call of a batch. Subclasses add its argument, its result and its error."""

    woken: trio.Event = field(default_factory=trio.Event)
    leads: bool = False


C = TypeVar("C", bound=BatchedCall)


@final
class Batcher(Generic[C]):
    """Collects calls and serves them in batches."""

    def __init__(self, serve: Callable[[list[C]], Awaitable[None]], *, at_once: int, batch_max: int) -> None:
        """Create a batcher.

        Args:
            serve: Serves a batch and stores in each call its result or its error; raises nothing.
        """
        self._serve = serve
        self._batch_max = batch_max
        self._free = at_once
        self._waiting: deque[C] = deque()

    async def submit(self, call: C) -> None:
        """Serve a call, in one batch with the calls that wait at that time.

        Cancellation: obeyed while the call waits, and it is not served then. Once its batch runs, its result is
        awaited.
        """
        self._waiting.append(call)
        if self._free:
            self._free -= 1
            await self._lead()
        else:
            await self._follow(call)

    async def _follow(self, call: C) -> None:
        try:
            await call.woken.wait()
        except trio.Cancelled:
            if call in self._waiting:
                self._waiting.remove(call)
                if call.leads:
                    # Promoted to leader while being cancelled: hand the slot on, or it is lost.
                    self._promote_next()
                raise
            # The batch was sent: wait for its outcome.
            with trio.CancelScope(shield=True):
                await call.woken.wait()
        if call.leads:
            await self._lead()

    async def _lead(self) -> None:
        """Serve the waiting calls, wake them, and promote the next leader."""
        batch = [self._waiting.popleft() for _ in range(min(self._batch_max, len(self._waiting)))]
        try:
            # Shielded: other callers depend on it. The deadline of the unit of work bounds it.
            with trio.CancelScope(shield=True):
                await self._serve(batch)
        finally:
            for call in batch:
                call.woken.set()
            self._promote_next()

    def _promote_next(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        leader = self._waiting[0]
        leader.leads = True
        leader.woken.set()
