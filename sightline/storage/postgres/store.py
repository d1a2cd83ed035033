"""The store port on Postgres. Each method is one unit of work."""

from collections.abc import Callable, Mapping, Sequence
from typing import final

from sightline.domain.conduct import Conduct
from sightline.domain.operator.model import Workspace
from sightline.domain.pricing import Quote
from sightline.domain.session.model import MediaCheckpoint, Session, SessionState
from sightline.domain.units import DAY_MS
from sightline.ports.store import (
    Committed,
    ConsumerDispatches,
    Heartbeat,
    HeartbeatWrite,
    IdempotencyKey,
    IdempotencyRecord,
    RecordedEvent,
    Rejected,
    RejectedAssignment,
    RejectedWhy,
    SessionQuery,
    SessionWrite,
    ShardLease,
    StoredSession,
    UnfinishedSession,
    WorkspaceWrite,
)
from sightline.storage.database.bridge import Database
from sightline.storage.database.group_commit import GroupCommit
from sightline.storage.database.group_read import GroupRead
from sightline.storage.database.in_doubt import WritesInDoubt
from sightline.storage.postgres import assignments, idempotency, quotes, session_lists, sessions, workspaces
from sightline.storage.postgres.commits import shard_of
from sightline.storage.postgres.heartbeats import HeartbeatTable


