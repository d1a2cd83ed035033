"""Idempotency of calls that no actor handles: their reply is recorded after the effect.

The effects of these calls are repeatable by themselves (adding a member, revoking a key), so a crash between the
effect and its record changes nothing for a caller that repeats the call.
"""

from collections.abc import Awaitable, Callable
from typing import Any, final

import structlog

from sightline.actors.answers import NOT_REPLAYABLE
from sightline.actors.service.idempotency import Replays
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.http.pipeline.call import Reply
from sightline.ports.clock import Clock
from sightline.ports.store import IdempotencyKey, IdempotencyRecord, Store

log = structlog.get_logger()


@final
class Idempotency:
    """Replays recorded replies."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._replays = Replays(store)

    async def recorded(self, key: IdempotencyKey | None, act: Callable[[], Awaitable[Reply]]) -> Reply:
        """Return the recorded reply of an earlier call with this key, else run `act` and record its reply."""

        async def act_and_record() -> Reply:
            reply = await act()
            if key is None:
                return reply
            now_ms = self._clock.now_ms()
            await self._record(key, {"data": reply.data}, now_ms)
            return Reply(reply.data, now_ms)

        return await self._replays.once(key, act_and_record, _recorded_reply)

    async def once(self, key: IdempotencyKey | None, act: Callable[[], Awaitable[Reply]]) -> Reply:
        """Run `act` and record that it was done, without its reply, which holds a secret.

        Raises:
            RefusedError: CONFLICT `idempotency:notReplayable` for a repeat.
        """

        async def act_and_mark() -> Reply:
            reply = await act()
            if key is not None:
                try:
                    await self._record(key, {}, self._clock.now_ms())
                except (UnavailableError, OutcomeUnknownError) as error:
                    # The reply exists only here and must reach the caller, although a repeat may make another key.
                    log.warning("idempotency_record_failed", reason=str(error))
            return reply

        return await self._replays.once(key, act_and_mark, _refuse_replay)

    async def _record(self, key: IdempotencyKey, result: dict[str, object], at_ms: int) -> None:
        await self._store.record_idempotent(IdempotencyRecord(key=key, result=result, at_ms=at_ms))


def _recorded_reply(record: IdempotencyRecord) -> Reply:
    data: Any = record.result["data"]
    return Reply(data, record.at_ms)


def _refuse_replay(_record: IdempotencyRecord) -> Reply:
    raise RefusedError(NOT_REPLAYABLE)
