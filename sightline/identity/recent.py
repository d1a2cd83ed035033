"""Caches of identity: recently read credential rows, and last-use times that wait to be written."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar, final

import structlog

from sightline.domain.errors import OutcomeUnknownError, UnavailableError

log = structlog.get_logger()
K = TypeVar("K")
V = TypeVar("V")


@final
class RecentReads(Generic[K, V]):
    """A least-recently-used cache whose entries expire.

    Args:
        size_max: Entries kept; the least recently used one is evicted first.
        ttl_ms: Age at which an entry is no longer returned.
    """

    def __init__(self, *, size_max: int, ttl_ms: int) -> None:
        self._size_max = size_max
        self._ttl_ms = ttl_ms
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K, *, now_ms: int) -> V | None:
        """Return the entry if it is younger than the time to live."""
        entry = self._entries.get(key)
        # An entry from the future means that the clock was set back: its age is unknown, so it is not used.
        if entry is None or not 0 <= now_ms - entry[1] < self._ttl_ms:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, *, read_at_ms: int) -> None:
        """Store a row. `read_at_ms` is the time before the read began."""
        self._entries[key] = (value, read_at_ms)
        self._entries.move_to_end(key)
        if len(self._entries) > self._size_max:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        """Remove an entry if it exists."""
        self._entries.pop(key, None)


@final
class LastUses:
    """Collects last-use times in memory and writes them in batches, so that a request causes no write.

    Args:
        what: Kind of credential, for log events.
        write: Stores the times by id. Must be idempotent.
    """

    def __init__(self, what: str, write: Callable[[Mapping[str, int]], Awaitable[None]]) -> None:
        self._what = what
        self._write = write
        self._used_at_ms: dict[str, int] = {}

    def note(self, credential_id: str, at_ms: int) -> None:
        """Record a use."""
        self._used_at_ms[credential_id] = at_ms

    def last(self, credential_id: str) -> int:
        """Return the last use that is not yet written; 0 if there is none."""
        return self._used_at_ms.get(credential_id, 0)

    async def flush(self) -> None:
        """Write the collected times. They are kept for the next flush if the store fails or on cancellation."""
        used_at_ms, self._used_at_ms = self._used_at_ms, {}
        if not used_at_ms:
            return
        is_written = False
        try:
            await self._write(used_at_ms)
            is_written = True
        except (UnavailableError, OutcomeUnknownError) as error:
            log.warning("last_use_write_failed", credential=self._what, count=len(used_at_ms), reason=str(error))
        finally:
            if not is_written:
                self._used_at_ms = used_at_ms | self._used_at_ms
