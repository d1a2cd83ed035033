"""Ends the backends that may still commit a write of unknown outcome, before the row of that write is read again.

A connection that was lost in mid-write leaves a backend that may still run: stopped, waiting for a lock, or with the
statement unread in its socket. If an actor loads its row before that backend commits, it acts on the state before the
commit: it offers an operator again that is about to be LIVE, or reports a session as missing that is about to exist.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, final

import trio

from sightline.domain.errors import StoreUnavailableError
from sightline.storage.database.bridge import Database
from sightline.storage.database.work import CommitInDoubtError

END_TIMEOUT_MS: Final = 2_000

# A process id may belong to a newer backend by now, or after a failover to any process of another database server: only
# an older backend of this server is ended. `pg_terminate_backend` with a timeout returns whether it has ended.
_END: Final = """
SELECT count(*) FILTER (WHERE NOT pg_terminate_backend(pid, $2)) FROM pg_stat_activity, unnest($1::int[], $3::float8[])
  AS doubt(backend, age_s)
WHERE pid = backend AND application_name = current_setting('application_name')
  AND backend_start < clock_timestamp() - make_interval(secs => age_s)
"""


@final
class WritesInDoubt:
    """Remembers for each key (the id of a session or workspace) the backends of its writes in doubt."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backends: defaultdict[str, dict[int, float]] = defaultdict(dict)

    @contextmanager
    def noting(self, keys: Iterable[str]) -> Iterator[None]:
        """Remember the backend if the write in the block ends in doubt."""
        try:
            yield
        except CommitInDoubtError as error:
            for key in keys:
                self._backends[key][error.backend_pid] = trio.current_time()
            raise

    async def settle(self, key: str) -> None:
        """End the backends in doubt, so that a read that follows sees the final state. Free without a doubt.

        Raises:
            StoreUnavailableError: A backend has not ended yet, or the database did not answer; try again later.
        """
        doubted = self._backends.get(key)
        if not doubted:
            return
        pids = list(doubted)
        now_s = trio.current_time()
        ages_s = [now_s - doubted[pid] for pid in pids]
        running = await self._database.read(lambda connection: connection.fetchval(_END, pids, END_TIMEOUT_MS, ages_s))
        if running:
            raise StoreUnavailableError("a write in doubt is still running in the database")
        for pid in pids:  # a write that came into doubt meanwhile stays
            doubted.pop(pid, None)
        if not doubted:
            self._backends.pop(key, None)
