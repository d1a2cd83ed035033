"""One call, one effect: a repeat with the same idempotency key gets the answer that was recorded with the effect."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, final

from sightline.actors.refusals import IN_PROGRESS
from sightline.actors.types import Answer
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.ports.relations import Relations
from sightline.ports.store import IdempotencyKey, IdempotencyRecord, Store

MISMATCH: Final = Refusal(Code.CONFLICT, "idempotency:mismatch", "The key was used with another body")


@final
class Replays:
    """Looks up recorded answers and keeps two calls with one key from running at once."""

    def __init__(self, store: Store, relations: Relations) -> None:
        self._store = store
        self._relations = relations
        self._running: set[tuple[str, str, str, str]] = set()

    async def once(self, key: IdempotencyKey, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """Give the recorded answer, or act.

        Raises:
            RefusedError: CONFLICT, when the key was used with another body, or is being used now.
        """
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
                    # The first call may have taken effect since we looked: its caller left, or was told of no outcome.
                    record = await self._store.find_idempotent(key)
                    if record is None:
                        raise
            return self._replay(key, record)
        finally:
            self._running.discard(name)

    def _replay(self, key: IdempotencyKey, record: IdempotencyRecord) -> Answer:
        if record.key.body_hash != key.body_hash:
            raise RefusedError(MISMATCH)
        data: Any = record.result["data"]
        token = record.result["token"]
        if token is None and record.revision is not None:
            token = self._relations.token_for(record.revision)
        if "assignedAt" in data and data.get("state") == "ASSIGNED":
            data = {**data, "consistencyToken": token}
        return Answer(data, record.at_ms)
