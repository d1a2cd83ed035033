"""Group read: concurrent look-ups by key share one query."""

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any, Final, Generic, TypeVar, final

from sightline.storage.database.batching import BatchedCall, Batcher
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

K = TypeVar("K")
V = TypeVar("V")

READERS: Final = 2
KEYS_MAX: Final = 256


class _LookUp(BatchedCall, eq=False):
    key: Any = None
    found: Any = None
    error: Exception | None = None


@final
class GroupRead(Generic[K, V]):
    """Looks up one value by its key, for many callers in one query."""

    def __init__(
        self,
        database: Database,
        fetch: Callable[[Connection, Sequence[K]], Awaitable[dict[K, V]]],
        *,
        keys_max: int = KEYS_MAX,
    ) -> None:
        """Create a group read.

        Args:
            fetch: Reads several keys; a key without a value is left out.
            keys_max: Look-ups of one batch; bounds how long a look-up waits for the others.
        """
        self._database = database
        self._fetch = fetch
        self._batcher: Batcher[_LookUp] = Batcher(self._serve, at_once=READERS, batch_max=keys_max)

    async def read(self, key: K) -> V | None:
        """Find one value, read after the call began; None if there is none.

        Raises:
            StoreUnavailableError, StatementRefusedError: As `Database.read`, of the shared query.
        """
        look_up = _LookUp(key=key)
        await self._batcher.submit(look_up)
        if look_up.error is not None:
            # The error of the batch, as an exception of its own for each caller.
            raise copy(look_up.error) from look_up.error
        found: V | None = look_up.found
        return found

    async def _serve(self, batch: list[_LookUp]) -> None:
        keys: list[K] = list(dict.fromkeys(look_up.key for look_up in batch))
        try:
            found = await self._database.read(lambda connection: self._fetch(connection, keys))
        except Exception as error:  # noqa: BLE001  raised by each caller
            for look_up in batch:
                look_up.error = error
        else:
            for look_up in batch:
                look_up.found = found.get(look_up.key)
