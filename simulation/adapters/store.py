"""The store of one simulated server process: slow calls, refused calls, lost answers, or a dead process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from sightline.domain.conduct import Conduct
from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from simulation.faults import Faults, Outcome

if TYPE_CHECKING:
    from sightline.domain.errors import SightlineError
    from sightline.domain.operator.model import Workspace
    from sightline.domain.pricing import Quote
    from sightline.domain.session.model import MediaCheckpoint, Session, SessionState
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
        SessionQuery,
        SessionWrite,
        ShardLease,
        StoredSession,
        UnfinishedSession,
        WorkspaceWrite,
    )
    from simulation.history import History
    from simulation.memory.store import MemoryStore

T = TypeVar("T")

NO_ANSWER_S: Final = 5.0
"""After this time a call to an unreachable database fails."""


@final
class Process:
    """The connection between one server process and everything outside of it."""

    def __init__(self) -> None:
        self._is_dead = False
        self._pauses = 0
        self._resumed = trio.Event()
        self._resumed.set()

    def cut(self) -> None:
        """Kill the process: nothing that it does afterwards has any effect."""
        self._is_dead = True

    @property
    def is_dead(self) -> bool:
        """Whether the process was killed."""
        return self._is_dead

    @property
    def is_stopped(self) -> bool:
        """Whether the process is dead or paused."""
        return self._is_dead or self._pauses > 0

    def pause(self) -> None:
        """Pause the process; its calls wait until `resume`."""
        self._pauses += 1
        if self._pauses == 1:
            self._resumed = trio.Event()

    def resume(self) -> None:
        """End one pause. After the last one the process continues, without knowing how long it was paused."""
        self._pauses -= 1
        if not self._pauses:
            self._resumed.set()

    async def pass_through(self) -> None:
        """Wait until the process may communicate; never returns if the process is dead."""
        await self._resumed.wait()
        if self._is_dead:
            await trio.sleep_forever()


@final
class FaultyStore:
    """The Store port over an in-memory store that survives crashes of the server."""

    def __init__(
        self,
        inner: MemoryStore,
        faults: Faults,
        process: Process,
        history: History,
        owner: str,
        is_reachable: Callable[[], bool] = lambda: True,
    ) -> None:
        self._inner = inner
        self._faults = faults
        self._process = process
        self._history = history
        self._owner = owner
        self._is_reachable = is_reachable

    async def _read(self, act: Callable[[], Awaitable[T]]) -> T:
        await self._travel()
        await self._require_reachable(StoreUnavailableError("simulated: the database cannot be reached"))
        if self._faults.read_fails():
            self._history.truth.disturbed_ms = self._history.clock.now_ms()
            raise StoreUnavailableError("simulated: the read was refused")
        found = await act()
        await self._travel()
        await self._require_reachable(StoreUnavailableError("simulated: the database cannot be reached"))
        return found

    async def _write(self, act: Callable[[], Awaitable[T]], note: Callable[[T], None]) -> T:
        outcome = self._faults.write_outcome()
        if outcome is not Outcome.FINE:
            self._history.truth.disturbed_ms = self._history.clock.now_ms()
        await self._travel()
        await self._require_reachable(StoreUnavailableError("simulated: the database cannot be reached"))
        if outcome is Outcome.REFUSED:
            raise StoreUnavailableError("simulated: the write was refused")
        if outcome is not Outcome.UNKNOWN_LOST:
            result = await act()
            # In the same step as the commit: the checkers see what every reader sees from now on.
            note(result)
            await self._travel()
            await self._require_reachable(OutcomeUnknownError("simulated: the answer to the write was lost"))
            if outcome is Outcome.FINE:
                return result
        else:
            await self._travel()
        raise OutcomeUnknownError("simulated: the answer to the write was lost")

    async def _travel(self) -> None:
        await self._process.pass_through()
        await trio.sleep(self._faults.latency_s())
        await self._process.pass_through()

    async def _require_reachable(self, error: SightlineError) -> None:
        """Fail after a while if the server is cut off the database."""
        if not self._is_reachable():
            await trio.sleep(NO_ANSWER_S)
            raise error

    async def write_session(self, write: SessionWrite) -> Committed | Rejected:
        """Store one session step."""
        return await self._write(
            lambda: self._inner.write_session(write),
            lambda result: self._history.session_written(self._owner, write, result),
        )

    async def write_workspace(self, write: WorkspaceWrite) -> Committed | Rejected:
        """Store one workspace step."""
        return await self._write(
            lambda: self._inner.write_workspace(write),
            lambda result: self._history.workspace_written(self._owner, write, result),
        )

    async def write_assignment(
        self, session: SessionWrite, workspace: WorkspaceWrite
    ) -> Committed | RejectedAssignment:
        """Store an assignment with its claim."""
        return await self._write(
            lambda: self._inner.write_assignment(session, workspace),
            lambda result: self._history.assignment_written(self._owner, session, workspace, result),
        )

    async def append_heartbeats(self, batch: Sequence[HeartbeatWrite]) -> frozenset[ShardLease]:
        """Record the heartbeats of the leases that are held."""
        lost = await self._write(
            lambda: self._inner.append_heartbeats(batch),
            lambda lost: self._history.heartbeats_written(self._owner, _of_held(batch, lost)),
        )
        self._history.heartbeats_answered(_of_held(batch, lost))
        return lost

    async def checkpoint_media(self, checkpoints: Mapping[str, MediaCheckpoint]) -> None:
        """Record checkpoints of media."""
        await self._write(lambda: self._inner.checkpoint_media(checkpoints), lambda _: None)

    async def insert_quote(self, quote: Quote) -> None:
        """Record a quote."""
        await self._write(lambda: self._inner.insert_quote(quote), lambda _: None)

    async def record_idempotent(self, record: IdempotencyRecord) -> bool:
        """Record the answer of a call."""
        return await self._write(lambda: self._inner.record_idempotent(record), lambda _: None)

    async def load_session(self, session_id: str) -> StoredSession | None:
        """Read one session."""
        return await self._read(lambda: self._inner.load_session(session_id))

    async def list_sessions(self, query: SessionQuery) -> Sequence[Session]:
        """Read one page of sessions."""
        return await self._read(lambda: self._inner.list_sessions(query))

    async def sessions_of_operator(self, workspace_id: str, state: SessionState) -> Sequence[str]:
        """List the ids of the operator's sessions in a state."""
        return await self._read(lambda: self._inner.sessions_of_operator(workspace_id, state))

    async def dispatches_of(self, consumer_workspace_id: str) -> ConsumerDispatches:
        """The consumer's dispatched sessions that are not started, and those that it abandoned."""
        return await self._read(lambda: self._inner.dispatches_of(consumer_workspace_id))

    async def unfinished_sessions(self, shard: int | None = None) -> Sequence[UnfinishedSession]:
        """List every session that is not terminal."""
        return await self._read(lambda: self._inner.unfinished_sessions(shard))

    async def session_events(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> Sequence[RecordedEvent]:
        """List the recorded events of a session after a sequence."""
        return await self._read(lambda: self._inner.session_events(session_id, after=after, limit=limit))

    async def load_workspace(self, workspace_id: str) -> Workspace | None:
        """Read one workspace."""
        return await self._read(lambda: self._inner.load_workspace(workspace_id))

    async def workspaces(self, ids: Sequence[str]) -> Sequence[Workspace]:
        """Read several workspaces."""
        return await self._read(lambda: self._inner.workspaces(ids))

    async def suppliers(self, shard: int | None = None) -> Sequence[Workspace]:
        """List every supplier that the dispatcher needs."""
        return await self._read(lambda: self._inner.suppliers(shard))

    async def conducts(self, *, since_ms: int) -> Mapping[str, Conduct]:
        """Read the records of wallets."""
        return await self._read(lambda: self._inner.conducts(since_ms=since_ms))

    async def save_conducts(self, conducts: Mapping[str, Conduct]) -> None:
        """Record the conduct of wallets."""
        await self._read(lambda: self._inner.save_conducts(conducts))

    async def latest_heartbeat(self, workspace_id: str) -> Heartbeat | None:
        """Read the newest recorded heartbeat."""
        return await self._read(lambda: self._inner.latest_heartbeat(workspace_id))

    async def load_quote(self, quote_id: str) -> Quote | None:
        """Read a quote."""
        return await self._read(lambda: self._inner.load_quote(quote_id))

    async def demand_near(
        self, *, lat: float, lng: float, within_m: float, since_ms: int, now_ms: int, not_of: str
    ) -> int:
        """Count the funded consumer workspaces that wait near a point."""
        return await self._read(
            lambda: self._inner.demand_near(
                lat=lat, lng=lng, within_m=within_m, since_ms=since_ms, now_ms=now_ms, not_of=not_of
            )
        )

    async def is_funded(self, session_id: str, now_ms: int) -> bool:
        """Tell whether the session's payer can pay."""
        return await self._read(lambda: self._inner.is_funded(session_id, now_ms))

    async def find_idempotent(self, key: IdempotencyKey) -> IdempotencyRecord | None:
        """Find the record of a call."""
        return await self._read(lambda: self._inner.find_idempotent(key))


def _of_held(batch: Sequence[HeartbeatWrite], lost: frozenset[ShardLease]) -> list[Heartbeat]:
    """The heartbeats of the writes whose lease is held."""
    return [heartbeat for write in batch if write.lease not in lost for heartbeat in write.heartbeats]
