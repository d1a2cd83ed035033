"""One server per database: stop when another one has taken over, and let an earlier one stop before this one answers.

A server answers reads from memory, so a server that has lost its shards tells callers what is no longer true. It looks
at the owner each second and stops at the first sign. The server that takes over answers its first call only after the
earlier one has had time to notice.
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
"""Two checks and a half: the longest that an earlier server with a working database needs to notice."""
EXIT_FENCED: Final = 3
"""Exit code. A supervisor must not restart on it: the restarted server would take the database back, and so on."""

log = structlog.get_logger("sightline")


async def stop_when_fenced(store: PostgresStore) -> NoReturn:
    """Wait until another server has taken over.

    Raises:
        TakenOverError: As soon as a write is refused for it, or within a second. Every call in progress is cut.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(run_forever, "fence_check", store.check_fence, every_s=CHECK_EVERY_S, backoff=CHECK_BACKOFF)
        )
        await store.fenced.wait()
        nursery.cancel_scope.cancel()
    raise TakenOverError("Another server has taken over this database. Run one server for each database.")


async def let_earlier_server_stop(database: Database) -> None:
    """After taking the shards: wait until no other server is connected, for HANDOVER_S at most."""
    with trio.move_on_after(HANDOVER_S):
        while True:
            try:
                if not await count_other_connections(database):
                    return
            except SightlineError as error:
                log.warning("other_servers_not_counted", error=str(error))
            log.info("waiting_for_earlier_server")
            await trio.sleep(CHECK_EVERY_S / 4)
