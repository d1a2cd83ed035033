"""Queries of sessions and workspaces, limited to what the caller's workspace may see."""

from collections.abc import Sequence
from typing import Final, final

from sightline.actors.deps import DISPATCHER, SESSION, Deps
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import GetConduct, OperatorAcknowledged
from sightline.actors.refusals import NOT_PARTY
from sightline.actors.service.look_up import LookUp
from sightline.actors.service.snapshots import Snapshots
from sightline.actors.session.consumer_presence import note_picture, renew_lease
from sightline.actors.shards import DISPATCHER_ID
from sightline.actors.types import Answer, LiveFeed, SessionHistory, SessionListing, SessionPage
from sightline.domain.errors import RefusedError, SightlineError
from sightline.domain.operator.model import Availability, Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.machine import deadline_ms, live_reading
from sightline.domain.session.model import Assigned, Live, Requested, Session, SessionState
from sightline.domain.session.status import (
    LocationStatus,
    MeterStatus,
    SessionStatus,
    meter_state,
    meter_status,
    parties_of,
    session_status,
)
from sightline.domain.value import replace
from sightline.ports.store import SessionKey, SessionQuery, SessionView

CONDUCT_TIMEOUT_S: Final = 3.0
"""How long a read of a workspace waits for the dispatcher, which may be moving to another server."""
LIST_READS_MAX: Final = 20
"""Reads of the store for one page; where most of what is read has left the wanted states, the page comes out short."""


