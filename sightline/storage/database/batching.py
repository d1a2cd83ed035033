"""Coalesces concurrent calls into batches (leader and followers).

At most `at_once` batches run at the same time. A call that finds a free place leads: it takes along its share of the
calls that wait, serves them as one batch, and then gives its place to the first waiting call. A single call never waits
for others, and no task of its own is needed.

A share is an equal part of all calls, those in batches included. If one batch took all that wait, the next one would
have nothing until it has ended: who prepares calls and who serves them would take turns, and not work at the same time.
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
        self._at_once = at_once
        self._batch_max = batch_max
        self._free = at_once
        self._waiting: deque[C] = deque()
        self._leading = 0
        """Calls that lead, or are in a batch."""

    async def submit(self, call: C) -> None:
        """Serve a call, in one batch with calls that wait at that time.

        Cancellation: obeyed while the call waits, and it is not served then. Once its batch runs, its result is
        awaited.
        """
        if self._free:
            self._free -= 1
            self._leading += 1
            await self._lead(call)
        else:
            self._waiting.append(call)
            await self._follow(call)

    async def _follow(self, call: C) -> None:
        try:
            await call.woken.wait()
        except trio.Cancelled:
            if call in self._waiting:
                self._waiting.remove(call)
                raise
            if call.leads:
                # Made leader while being cancelled, and in no batch: hand the place on, or it is lost.
                self._leading -= 1
                self._pass_on()
                raise
            # The batch was sent: wait for its outcome.
            with trio.CancelScope(shield=True):
                await call.woken.wait()
        if call.leads:
            await self._lead(call)

    async def _lead(self, call: C) -> None:
        """Serve the call with its share of the waiting ones, wake them, and pass the place on."""
        share = -(-(len(self._waiting) + self._leading) // self._at_once)
        others = min(share, self._batch_max, len(self._waiting) + 1) - 1
        batch = [call, *(self._waiting.popleft() for _ in range(others))]
        self._leading += others
        try:
            # Shielded: other callers depend on it. The deadline of the unit of work bounds it.
            with trio.CancelScope(shield=True):
                await self._serve(batch)
        finally:
            for served in batch:
                served.woken.set()
            self._leading -= len(batch)
            self._pass_on()

    def _pass_on(self) -> None:
        """Make the first waiting call a leader. It waits no more: another place that is free goes to another call."""
        if not self._waiting:
            self._free += 1
            return
        self._leading += 1
        leader = self._waiting.popleft()
        leader.leads = True
        leader.woken.set()
