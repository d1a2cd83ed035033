"""Live updates: the current state of a session or workspace, and every later change of it."""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Final, Literal, NamedTuple, TypeAlias, final

import trio

from sightline.actors.deps import SESSION, WORKSPACE
from sightline.actors.service.look_up import LookUp
from sightline.actors.service.reads import Reads
from sightline.actors.types import SessionListing
from sightline.actors.watchers import Change, Watch, Watchers
from sightline.domain.operator.model import Coverage, Workspace
from sightline.domain.session.messages import Party
from sightline.domain.session.model import SessionState
from sightline.domain.session.status import LocationStatus, MeterStatus, SessionStatus, parties_of
from sightline.domain.units import DAY_MS
from sightline.ports.clock import Clock
from sightline.ports.store import SessionView

LEASE_RENEWAL_S: Final = 5.0
"""Below the shortest consumer lease, 15 s."""
LOCATION_EVERY_S: Final = 1.0
FIRST_MAX: Final = 100
"""Maximum number of the workspace's own sessions, and of open requests, that a new stream starts with."""
OPEN_STATES: Final = frozenset({SessionState.REQUESTED, SessionState.ASSIGNED, SessionState.LIVE})


class ClosedRequest(NamedTuple):
    """A request that was reported and can no longer be accepted."""

    session_id: str


class ClosedAssignment(NamedTuple):
    """A session that was reported as an assignment and that the workspace no longer operates."""

    session_id: str


class Update(NamedTuple):
    """One part of the watched state."""

    kind: Literal[
        "session", "meter", "location", "workspace", "assignment", "assignmentClosed", "request", "requestClosed"
    ]
    value: SessionStatus | MeterStatus | LocationStatus | Workspace | ClosedAssignment | ClosedRequest


Updates: TypeAlias = AbstractAsyncContextManager[AsyncIterator[Update]]


@final
class LiveUpdates:
    """Subscriptions to sessions and workspaces."""

    def __init__(self, watchers: Watchers, look_up: LookUp, reads: Reads, clock: Clock) -> None:
        self._watchers = watchers
        self._look_up = look_up
        self._reads = reads
        self._clock = clock

    @asynccontextmanager
    async def watch_session(self, session_id: str, workspace_id: str) -> AsyncIterator[AsyncIterator[Update]]:
        """The session, its meter and the position of its device, now and after every change.

        Positions come at most once per `LOCATION_EVERY_S`; the latest is never left out.
        """
        session = await self._reads.require_session_as_party(session_id, workspace_id)

        patience_s = math.inf if session.terms.consumer_lease_s is None else LEASE_RENEWAL_S

        async def next_change(moves_from: float) -> Change:
            """Wait for a change; meanwhile renew the consumer lease, for as long as the stream is open."""
            while True:
                with trio.move_on_after(patience_s):
                    return await watch.change(moves_from)
                await self._reads.require_session_as_party(session_id, workspace_id)

        async def changes() -> AsyncGenerator[Update, None]:
            change, moves_from = Change(), -math.inf
            while True:
                if change.is_changed:
                    yield Update("session", (await self._reads.read_session(session_id, workspace_id)).value)
                    yield Update("meter", (await self._reads.meter(session_id, workspace_id)).value)
                if change.has_moved:
                    location = await self._reads.location(session_id, workspace_id)
                    if location is not None:
                        moves_from = trio.current_time() + LOCATION_EVERY_S
                        yield Update("location", location)
                change = await next_change(moves_from)

        with self._watchers.watch(SESSION, session_id) as watch:
            async with aclosing(changes()) as stream:
                yield stream

    @asynccontextmanager
    async def watch_workspace(self, workspace_id: str) -> AsyncIterator[AsyncIterator[Update]]:
        """The workspace, the sessions of both its sides, and open requests, now and after every change."""
        with self._watchers.watch(WORKSPACE, workspace_id) as watch:
            workspace = await self._look_up.require_workspace(workspace_id)
            followed = _WorkspaceUpdates(self._watchers, self._look_up, self._reads, self._clock, watch, workspace)
            async with aclosing(followed.all()) as stream:
                yield stream