@final
class Reads:
    """Answers questions.

    A question of the consumer about a LIVE session renews the session's consumer lease. One of the operator about a
    dispatched session acknowledges the dispatch.
    """

    def __init__(self, registry: Registry, deps: Deps, look_up: LookUp, snapshots: Snapshots) -> None:
        self._registry = registry
        self._snapshots = snapshots
        self._deps = deps
        self._look_up = look_up

    async def read_session(self, session_id: str, workspace_id: str) -> Answer[SessionStatus]:
        """The session, for a party of it, or while REQUESTED for an operator that covers its point."""
        session = await self._look_up.require_session(session_id)
        if not parties_of(session, workspace_id) and not await self._may_accept(session, workspace_id):
            raise RefusedError(NOT_PARTY)
        self._note_caller(session, workspace_id)
        now_ms = self._now()
        return Answer(session_status(session, now_ms, self._deps.limits.session, workspace_id), now_ms)

    async def list_sessions(self, workspace_id: str, listing: SessionListing) -> SessionPage:
        """A page of sessions, newest first."""
        coverage = None
        if listing.view is SessionView.OPEN:
            circle = (await self._look_up.require_operator(workspace_id)).coverage
            coverage = (circle.lat, circle.lng, circle.radius_m) if circle is not None else None
        query = SessionQuery(
            workspace_id=workspace_id,
            view=listing.view,
            now_ms=self._now(),
            limit=listing.limit + 1,
            states=_states_to_look_at(listing.states),
            created_after_ms=listing.created_after_ms,
            created_before_ms=listing.created_before_ms,
            after=listing.after,
            coverage=coverage,
        )
        items: list[SessionStatus] = []
        for _ in range(LIST_READS_MAX):
            found = await self._deps.store.list_sessions(query)
            newer = await self._snapshots.sessions(session.id for session in found if not session.is_terminal)
            for session in found:
                if len(items) == listing.limit:
                    return SessionPage(items, query.after)
                status = await self._listed(session, newer.get(session.id), workspace_id)
                is_still_open = listing.view is not SessionView.OPEN or (
                    status.state is SessionState.REQUESTED and workspace_id not in session.unstarted_by
                )
                if is_still_open and (not listing.states or status.state in listing.states):
                    items.append(status)
                query = replace(query, after=SessionKey(session.terms.created_at_ms, session.id))
            if len(found) < query.limit:
                return SessionPage(items, None)
        return SessionPage(items, query.after)

    async def live_feed(self, session_id: str, workspace_id: str) -> LiveFeed:
        """The feed of a LIVE session, for a party of it."""
        session = await self.require_session_as_party(session_id, workspace_id)
        phase = session.phase
        if not isinstance(phase, Live):
            message = f"The session is {session.state}, not LIVE"
            raise RefusedError(Refusal(Code.INVALID_STATE, "session:notLive", message, state=session.state))
        reading = live_reading(session.terms, phase, self._now(), self._deps.limits.session)
        return LiveFeed(
            session=session,
            video_ref=phase.video.ref,
            whep_url=phase.video.whep_url,
            meter_state=meter_state(reading),
            is_in_geofence=phase.location.is_inside,
            last_fix=phase.location.track.adopted,
        )

    def note_picture(self, feed: LiveFeed, workspace_id: str) -> None:
        """Note that a workspace is answered with a picture; it counts if that is the consumer."""
        if feed.session.terms.consumer_workspace_id == workspace_id:
            note_picture(self._registry, feed.session, self._now())

    async def meter(self, session_id: str, workspace_id: str) -> Answer[MeterStatus]:
        """The meter and its evidence."""
        session = await self.require_session_as_party(session_id, workspace_id)
        now_ms = self._now()
        return Answer(meter_status(session, now_ms, self._deps.limits.session), now_ms)

    def status_of(self, session: Session, workspace_id: str) -> SessionStatus:
        """A session that was just read, as a workspace may see it."""
        return session_status(session, self._now(), self._deps.limits.session, workspace_id)

    async def location(self, session_id: str, workspace_id: str) -> LocationStatus | None:
        """The position of the operator's device, for a party; None before the first one and unless LIVE."""
        phase = (await self.require_session_as_party(session_id, workspace_id)).phase
        if not isinstance(phase, Live) or phase.location.track.adopted is None:
            return None
        return LocationStatus(
            session_id=session_id, fix=phase.location.track.adopted, is_in_geofence=phase.location.is_inside
        )

    async def history(
        self, session_id: str, workspace_id: str, *, after: int = 0, limit: int | None = None
    ) -> Answer[SessionHistory]:
        """The session and its recorded events with a sequence above `after`, for a party of it."""
        session = await self.require_session_as_party(session_id, workspace_id)
        return await self.history_of(session, workspace_id, after=after, limit=limit)

    async def history_of(
        self, session: Session, workspace_id: str, *, after: int = 0, limit: int | None = None
    ) -> Answer[SessionHistory]:
        """The history of a session that was just read, as a workspace may see it."""
        now_ms, limits = self._now(), self._deps.limits.session
        events = await self._deps.store.session_events(session.id, after=after, limit=limit)
        history = SessionHistory(
            status=session_status(session, now_ms, limits, workspace_id),
            meter=meter_status(session, now_ms, limits),
            # An event that was recorded after the session was read would not match its head hash.
            events=tuple(recorded for recorded in events if recorded.sequence <= session.events),
        )
        return Answer(history, now_ms)

    async def require_session_as_party(self, session_id: str, workspace_id: str) -> Session:
        """The session itself, for a party of it."""
        session = await self._look_up.require_session(session_id)
        if not parties_of(session, workspace_id):
            raise RefusedError(NOT_PARTY)
        self._note_caller(session, workspace_id)
        return session

    def _note_caller(self, session: Session, workspace_id: str) -> None:
        """Renew the consumer lease if the caller is the consumer; acknowledge the dispatch if it is the operator."""
        phase = session.phase
        if isinstance(phase, Assigned) and phase.is_dispatched and phase.operator.workspace_id == workspace_id:
            self.acknowledge(session.id, workspace_id)
        if session.terms.consumer_lease_s is not None and session.terms.consumer_workspace_id == workspace_id:
            renew_lease(self._registry, session, self._now())

    def acknowledge(self, session_id: str, workspace_id: str) -> None:
        """Tell a session that this workspace knows of it; it counts if the session is dispatched to the workspace."""
        told = OperatorAcknowledged(workspace_id)
        self._registry.ref(SESSION, session_id).tell(told, conflate_key="acknowledged")

    async def require_operator(self, workspace_id: str) -> None:
        """Refuse a workspace that is not an operator."""
        await self._look_up.require_operator(workspace_id)

    async def read_workspace(self, workspace_id: str) -> Answer[Workspace]:
        """The workspace."""
        return Answer(await self._look_up.require_workspace(workspace_id), self._now())

    async def workspaces(self, ids: Sequence[str]) -> list[Workspace]:
        """Several workspaces, in the order of their ids' list; unknown ones are left out."""
        found = {workspace.id: workspace for workspace in await self._deps.store.workspaces(ids)}
        found |= await self._snapshots.workspaces(found)
        return [found[wanted] for wanted in dict.fromkeys(ids) if wanted in found]

    async def passed_over_until(self, workspace: Workspace) -> int | None:
        """Until when an operator that is not OFFLINE is passed over for no-shows of its wallet.

        Returns:
            None if it is not passed over, is OFFLINE, or the dispatcher does not answer.
        """
        if not workspace.is_supplier or workspace.availability is Availability.OFFLINE:
            return None
        dispatcher = self._registry.ref(DISPATCHER, DISPATCHER_ID)
        try:
            conduct = await dispatcher.ask(GetConduct(workspace.wallet_address), timeout_s=CONDUCT_TIMEOUT_S)
        except SightlineError:
            return None
        return conduct.out_until_ms if conduct.out_until_ms > self._now() else None

    def _now(self) -> int:
        return self._deps.clock.now_ms()

    async def _may_accept(self, session: Session, workspace_id: str) -> bool:
        if not isinstance(session.phase, Requested):
            return False
        workspace = await self._look_up.require_workspace(workspace_id)
        return workspace.is_supplier and workspace.covers(session.terms.lat, session.terms.lng)

    async def _listed(self, session: Session, known: Session | None, workspace_id: str) -> SessionStatus:
        """The status of a stored session for a list, from its actor if that is newer, with passed deadlines applied."""
        latest = known if known is not None and known.version >= session.version else session
        now_ms = self._now()
        due_ms = deadline_ms(latest)
        if due_ms is not None and now_ms >= due_ms:
            latest = await self._look_up.find_session(session.id) or latest
        return session_status(latest, now_ms, self._deps.limits.session, workspace_id)


def _states_to_look_at(wanted: frozenset[SessionState]) -> frozenset[SessionState]:
    """The stored states in which a session may be that shows as one of the wanted: its deadline may have passed."""
    found = set(wanted)
    if SessionState.EXPIRED in wanted:
        found |= {SessionState.REQUESTED, SessionState.ASSIGNED}
    if SessionState.REQUESTED in wanted:
        found.add(SessionState.ASSIGNED)
    if SessionState.ENDED in wanted:
        found.add(SessionState.LIVE)
    return frozenset(found)
