"""Idempotency of calls that no actor handles.

The effects of most of these calls are repeatable by themselves (adding a member, revoking a key): their reply is
recorded after the effect, and a crash between the two changes nothing for a caller that repeats the call. Calls that
make a secret are recorded in the transaction of their effect instead.
"""

from collections.abc import Awaitable, Callable
from typing import Any, final

from sightline.actors.answers import NOT_REPLAYABLE
from sightline.actors.service.idempotency import Replays
from sightline.domain.errors import RefusedError
from sightline.http.pipeline.call import Reply
from sightline.ports.clock import Clock
from sightline.ports.store import IdempotencyKey, IdempotencyRecord, Store


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

    async def once(
        self, key: IdempotencyKey | None, act: Callable[[IdempotencyRecord | None], Awaitable[Reply]]
    ) -> Reply:
        """Run `act`, whose reply holds a secret and is not recorded.

        `act` stores the record that it is given in the transaction of its effect. Of two calls with one key, at one
        server or at two, one takes effect.

        Raises:
            RefusedError: CONFLICT `idempotency:notReplayable` for a repeat.
        """
        record = None if key is None else IdempotencyRecord(key=key, result={}, at_ms=self._clock.now_ms())
        return await self._replays.once(key, lambda: act(record), _refuse_replay)

    async def _record(self, key: IdempotencyKey, result: dict[str, object], at_ms: int) -> None:
        await self._store.record_idempotent(IdempotencyRecord(key=key, result=result, at_ms=at_ms))


def _recorded_reply(record: IdempotencyRecord) -> Reply:
    data: Any = record.result["data"]
    return Reply(data, record.at_ms)


def _refuse_replay(_record: IdempotencyRecord) -> Reply:
    raise RefusedError(NOT_REPLAYABLE)
