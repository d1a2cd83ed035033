"""Allow one server per database: stop when another server has taken over, and wait for an earlier one before answering.

A server answers reads from memory, so a server that has lost its shards would give stale answers. Each server checks
the owner of the shards every second and stops as soon as it is another one. The server that takes over answers its
first call only after the earlier server has had time to detect the change.
"""

from functools import partial
from typing import Final, NoReturn

import structlog
import trio

from sightline.bootstrap.start_errors import TakenOverError
from sightline.domain.errors import SightlineError
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.shards import count_other_connections
from sightline.storage.postgres.store import PostgresStore
from sightline.system.loops import Backoff, run_forever

CHECK_EVERY_S: Final = 1.0
CHECK_BACKOFF: Final = Backoff(first_s=CHECK_EVERY_S, max_s=5.0)
HANDOVER_S: Final = 2.5
"""Two and a half check intervals: the longest time an earlier server with a working database needs to detect it."""
EXIT_FENCED: Final = 3
"""Exit code. A supervisor must not restart on it: the two servers would take the database from each other in turn."""

log = structlog.get_logger("sightline")


async def stop_when_fenced(store: PostgresStore) -> NoReturn:
    """Wait until another server has taken over the database.

    Raises:
        TakenOverError: A write was refused because of it, or the check found another owner (at most a second later).
            The caller then cuts every call in progress.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(run_forever, "fence_check", store.check_fence, every_s=CHECK_EVERY_S, backoff=CHECK_BACKOFF)
        )
        await store.fenced.wait()
        nursery.cancel_scope.cancel()
    raise TakenOverError("Another server has taken over this database. Run one server for each database.")


async def let_earlier_server_stop(database: Database) -> None:
    """Wait until no other server is connected, for at most HANDOVER_S. Call it after taking the shards."""
    with trio.move_on_after(HANDOVER_S):
        while True:
            try:
                if not await count_other_connections(database):
                    return
            except SightlineError as error:
                log.warning("other_servers_not_counted", error=str(error))
            log.info("waiting_for_earlier_server")
            await trio.sleep(CHECK_EVERY_S / 4)
