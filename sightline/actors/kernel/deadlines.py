"""Deadlines of all asks in flight, in buckets of 20 ms, watched by one task.

A cancel scope per ask costs more than the ask itself. Almost every ask is answered long before its deadline, so the
common path is one dict insert and one dict delete. An ask expires up to one tick late, never early.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.statistics import Counters

TICKS_PER_S = 50
"""Resolution of an ask's timeout: 20 ms."""


@final
class Deadlines:
    """Expires asks whose deadline has passed."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Envelope[object], Counters]] = {}
        self._ticks: list[int] = []
        self._scope = trio.CancelScope()
        self._armed_tick: float = inf

    def add(self, envelope: Envelope[object], counters: Counters) -> None:
        """Watch an ask until it is answered or abandoned; counts an expiry in `counters`."""
        deadline = envelope.deadline
        if deadline == inf:
            return
        tick = int(deadline * TICKS_PER_S) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
            if tick < self._armed_tick:
                self._armed_tick = tick
                self._scope.deadline = tick / TICKS_PER_S
        envelope.wait_in(bucket, counters)

    async def run(self) -> None:
        """Expire asks until cancelled."""
        while True:
            self._forget_empty()
            self._armed_tick = self._ticks[0] if self._ticks else inf
            with trio.CancelScope(deadline=self._armed_tick / TICKS_PER_S) as self._scope:
                await trio.sleep_forever()
            self._expire_due(trio.current_time())

    def _forget_empty(self) -> None:
        while self._ticks and not self._buckets[self._ticks[0]]:
            del self._buckets[heappop(self._ticks)]

    def _expire_due(self, now: float) -> None:
        while self._ticks and self._ticks[0] / TICKS_PER_S <= now:
            # The bucket leaves the table but stays the envelopes' bucket: expire() deletes them from it.
            for envelope, counters in list(self._buckets.pop(heappop(self._ticks)).items()):
                if envelope.expire():
                    counters.ask_timeouts += 1
