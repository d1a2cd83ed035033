"""Figures that need a query: counted every few seconds, so that a scrape of /metrics never waits."""

from typing import Final, final

import trio
from msgspec import field

from sightline.actors.shards import OwnedShards
from sightline.chain.service import ChainService, RelayerCoin
from sightline.domain.books.differences import BooksCheck
from sightline.domain.errors import SightlineError
from sightline.domain.value import Value
from sightline.ports.clock import Clock
from sightline.ports.leases import ServerRole
from sightline.ports.video import VideoBackend
from sightline.storage.database.bridge import Database
from sightline.storage.database.durability import settings_not_durable
from sightline.storage.database.url import urls_of_hosts
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from sightline.storage.postgres.operations.counts import Counts, read_counts
from sightline.video.embedded import EmbeddedBackend

SAMPLE_EVERY_S: Final = 10.0
COIN_EVERY_S: Final = 60.0
"""How often the chain is asked for the relayer's coin and present prices: seven requests, which a provider counts."""


@final
class Figures(Value, kw_only=True):
    """The last sample. A figure whose source did not answer keeps its earlier value."""

    counts: Counts = field(default_factory=Counts)
    video: dict[str, int] = field(default_factory=dict)
    """Sums over the video workers."""
    relayer_coin: RelayerCoin | None = None
    books: BooksCheck | None = None
    """The last comparison of the books with the chain, of whichever server."""
    not_durable: tuple[str, ...] = ()
    """Settings of the database server that give up durability."""
    counted_at_ms: int = 0
    """When the database was last counted; 0: not by this server."""


@final
class Sampler:
    """Takes samples. `run_once` is called every SAMPLE_EVERY_S.

    What concerns all servers is counted by one: rows by the one that keeps house, the relayer's coin by the relayer's.
    """

    def __init__(
        self, database: Database, video: VideoBackend, chain: ChainService, clock: Clock, owned: OwnedShards
    ) -> None:
        self._owned = owned
        self._database = database
        self._has_standby = len(urls_of_hosts(database.options.pool.dsn)) > 1
        self._books = PostgresBooks(database)
        self._video = video
        self._chain = chain
        self._clock = clock
        self._coin_due_s = 0.0
        self.figures = Figures()

    async def run_once(self) -> None:
        """Take a sample.

        Raises:
            SightlineError: A source did not answer; the figures of the others are taken.
        """
        failure: SightlineError | None = None
        counts, video, coin = self.figures.counts, self.figures.video, self.figures.relayer_coin
        books: BooksCheck | None = None
        counted_at_ms, not_durable = self.figures.counted_at_ms, self.figures.not_durable
        try:
            not_durable = await settings_not_durable(self._database, has_standby=self._has_standby)
        except SightlineError as error:
            failure = error
        if self._owned.role_lease(ServerRole.HOUSEKEEPING) is None:
            counted_at_ms = 0
        else:
            try:
                counts = await read_counts(self._database)
                books = await self._books.last_check()
                counted_at_ms = self._clock.now_ms()
            except SightlineError as error:
                failure = error
        await self._chain.probe_signers()
        if self._owned.role_lease(ServerRole.RELAYER) is None:
            coin = None
        elif coin is None or trio.current_time() >= self._coin_due_s:
            try:
                coin = await self._chain.relayer_coin()
                self._coin_due_s = trio.current_time() + COIN_EVERY_S
            except SightlineError as error:
                failure = error
        if isinstance(self._video, EmbeddedBackend):
            try:
                video = _sums(await self._video.stats())
            except SightlineError as error:
                failure = error
        self.figures = Figures(
            counts=counts,
            books=books,
            video=video,
            relayer_coin=coin,
            not_durable=not_durable,
            counted_at_ms=counted_at_ms,
        )
        if failure is not None:
            raise failure


def _sums(rows: list[dict[str, int]]) -> dict[str, int]:
    names = {name for row in rows for name in row} - {"worker", "pid"}
    return {name: sum(int(row.get(name, 0)) for row in rows) for name in sorted(names)}
