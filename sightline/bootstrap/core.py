"""The running parts of a server below HTTP, in five groups. `start.py` makes them."""

import socket
from pathlib import Path
from typing import Self, final

from sightline.actors.build import Actors
from sightline.actors.service.administration import Administration
from sightline.bootstrap.adapters.webhooks import Webhooks
from sightline.bootstrap.sampler import Sampler
from sightline.chain.refunds import Refunds
from sightline.chain.service import ChainService
from sightline.cluster.membership import ServiceMember
from sightline.cluster.video.backend import ClusterBackend
from sightline.config import Settings
from sightline.domain.value import Value
from sightline.ports.leases import ServerIdentity
from sightline.ports.relations import Relations
from sightline.ports.tracing import Tracer
from sightline.ports.video import LocalVideo, WatchAccess
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.administration import PostgresAdminStore
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.money.openings import PostgresOpenings
from sightline.storage.postgres.money.payments import PostgresPayments
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from sightline.storage.postgres.operations.withdrawals import WithdrawalLog
from sightline.storage.postgres.role_database import RoleDatabase
from sightline.storage.postgres.store import PostgresStore
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.lock import directory_id_of
from sightline.system.secrets import Secrets


@final
class Base(Value, kw_only=True):
    """What a server has before anything is started."""

    settings: Settings
    secrets: Secrets
    public_url: str
    clock: SystemClock
    ids: SystemIds
    server: ServerIdentity
    tracer: Tracer | None
    worker_directory: Path | None
    """The directory that a worker has locked. Its supervisor runs database and chain and rotates the logs.

    None: this process holds the data directory.
    """

    @classmethod
    def of(
        cls,
        settings: Settings,
        secrets: Secrets,
        *,
        public_url: str,
        internal_url: str,
        tracer: Tracer | None,
        worker_directory: Path | None,
        incarnation: str | None,
    ) -> Self:
        """Name this run.

        Args:
            internal_url: URL of the internal listener, as other servers reach it.
            incarnation: Names this run to the other servers; None: a new one.
        """
        ids = SystemIds()
        server = ServerIdentity(
            incarnation=incarnation or ids.uuid(),
            host=socket.gethostname(),
            directory_id=directory_id_of(worker_directory or settings.data_dir, ids),
            url=internal_url,
        )
        return cls(
            settings=settings,
            secrets=secrets,
            public_url=public_url,
            clock=SystemClock(),
            ids=ids,
            server=server,
            tracer=tracer,
            worker_directory=worker_directory,
        )

    @property
    def is_worker(self) -> bool:
        """Whether a supervisor runs database and chain."""
        return self.worker_directory is not None

    @property
    def own_directory(self) -> Path:
        """The directory that only this process writes."""
        return self.worker_directory or self.settings.data_dir


@final
class Stores(Value, kw_only=True):
    """What reads and writes the database."""

    database: Database
    rows: PostgresStore
    """Sessions, workspaces, heartbeats."""
    ledger: PostgresLedger
    openings: PostgresOpenings
    payments: PostgresPayments
    books: PostgresBooks
    relations: Relations
    administration: PostgresAdminStore
    withdrawals: WithdrawalLog
    outbox: RoleDatabase
    """Writes only while this server is the relayer."""
    wallets: RoleDatabase
    """Writes only while this server is the watcher."""


@final
class Video(Value, kw_only=True):
    """The video of the service, and this server's part of it."""

    service: ClusterBackend
    own: LocalVideo
    access: WatchAccess
    """To be connected to identity."""


@final
class Core(Value, kw_only=True):
    """What runs below HTTP: stores, chain, video, actors and their loops."""

    base: Base
    stores: Stores
    chain: ChainService
    refunds: Refunds
    video: Video
    membership: ServiceMember
    actors: Actors
    administration: Administration
    webhooks: Webhooks
    sampler: Sampler
