"""Idempotency: a repeat with the same key is answered from the record that was stored with the first call's effect."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.ports.store import IN_PROGRESS, IdempotencyKey, IdempotencyRecord, Store

T = TypeVar("T")

MISMATCH: Final = Refusal(
    Code.CONFLICT, "idempotency:mismatch", "The Idempotency-Key was used before with another request body"
)


@final
class Replays:
    """Looks up recorded answers, and lets only one call run per key."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: set[tuple[str, str, str, str]] = set()

    async def once(
        self,
        key: IdempotencyKey | None,
        act: Callable[[], Awaitable[T]],
        answer_of: Callable[[IdempotencyRecord], T],
        catch_up: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Return the recorded answer of an earlier call with this key, else run `act`, which records its answer.

        Args:
            catch_up: Returns when the actor has ended the turn that stored the record. Until then the actor may wait
                for the database's answer, and a read after the repeat would show the state before the call.

        Raises:
            RefusedError: CONFLICT when the key was used with another body, or a call with it is still running.
        """
        if key is None:
            return await act()
        name = (key.workspace_id, key.method, key.path, key.key)
        if name in self._running:
            raise RefusedError(IN_PROGRESS)
        self._running.add(name)
        try:
            record = await self._store.find_idempotent(key)
            if record is None:
                try:
                    return await act()
                except RefusedError:
                    # An earlier call whose outcome was unknown to its caller may have taken effect since the look-up.
                    record = await self._store.find_idempotent(key)
                    if record is None:
                        raise
            elif catch_up is not None:
                await catch_up()
        finally:
            self._running.discard(name)
        if record.key.body_hash != key.body_hash:
            raise RefusedError(MISMATCH)
        return answer_of(record)
