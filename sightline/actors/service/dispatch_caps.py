"""Limits how many operators one consumer workspace may occupy by dispatch without a session being started.

Without it, a workspace that pays nothing could make every operator BUSY. The counts come from the store, so a restart
does not reset them. Dispatches of this process that are not stored yet are counted from memory.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.units import MINUTE_MS, SECOND_MS
from sightline.ports.clock import Clock
from sightline.ports.store import ABANDONED_READ, ConsumerDispatches, Store

ABANDONED_WINDOW_MS: Final = 10 * MINUTE_MS
"""`ABANDONED_READ` abandoned dispatches within this time start a cool-down."""
COOL_DOWN_MS: Final = MINUTE_MS
RETRY_S: Final = 5
"""Retry-After while too many are unstarted: operators normally start within seconds."""


@final
class DispatchCaps:
    """Admits the dispatches of one process."""

    def __init__(self, store: Store, clock: Clock, unstarted_max: int) -> None:
        """Create the caps.

        Args:
            unstarted_max: Dispatched sessions of one consumer that are not started; 0 admits everything.
        """
        self._store = store
        self._clock = clock
        self._unstarted_max = unstarted_max
        self._in_flight: dict[str, list[str]] = {}

    @contextmanager
    def dispatching(self, workspace_id: str, session_id: str) -> Iterator[frozenset[str]]:
        """Count a dispatch while it is in flight; yields those of the same consumer that began before it.

        Of several dispatches at once each counts those before it, so that together they cannot pass the limit.
        """
        in_flight = self._in_flight.setdefault(workspace_id, [])
        earlier = frozenset(in_flight)
        in_flight.append(session_id)
        try:
            yield earlier
        finally:
            in_flight.remove(session_id)
            if not in_flight:
                del self._in_flight[workspace_id]

    async def check(self, workspace_id: str, session_id: str, earlier: frozenset[str]) -> None:
        """Refuse a dispatch above the limit, or during a cool-down.

        Raises:
            RefusedError: RATE_LIMITED, with the seconds to wait.
        """
        if not self._unstarted_max:
            return
        found = await self._store.dispatches_of(workspace_id)
        wait_ms = cool_down_ms(found, self._clock.now_ms())
        if wait_ms > 0:
            raise RefusedError(
                Refusal(
                    Code.RATE_LIMITED,
                    "dispatch:abandoned",
                    f"{ABANDONED_READ} dispatched sessions of the workspace were not started lately",
                    retry_after_s=math.ceil(wait_ms / SECOND_MS),
                )
            )
        if len((found.unstarted | earlier) - {session_id}) >= self._unstarted_max:
            raise RefusedError(
                Refusal(
                    Code.RATE_LIMITED,
                    "dispatch:unstarted",
                    f"The workspace has {self._unstarted_max} dispatched sessions that are not started",
                    retry_after_s=RETRY_S,
                )
            )


def cool_down_ms(found: ConsumerDispatches, now_ms: int) -> int:
    """Milliseconds until the consumer may dispatch again; 0 or less: now."""
    abandoned = found.abandoned_at_ms
    if len(abandoned) < ABANDONED_READ or abandoned[0] - abandoned[-1] > ABANDONED_WINDOW_MS:
        return 0
    return abandoned[0] + COOL_DOWN_MS - now_ms
