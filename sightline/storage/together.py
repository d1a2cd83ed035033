"""Callers that come together are served together, as one batch.

While `at_once` batches are under way, further callers gather, and go as one batch when a place is free. A lone caller
never waits: with a free place it goes at once, alone.

There is no task of its own. The caller that finds a free place leads: it takes along what has gathered, and when its
batch is done it hands the place to the first that waits.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, final

import trio

from sightline.domain.errors import StoreUnavailableError
from sightline.storage.bridge import Database
from sightline.storage.pool import Connection

K = TypeVar("K")
V = TypeVar("V")

READERS: Final = 2
KEYS_MAX: Final = 256


@dataclass(eq=False, slots=True)
class Caller:
    """One who gathers with others. Subclasses say what it wants and what it got."""

    woken: trio.Event = field(default_factory=trio.Event)
    leads: bool = False


C = TypeVar("C", bound=Caller)


@final
class Together(Generic[C]):
    """Gathers callers and has them served in batches."""

    def __init__(self, serve: Callable[[list[C]], Awaitable[None]], *, at_once: int, batch_max: int) -> None:
        """Prepare.

        Args:
            serve: Serves a batch and notes in each caller what it got, its error too; raises nothing.
        """
        self._serve = serve
        self._batch_max = batch_max
        self._free = at_once
        self._gathered: deque[C] = deque()

    async def join(self, caller: C) -> None:
        """Be served.

        Cancellation: obeyed while gathered, and nothing is done for the caller then; its batch is awaited otherwise.
        """
        self._gathered.append(caller)
        if self._free:
            self._free -= 1
            await self._lead()
        else:
            await self._await_turn(caller)

    async def _await_turn(self, caller: C) -> None:
        try:
            await caller.woken.wait()
        except trio.Cancelled:
            if caller in self._gathered:
                self._gathered.remove(caller)
                if caller.leads:
                    # Named heir between the cancellation and this line: the place must not be lost.
                    self._pass_on()
                raise
            # It is on its way with others: its outcome is awaited, as that of any statement that was sent.
            with trio.CancelScope(shield=True):
                await caller.woken.wait()
        if caller.leads:
            await self._lead()

    async def _lead(self) -> None:
        """Serve what has gathered, tell everybody, and pass the place on."""
        batch = [self._gathered.popleft() for _ in range(min(self._batch_max, len(self._gathered)))]
        try:
            # Shielded: others depend on it. It ends within the deadline of a unit of work.
            with trio.CancelScope(shield=True):
                await self._serve(batch)
        finally:
            for caller in batch:
                caller.woken.set()
            self._pass_on()

    def _pass_on(self) -> None:
        if not self._gathered:
            self._free += 1
            return
        heir = self._gathered[0]
        heir.leads = True
        heir.woken.set()


@dataclass(eq=False, slots=True)
class _Wanted(Caller):
    key: Any = None
    found: Any = None
    error: Exception | None = None


@final
class GroupRead(Generic[K, V]):
    """Looks up one thing by its key, for many callers in one query."""

    def __init__(self, database: Database, fetch: Callable[[Connection, Sequence[K]], Awaitable[dict[K, V]]]) -> None:
        """Prepare.

        Args:
            fetch: Reads several; what is not there is left out.
        """
        self._database = database
        self._fetch = fetch
        self._together: Together[_Wanted] = Together(self._serve, at_once=READERS, batch_max=KEYS_MAX)

    async def read(self, key: K) -> V | None:
        """Find one, as it is after the call began; None if it is not there.

        Raises:
            StoreUnavailableError: As `Database.read`; also when the shared query failed.
        """
        wanted = _Wanted(key=key)
        await self._together.join(wanted)
        if wanted.error is not None:
            # One error for all of a batch, an exception of its own for each.
            raise StoreUnavailableError(*wanted.error.args) from wanted.error
        found: V | None = wanted.found
        return found

    async def _serve(self, batch: list[_Wanted]) -> None:
        keys: list[K] = list(dict.fromkeys(wanted.key for wanted in batch))
        try:
            found = await self._database.read(lambda connection: self._fetch(connection, keys))
        except Exception as error:  # noqa: BLE001  raised by each caller
            for wanted in batch:
                wanted.error = error
        else:
            for wanted in batch:
                wanted.found = found.get(wanted.key)