@final
class PostgresStore:
    """Durable state in Postgres. Safe for any number of tasks at once; see the port for what each method promises."""

    def __init__(self, database: Database, on_fenced: Callable[[], None] = lambda: None) -> None:
        """Create the store.

        Args:
            on_fenced: Called when a write was refused because another server has taken its shard.
        """
        self._database = database
        self._on_fenced = on_fenced
        self._in_doubt = WritesInDoubt(database)
        self._heartbeats = HeartbeatTable(database)
        self._session_steps = GroupCommit(database, sessions.WRITE, order=shard_of)
        self._workspace_steps = GroupCommit(database, workspaces.WRITE, order=shard_of)
        self._assignments = GroupCommit(database, assignments.WRITE, lead=assignments.lock_all_shards)
        self._quotes = GroupCommit(database, quotes.INSERT)
        self._demands: GroupRead[tuple[object, ...], int] = GroupRead(
            database, session_lists.find_demands, keys_max=session_lists.DEMANDS_MAX
        )
        self._workspaces: GroupRead[str, Workspace] = GroupRead(database, workspaces.find_workspaces)
        self._dispatches: GroupRead[str, ConsumerDispatches] = GroupRead(database, sessions.find_dispatches)

    def _noting_fence(self, result: Committed | Rejected) -> Committed | Rejected:
        if result == Rejected(RejectedWhy.FENCED):
            self._on_fenced()
        return result

    async def write_session(self, write: SessionWrite) -> Committed | Rejected:
        """Store one session step."""
        with self._in_doubt.noting((write.session.id,)):
            return self._noting_fence(await sessions.write_session(self._database, self._session_steps, write))

    async def load_session(self, session_id: str) -> StoredSession | None:
        """Read one session, after its writes in doubt have ended."""
        await self._in_doubt.settle(session_id)
        return await sessions.load_session(self._database, session_id)

    async def list_sessions(self, query: SessionQuery) -> Sequence[Session]:
        """Read one page."""
        return await session_lists.list_sessions(self._database, query)

    async def sessions_of_operator(self, workspace_id: str, state: SessionState) -> Sequence[str]:
        """Ids of the operator's sessions in a state."""
        return await sessions.sessions_of_operator(self._database, workspace_id, state)

    async def dispatches_of(self, consumer_workspace_id: str) -> ConsumerDispatches:
        """The consumer's dispatched sessions that are not started, and those that it abandoned."""
        return await self._dispatches.read(consumer_workspace_id) or ConsumerDispatches()

    async def unfinished_sessions(self, shard: int | None = None) -> Sequence[UnfinishedSession]:
        """Every session that is not terminal."""
        return await sessions.unfinished_sessions(self._database, shard)

    async def session_events(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> Sequence[RecordedEvent]:
        """Return the recorded events of a session after a sequence."""
        return await sessions.session_events(self._database, session_id, after=after, limit=limit)

    async def checkpoint_media(self, checkpoints: Mapping[str, MediaCheckpoint]) -> None:
        """Record when media was last proved."""
        await sessions.checkpoint_media(self._database, checkpoints)

    async def write_workspace(self, write: WorkspaceWrite) -> Committed | Rejected:
        """Store one workspace step."""
        with self._in_doubt.noting((write.workspace.id,)):
            return self._noting_fence(await workspaces.write_workspace(self._database, self._workspace_steps, write))

    async def write_assignment(
        self, session: SessionWrite, workspace: WorkspaceWrite
    ) -> Committed | RejectedAssignment:
        """Store an assignment with its claim."""
        with self._in_doubt.noting((session.session.id, workspace.workspace.id)):
            result = await assignments.write_assignment(self._assignments, session, workspace)
        if isinstance(result, RejectedAssignment) and RejectedWhy.FENCED in (result.session, result.workspace):
            self._on_fenced()
        return result

    async def load_workspace(self, workspace_id: str) -> Workspace | None:
        """Read one workspace. Concurrent reads share queries: after a restart all devices connect at once."""
        await self._in_doubt.settle(workspace_id)
        return await self._workspaces.read(workspace_id)

    async def workspaces(self, ids: Sequence[str]) -> Sequence[Workspace]:
        """Read several workspaces."""
        return await workspaces.workspaces(self._database, ids)

    async def suppliers(self, shard: int | None = None) -> Sequence[Workspace]:
        """Every supplier the dispatcher must know of."""
        return await workspaces.suppliers(self._database, shard)

    async def conducts(self, *, since_ms: int) -> Mapping[str, Conduct]:
        """The records of wallets."""
        return await workspaces.conducts(self._database, since_ms)

    async def save_conducts(self, conducts: Mapping[str, Conduct]) -> None:
        """Record the conduct of wallets."""
        await workspaces.save_conducts(self._database, conducts)

    async def append_heartbeats(self, batch: Sequence[HeartbeatWrite]) -> frozenset[ShardLease]:
        """Record the writes whose lease is still held; returns the leases that are lost."""
        with self._in_doubt.noting(beat.workspace_id for write in batch for beat in write.heartbeats):
            lost = await self._heartbeats.append(batch)
        if lost:
            self._on_fenced()
        return lost

    async def latest_heartbeat(self, workspace_id: str) -> Heartbeat | None:
        """The newest recorded heartbeat."""
        return await self._heartbeats.latest(workspace_id)

    async def insert_quote(self, quote: Quote) -> None:
        """Record a quote."""
        await quotes.insert_quote(self._quotes, quote)

    async def load_quote(self, quote_id: str) -> Quote | None:
        """Read a quote."""
        return await quotes.load_quote(self._database, quote_id)

    async def demand_near(
        self, *, lat: float, lng: float, within_m: float, since_ms: int, now_ms: int, not_of: str
    ) -> int:
        """Count the other funded consumer workspaces that wait near a point. Concurrent counts share a crossing."""
        found = await self._demands.read(
            session_lists.demand_columns(
                lat=lat, lng=lng, within_m=within_m, since_ms=since_ms, now_ms=now_ms, not_of=not_of
            )
        )
        assert found is not None, "a count has a row"
        return found

    async def is_funded(self, session_id: str, now_ms: int) -> bool:
        """Whether the payer's wallet covers the session's hold and all its holds together."""
        return await session_lists.is_funded(self._database, session_id, now_ms)

    async def find_idempotent(self, key: IdempotencyKey) -> IdempotencyRecord | None:
        """The record of a call."""
        return await idempotency.find_idempotent(self._database, key)

    async def record_idempotent(self, record: IdempotencyRecord) -> bool:
        """Keep the answer of a call."""
        return await idempotency.record_idempotent(self._database, record)

    async def make_heartbeat_days(self, now_ms: int) -> None:
        """Make the partitions of today and tomorrow."""
        today = now_ms // DAY_MS
        await self._heartbeats.make_days({today, today + 1})

    async def drop_heartbeat_days(self, now_ms: int, days: int) -> int:
        """Drop the partitions older than `days` full days before today; returns how many."""
        return await self._heartbeats.drop_days_before(now_ms // DAY_MS - days)
