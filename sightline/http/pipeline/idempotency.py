"""Idempotency of calls whose effect is no actor's: their answer is recorded right after the effect.

The effects of these calls are themselves repeatable (a member is a member, a revoked key stays revoked), so a crash
between effect and record changes nothing for a caller who repeats the call.
"""

from collections.abc import Awaitable, Callable
from typing import Final, final

import structlog

from sightline.actors.service.idempotency import Replays
from sightline.actors.types import Answer
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.ports.relations import Relations
from sightline.ports.store import IdempotencyKey, IdempotencyRecord, Store

NOT_REPLAYABLE: Final = Refusal(
    Code.CONFLICT, "idempotency:notReplayable", "The key was used; what it made was shown once and is not kept"
)

log = structlog.get_logger()


@final
class Once:
    """Gives the recorded answer to a repeated call."""

    def __init__(self, store: Store, relations: Relations) -> None:
        self._store = store
        self._replays = Replays(store, relations)

    async def recorded(self, key: IdempotencyKey | None, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """Act and record the answer, or give the recorded one."""
        if key is None:
            return await act()

        async def act_and_record() -> Answer:
            answer = await act()
            await self._record(key, answer)
            return answer

        return await self._replays.once(key, act_and_record)

    async def replayed(self, key: IdempotencyKey | None, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """Act, or give the recorded answer; `act` records it itself, with its effect."""
        return await act() if key is None else await self._replays.once(key, act)

    async def unrepeated(self, key: IdempotencyKey | None, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """Act, and only remember that it was done.

        Raises:
            RefusedError: CONFLICT `idempotency:notReplayable` when it was.
        """
        if key is None:
            return await act()
        is_fresh = False

        async def act_once() -> Answer:
            nonlocal is_fresh
            is_fresh = True
            answer = await act()
            try:
                await self._record(key, Answer({}, answer.at_ms))
            except (UnavailableError, OutcomeUnknownError) as error:
                # The caller must get what exists only here; a repeat may then make another one.
                log.warning("use_of_idempotency_key_not_recorded", reason=str(error))
            return answer

        answer = await self._replays.once(key, act_once)
        if not is_fresh:
            raise RefusedError(NOT_REPLAYABLE)
        return answer

    async def _record(self, key: IdempotencyKey, answer: Answer) -> None:
        result = {"data": answer.data, "token": None}
        await self._store.record_idempotent(IdempotencyRecord(key=key, result=result, at_ms=answer.at_ms))
