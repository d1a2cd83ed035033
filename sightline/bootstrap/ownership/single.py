"""Allow one server per database: join when no other server holds the lease; stop when another has taken over."""

from typing import Final, NoReturn, final

import structlog
import trio

from sightline.actors.build import Actors
from sightline.actors.other_servers import NoOtherServers
from sightline.actors.shards import OwnedShards
from sightline.bootstrap.retry import StartRetry
from sightline.bootstrap.start_errors import StartError, TakenOverError
from sightline.domain.errors import SightlineError
from sightline.ports.leases import HeldBy, ServerIdentity
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.leases import LeaseKeeper, PostgresLeases
from sightline.system.clock import boot_now_ms

JOIN_EVERY_S: Final = 0.5
LEAVE_TIMEOUT_S: Final = 2.0
EXIT_FENCED: Final = 3
"""Exit code after another server has taken over. The server may be started again: it waits, or joins the others."""

log = structlog.get_logger("sightline")


@final
class ShardOwnership:
    """The lease of this server, from joining to leaving."""

    peers: Final = None

    def __init__(self, database: Database, server: ServerIdentity) -> None:
        self.owned = OwnedShards()
        self.others = NoOtherServers()
        self._leases = PostgresLeases(database)
        self._database = database
        self._lost = trio.Event()
        self._server = server
        self._keeper: LeaseKeeper | None = None

    def bus_statistics(self) -> None:
        """There is no other server."""

    def is_valid(self) -> bool:
        """Whether this server holds a valid lease, so that what it has in memory is true."""
        return self._keeper is not None and self._keeper.is_valid()

    def note_fenced(self) -> None:
        """A write was refused because another server has taken shards."""
        self._lost.set()

    async def join(self, retry: StartRetry, *, patience_s: float) -> None:
        """Take every shard; wait while another server's lease is valid.

        Raises:
            StartError: Another server still held the lease after `patience_s`.
            StoreUnavailableError, OutcomeUnknownError: As `StartRetry.run`.
        """
        deadline = trio.current_time() + patience_s
        is_waiting = False
        while True:
            joined_at_ms = boot_now_ms()
            joined = await retry.run(lambda: self._leases.join(self._server))
            if not isinstance(joined, HeldBy):
                self._keeper = LeaseKeeper(
                    self._database, self._server.incarnation, joined_at_ms=joined_at_ms, lost=self._lost
                )
                self.owned.add(joined)
                return
            if trio.current_time() >= deadline:
                raise StartError(
                    f"Another server, on {joined.host}, uses this database. Stop it first; this server takes over when"
                    " the other one has stopped. Each server needs a database of its own."
                )
            if not is_waiting:
                is_waiting = True
                log.warning("waiting_for_other_server", host=joined.host, at_most_s=patience_s)
            await trio.sleep(JOIN_EVERY_S)

    def attach(self, actors: Actors) -> None:
        """Nothing to do: the actors recover everything when they start."""

    async def wait_complete(self, patience_s: float) -> None:
        """Nothing to do: this server owns all shards."""

    async def hand_over(self) -> None:
        """Nothing to do: there is no other server."""

    async def keep(self) -> NoReturn:
        """Renew the lease until another server has taken over.

        Raises:
            TakenOverError: A write was refused because of it, or the lease could not be renewed. The caller then cuts
                every call in progress.
        """
        assert self._keeper is not None, "not joined"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keeper.run)
            await self._lost.wait()
            nursery.cancel_scope.cancel()
        raise TakenOverError("Another server has taken over this database. Run one server for each database.")

    async def leave(self) -> None:
        """Give the lease up, so that the next server need not wait for its end. Errors are only logged."""
        with trio.move_on_after(LEAVE_TIMEOUT_S):
            try:
                await self._leases.leave(self._server.incarnation)
            except SightlineError as error:
                log.warning("lease_not_given_up", error=str(error))
