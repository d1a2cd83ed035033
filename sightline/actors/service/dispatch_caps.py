"""Limits how many operators one consumer workspace may occupy by dispatch without a session being started.

Without it, a workspace that pays nothing could make every operator BUSY. The counts come from the store, so a restart
does not reset them. The dispatcher, of which there is one for all servers, counts dispatches that are not stored yet.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, final

from sightline.actors.deps import DISPATCHER, Deps
from sightline.actors.kernel import Registry
from sightline.actors.messages import BeginDispatch, DispatchEnded
from sightline.actors.shards import DISPATCHER_ID
from sightline.domain.errors import OutcomeUnknownError, RefusedError, StoreUnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.units import MINUTE_MS, SECOND_MS
from sightline.ports.store import ABANDONED_READ, ConsumerDispatches

ABANDONED_WINDOW_MS: Final = 10 * MINUTE_MS
"""`ABANDONED_READ` abandoned dispatches within this time start a cool-down."""
COOL_DOWN_MS: Final = MINUTE_MS
RETRY_S: Final = 5
"""Retry-After while too many are unstarted: operators normally start within seconds."""


@final
class DispatchCaps:
    """Admits dispatches. `ActorLimits.unstarted_dispatches_max` 0 admits everything."""

    def __init__(self, registry: Registry, deps: Deps) -> None:
        self._registry = registry
        self._deps = deps
        self._unstarted_max = deps.limits.unstarted_dispatches_max

    @asynccontextmanager
    async def admitted(self, workspace_id: str, session_id: str) -> AsyncIterator[None]:
        """Admit a dispatch that runs within the block.

        Of several dispatches at once each counts those before it, so that together they cannot pass the limit.

        Raises:
            RefusedError: RATE_LIMITED, with the seconds to wait: the dispatch is above the limit, or in a cool-down.
            StoreUnavailableError: The dispatcher or the store did not answer.
        """
        if not self._unstarted_max:
            yield
            return
        dispatcher = self._registry.ref(DISPATCHER, DISPATCHER_ID)
        try:
            begin = BeginDispatch(workspace_id, session_id)
            earlier = await dispatcher.ask(begin, timeout_s=self._deps.limits.ask_timeout_s)
        except OutcomeUnknownError as error:
            raise StoreUnavailableError("the dispatcher did not answer in time") from error
        try:
            await self._check(workspace_id, session_id, earlier)
            yield
        finally:
            dispatcher.tell(DispatchEnded(workspace_id, session_id))

    async def _check(self, workspace_id: str, session_id: str, earlier: frozenset[str]) -> None:
        found = await self._deps.store.dispatches_of(workspace_id)
        wait_ms = cool_down_ms(found, self._deps.clock.now_ms())
        if wait_ms > 0:
            raise RefusedError(
                Refusal(
                    Code.RATE_LIMITED,
                    "dispatch:abandoned",
                    f"{ABANDONED_READ} dispatched sessions of the workspace were ended before their start, or were not "
                    "started in time, within 10 minutes",
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