@final
class _WorkspaceUpdates:
    """The updates of one stream of a workspace."""

    def __init__(
        self, watchers: Watchers, look_up: LookUp, reads: Reads, clock: Clock, watch: Watch, workspace: Workspace
    ) -> None:
        self._watchers = watchers
        self._look_up = look_up
        self._reads = reads
        self._clock = clock
        self._watch = watch
        self._id = workspace.id
        self._first = workspace
        self._coverage: Coverage | None = None
        self._told: set[str] = set()
        """Requests that the client knows as open."""
        self._open: dict[str, None] = {}
        """Sessions of the workspace that the client knows as open."""
        self._assigned: set[str] = set()
        """Open sessions that were sent to the client as `assignment`."""

    async def all(self) -> AsyncGenerator[Update, None]:
        """First the present state, then every change. An assignment that was taken is acknowledged."""
        async with aclosing(self._states()) as states:
            async for update in states:
                yield update
                if update.kind == "assignment":
                    assert isinstance(update.value, SessionStatus)
                    self._reads.acknowledge(update.value.terms.id, self._id)

    async def _states(self) -> AsyncGenerator[Update, None]:
        yield Update("workspace", self._first)
        for update in await self._sessions([*self._first.claims, *await self._own_sessions()]):
            yield update
        for update in await self._all_requests(self._first):
            yield update
        while True:
            change = await self._watch.change()
            sessions = change.sessions
            if change.is_changed:
                workspace = await self._look_up.require_workspace(self._id)
                yield Update("workspace", workspace)
                if workspace.coverage != self._coverage or change.is_incomplete:
                    for update in await self._all_requests(workspace):
                        yield update
                if change.is_incomplete:
                    sessions = (*self._open, *workspace.claims, *await self._own_sessions())
            # An operator that accepts a request learns first that it is closed, then of the assignment.
            for update in await self._requests(change.requests):
                yield update
            for update in await self._sessions(sessions):
                yield update

    async def _own_sessions(self) -> list[str]:
        """The sessions that the workspace has requested and that are not over."""
        if not self._first.is_consumer:
            return []
        listing = SessionListing(
            view=SessionView.CONSUMER,
            limit=FIRST_MAX,
            states=OPEN_STATES,
            # Bounds the index range that is read. No session is open for longer than this.
            created_after_ms=self._clock.now_ms() - DAY_MS,
        )
        page = await self._reads.list_sessions(self._id, listing)
        return [status.terms.id for status in page.items]

    async def _sessions(self, session_ids: Sequence[str]) -> list[Update]:
        """The session as `assignment` for the operator's side, as `session` for the consumer's.

        `assignmentClosed` after a decline or a withdrawal, which leave the session without its operator.
        """
        updates: list[Update] = []
        for session_id in dict.fromkeys(session_ids):
            session = await self._look_up.find_session(session_id)
            if session is None:
                continue
            sides, status = parties_of(session, self._id), self._reads.status_of(session, self._id)
            is_open = bool(sides) and status.state in OPEN_STATES
            if is_open:
                self._open[session_id] = None
            else:
                self._open.pop(session_id, None)
            if session_id in self._assigned and Party.OPERATOR not in sides:
                updates.append(Update("assignmentClosed", ClosedAssignment(session_id)))
            if is_open and Party.OPERATOR in sides:
                self._assigned.add(session_id)
            else:
                self._assigned.discard(session_id)
            updates += [Update("assignment", status)] if Party.OPERATOR in sides else []
            updates += [Update("session", status)] if Party.CONSUMER in sides else []
        return updates

    async def _all_requests(self, workspace: Workspace) -> list[Update]:
        """Follow the requests within the coverage of an operator, and return those that are open."""
        if not workspace.is_supplier:
            return []
        self._coverage = workspace.coverage
        self._watchers.report_requests(self._watch, workspace)
        page = await self._reads.list_sessions(self._id, SessionListing(view=SessionView.OPEN, limit=FIRST_MAX))
        opened = {status.terms.id: status for status in page.items}
        left = [Update("requestClosed", ClosedRequest(gone)) for gone in sorted(self._told - opened.keys())]
        fresh = [Update("request", status) for name, status in opened.items() if name not in self._told]
        self._told = set(opened)
        return [*left, *fresh]

    async def _requests(self, session_ids: Sequence[str]) -> list[Update]:
        updates: list[Update] = []
        for session_id in session_ids:
            session = await self._look_up.find_session(session_id)
            if session is not None and session.state is SessionState.REQUESTED and self._id not in session.unstarted_by:
                self._told.add(session_id)
                updates.append(Update("request", self._reads.status_of(session, self._id)))
            elif session_id in self._told:
                self._told.discard(session_id)
                updates.append(Update("requestClosed", ClosedRequest(session_id)))
        return updates
