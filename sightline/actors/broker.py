"""The broker: the functions that callers of the actors use. Holds no state; every answer comes from an actor, from what
an actor has published, or from one indexed query."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, cast, final

from sightline.actors.deps import DISPATCHER, DISPATCHER_ID, SESSION, WORKSPACE, Deps
from sightline.actors.idempotency import Replays
from sightline.actors.kernel.errors import ActorStoppedError
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import (
    AcceptSession,
    CancelSession,
    CountOperators,
    CreateSession,
    CreateWorkspace,
    DispatchSession,
    DropAssignment,
    EndSession,
    GetSession,
    GetWorkspace,
    PatchWorkspace,
    ReportHeartbeat,
    ReportHeartbeats,
    StartSession,
)
from sightline.actors.types import (
    Answer,
    Caller,
    HeartbeatReport,
    LiveFeed,
    NewSession,
    NewWorkspace,
    SessionListing,
    SessionPage,
)
from sightline.domain.errors import (
    OutcomeUnknownError,
    RefusedError,
    SightlineError,
    StoreUnavailableError,
    UnavailableError,
)
from sightline.domain.geofence import distance_m
from sightline.domain.metering import read_live
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Workspace
from sightline.domain.pricing import Price, Quote, price
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session import machine
from sightline.domain.session.messages import Party
from sightline.domain.session.model import Live, Requested, Session, SessionState, Terms
from sightline.domain.settlement import BASIS_POINTS
from sightline.domain.units import MicroUsdc
from sightline.domain.views import (
    View,
    effective_state,
    meter_view,
    parties_of,
    quote_view,
    session_view,
    workspace_view,
)
from sightline.ports.store import IdempotencyKey, IdempotencyRecord, SessionKey, SessionQuery, SessionView

CREATE_TIMEOUT_S: Final = 10.0
COMMAND_TIMEOUT_S: Final = 30.0
"""Covers the longest a start may wait for the video backend."""
LIST_READS_MAX: Final = 20
"""Reads of the store for one page; where most of what is read has left the wanted states, the page comes out short."""

RELEASE_TIMEOUT_S: Final = 2.0

SESSION_NOT_FOUND: Final = Refusal(Code.SESSION_NOT_FOUND)
NOT_FOUND: Final = Refusal(Code.NOT_FOUND)
MISMATCH: Final = Refusal(Code.NOT_AUTHORIZED, "session:workspaceMismatch")
NOT_CONSUMER: Final = Refusal(Code.NOT_AUTHORIZED, "session:notConsumer", "The workspace is not a CONSUMER")
NOT_OPERATOR: Final = Refusal(Code.NOT_OPERATOR)
NOT_LIVE: Final = Refusal(Code.INVALID_STATE, "session:notLive", "The session is not LIVE")


@final
class Broker:
    """What Sightline does for its callers."""

    def __init__(self, registry: Registry, deps: Deps) -> None:
        self._registry = registry
        self._deps = deps
        self._replays = Replays(deps.store, deps.relations)

    # Sessions: commands.

    async def create_session(self, caller: Caller, new: NewSession) -> Answer:
        """Create a session at the quoted rate, or at the spot rate."""
        workspace = await self._workspace(caller.workspace_id)
        if not workspace.is_consumer:
            raise RefusedError(NOT_CONSUMER)

        async def create() -> Answer:
            rate = await self._rate_for(caller.workspace_id, new)
            hold = MicroUsdc(rate * new.max_duration_s)
            terms = Terms(
                id=self._deps.ids.uuid(),
                consumer_workspace_id=caller.workspace_id,
                payer_address=workspace.wallet_address,
                lat=new.lat,
                lng=new.lng,
                radius_m=new.radius_m,
                max_duration_s=new.max_duration_s,
                wait_timeout_s=new.wait_timeout_s,
                rate=rate,
                hold=hold,
                platform_fee_bps=self._deps.limits.platform_fee_bps,
                quote_id=new.quote_id,
                instructions=new.instructions,
                metadata_json=new.metadata_json,
                created_at_ms=self._now(),
            )
            is_enforced = self._deps.limits.funds_policy == "enforced"
            return await self._ask_session(terms.id, CreateSession(terms, caller, is_enforced))

        return await self._once(caller, create)

    async def dispatch(self, session_id: str, caller: Caller) -> Answer:
        """Assign the longest-idle operator."""

        async def dispatch() -> Answer:
            await self._require_session(session_id)
            workspace = await self._workspace(caller.workspace_id)
            if not workspace.is_consumer:
                raise RefusedError(NOT_CONSUMER)
            return await self._ask_session(session_id, DispatchSession(caller))

        return await self._once(caller, dispatch)

    async def accept(self, session_id: str, caller: Caller, operator_workspace_id: str) -> Answer:
        """Assign the caller's own workspace."""

        async def accept() -> Answer:
            await self._require_session(session_id)
            if operator_workspace_id != caller.workspace_id:
                raise RefusedError(MISMATCH)
            await self._require_operator(caller)
            return await self._ask_session(session_id, AcceptSession(caller))

        return await self._once(caller, accept)

    async def start(self, session_id: str, caller: Caller) -> Answer:
        """Go live."""

        async def start() -> Answer:
            await self._require_session(session_id)
            await self._require_operator(caller)
            return await self._ask_session(session_id, StartSession(caller))

        return await self._once(caller, start)

    async def end(self, session_id: str, caller: Caller, sides: frozenset[Party]) -> Answer:
        """Hang up, for one of the sides that the credential may speak for."""

        async def end() -> Answer:
            answer = await self._ask_session(session_id, EndSession(caller, sides))
            await self._await_release(answer.data["operatorWorkspaceId"])
            return answer

        return await self._once(caller, end)

    async def cancel(self, session_id: str, caller: Caller) -> Answer:
        """Withdraw a request."""
        return await self._once(caller, lambda: self._ask_session(session_id, CancelSession(caller)))

    async def cancel_all(self, caller: Caller) -> Answer:
        """Drop every assignment of the caller's workspace."""

        async def cancel_all() -> Answer:
            await self._require_operator(caller)
            wanted = await self._assignments_to_drop(caller)
            dropped = [session_id for session_id in wanted if await self._dropped(session_id, caller)]
            await self._await_release(caller.workspace_id)
            answer = Answer({"count": len(dropped), "cancelled": dropped}, self._now())
            if caller.idempotency is not None:
                await self._record(caller.idempotency, answer)
            return answer

        return await self._once(caller, cancel_all)

    # Sessions: reads.

    async def read_session(self, session_id: str, workspace_id: str) -> Answer:
        """The session, for a party of it, or while REQUESTED for an operator that covers its point."""
        session = await self._require_session(session_id)
        sides = parties_of(session, workspace_id)
        if not sides and not await self._may_accept(session, workspace_id):
            raise RefusedError(MISMATCH)
        now_ms = self._now()
        return Answer(session_view(session, now_ms, self._deps.limits.session, sides), now_ms)

    async def list_sessions(self, workspace_id: str, listing: SessionListing) -> SessionPage:
        """A page of sessions, newest first."""
        coverage = None
        if listing.view is SessionView.OPEN:
            workspace = await self._workspace(workspace_id)
            if not workspace.is_supplier:
                raise RefusedError(NOT_OPERATOR)
            circle = workspace.coverage
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
        items: list[View] = []
        for _ in range(LIST_READS_MAX):
            found = await self._deps.store.list_sessions(query)
            for session in found:
                if len(items) == listing.limit:
                    return SessionPage(items, query.after)
                view = await self._listed(session, workspace_id)
                is_still_open = listing.view is not SessionView.OPEN or view["state"] == SessionState.REQUESTED
                if is_still_open and (not listing.states or view["state"] in listing.states):
                    items.append(view)
                query = replace(query, after=SessionKey(session.terms.created_at_ms, session.id))
            if len(found) < query.limit:
                return SessionPage(items, None)
        return SessionPage(items, query.after)

    async def viewer_token(self, session_id: str, workspace_id: str) -> Answer:
        """Where to play the LIVE session."""
        feed = await self.live_feed(session_id, workspace_id)
        return Answer({"videoBackendRef": feed.video_ref, "whepUrl": feed.whep_url}, self._now())

    async def live_feed(self, session_id: str, workspace_id: str) -> LiveFeed:
        """The feed of a LIVE session, for a party of it."""
        session = await self.settlement_session(session_id, workspace_id)
        phase = session.phase
        if not isinstance(phase, Live):
            raise RefusedError(NOT_LIVE)
        reading = read_live(phase.evidence, self._now(), session.terms.max_duration_s, self._deps.limits.session.meter)
        return LiveFeed(
            session=session,
            video_ref=phase.video.ref,
            whep_url=phase.video.whep_url,
            meter_state="PAUSED" if reading.pause is not None else "RUNNING",
            is_in_geofence=phase.whereabouts.is_inside,
            last_fix=phase.whereabouts.track.adopted,
            sides=parties_of(session, workspace_id),
        )

    async def meter(self, session_id: str, workspace_id: str) -> Answer:
        """The meter and its evidence."""
        session = await self.settlement_session(session_id, workspace_id)
        now_ms = self._now()
        return Answer(meter_view(session, now_ms, self._deps.limits.session), now_ms)

    async def settlement_session(self, session_id: str, workspace_id: str) -> Session:
        """The session itself, for a party of it."""
        session = await self._require_session(session_id)
        if not parties_of(session, workspace_id):
            raise RefusedError(MISMATCH)
        return session

    # Workspaces.

    async def create_workspace(self, new: NewWorkspace, idempotency: IdempotencyKey | None = None) -> Answer:
        """Create a workspace; its wallet becomes the OWNER."""
        workspace_id = self._deps.ids.uuid()
        caller = Caller(workspace_id=workspace_id, idempotency=idempotency)
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def create() -> Answer:
            answer: Answer = await workspace.ask(CreateWorkspace(new, caller), timeout_s=CREATE_TIMEOUT_S)
            return answer

        return await self._once(caller, create)

    async def read_workspace(self, workspace_id: str) -> Answer:
        """The workspace."""
        return Answer(workspace_view(await self._workspace(workspace_id)), self._now())

    async def workspaces(self, ids: Sequence[str]) -> list[Workspace]:
        """Several workspaces, in the order of their ids' list; unknown ones are left out."""
        found = {workspace.id: workspace for workspace in await self._deps.store.workspaces(ids)}
        fresh = {wanted: self._registry.peek(WORKSPACE, wanted) or found.get(wanted) for wanted in ids}
        return [workspace for workspace in fresh.values() if workspace is not None]

    async def patch_workspace(self, workspace_id: str, caller: Caller, patch: Patch) -> Answer:
        """Change a workspace."""
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def change() -> Answer:
            answer: Answer = await workspace.ask(PatchWorkspace(patch, caller), timeout_s=COMMAND_TIMEOUT_S)
            return answer

        return await self._once(caller, change)

    async def heartbeat(self, workspace_id: str, report: HeartbeatReport, key: IdempotencyKey | None = None) -> Answer:
        """Take one heartbeat; it is durable when this returns, and with it the answer, if the call has a key."""
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def take() -> Answer:
            answer: Answer = await workspace.ask(
                ReportHeartbeat(report, key), timeout_s=self._deps.limits.ask_timeout_s, conflate_key="heartbeat"
            )
            return answer

        return await take() if key is None else await self._replays.once(key, take)

    async def heartbeats(
        self, workspace_id: str, reports: Sequence[HeartbeatReport], key: IdempotencyKey | None = None
    ) -> Answer:
        """Take several heartbeats in order; those that were accepted are durable when this returns."""
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def take() -> Answer:
            answer: Answer = await workspace.ask(
                ReportHeartbeats(tuple(reports), key), timeout_s=self._deps.limits.ask_timeout_s
            )
            return answer

        return await take() if key is None else await self._replays.once(key, take)

    # Prices.

    async def quote(self, workspace_id: str, lat: float, lng: float, duration_s: int) -> Answer:
        """Price a point, and keep the price for a while."""
        spot, supply = await self._spot(workspace_id, lat, lng)
        now_ms = self._now()
        quote = Quote(
            id=self._deps.ids.uuid(),
            workspace_id=workspace_id,
            lat=lat,
            lng=lng,
            duration_s=duration_s,
            price=spot,
            available_operators=supply,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + self._deps.limits.quote_ttl_ms,
        )
        await self._deps.store.insert_quote(quote)
        return Answer(quote_view(quote), now_ms)

    # Live updates.

    @asynccontextmanager
    async def watch_session(self, session_id: str, workspace_id: str) -> AsyncIterator[AsyncIterator[tuple[str, View]]]:
        """The session and its meter now, and again whenever they change."""
        await self.settlement_session(session_id, workspace_id)

        async def changes() -> AsyncGenerator[tuple[str, View], None]:
            yield "session", (await self.read_session(session_id, workspace_id)).data
            yield "meter", (await self.meter(session_id, workspace_id)).data
            while True:
                await watch.change()
                yield "session", (await self.read_session(session_id, workspace_id)).data
                yield "meter", (await self.meter(session_id, workspace_id)).data

        with self._deps.watchers.watch(SESSION, session_id) as watch:
            async with aclosing(changes()) as stream:
                yield stream

    @asynccontextmanager
    async def watch_workspace(self, workspace_id: str) -> AsyncIterator[AsyncIterator[tuple[str, View]]]:
        """The workspace and its open assignments now, and again whenever they change."""
        workspace = await self._workspace(workspace_id)

        async def assignments(ids: Sequence[str]) -> list[tuple[str, View]]:
            found = [(session_id, await self._session(session_id)) for session_id in ids]
            return [
                ("assignment", (await self.read_session(session_id, workspace_id)).data)
                for session_id, session in found
                if session is not None and parties_of(session, workspace_id)
            ]

        async def changes() -> AsyncGenerator[tuple[str, View], None]:
            yield "workspace", workspace_view(await self._workspace(workspace_id))
            for item in await assignments(tuple(workspace.claims)):
                yield item
            while True:
                related = await watch.change()
                yield "workspace", workspace_view(await self._workspace(workspace_id))
                for item in await assignments(related):
                    yield item

        with self._deps.watchers.watch(WORKSPACE, workspace_id) as watch:
            async with aclosing(changes()) as stream:
                yield stream

    # Helpers.

    def _now(self) -> int:
        return self._deps.clock.now_ms()

    async def _once(self, caller: Caller, act: Callable[[], Awaitable[Answer]]) -> Answer:
        if caller.idempotency is None:
            return await act()
        return await self._replays.once(caller.idempotency, act)

    async def _record(self, key: IdempotencyKey, answer: Answer) -> None:
        result = {"data": answer.data, "token": None}
        await self._deps.store.record_idempotent(IdempotencyRecord(key=key, result=result, at_ms=answer.at_ms))

    async def _ask_session(self, session_id: str, command: Any) -> Answer:
        answer: Answer = await self._registry.ref(SESSION, session_id).ask(command, timeout_s=COMMAND_TIMEOUT_S)
        return answer

    async def _assignments_to_drop(self, caller: Caller) -> Sequence[str]:
        """The assignments of the caller's workspace: as they stood when the call was first made, if it has a key.

        One call drops several sessions, each in a transaction of its own. A repeat after a crash in between goes on
        with the same ones, and answers for all of them.
        """
        mark = _mark_of(caller, "begun")
        begun = await self._deps.store.find_idempotent(mark) if mark is not None else None
        if begun is not None:
            return [str(session_id) for session_id in cast(Sequence[object], begun.result["sessions"])]
        ids = await self._deps.store.sessions_of_operator(caller.workspace_id, SessionState.ASSIGNED)
        if mark is not None:
            record = IdempotencyRecord(key=mark, result={"sessions": list(ids)}, at_ms=self._now())
            await self._deps.store.record_idempotent(record)
        return ids

    async def _dropped(self, session_id: str, caller: Caller) -> bool:
        """Whether this call dropped the assignment; a session that cannot be reached keeps its operator."""
        session, mark = self._registry.ref(SESSION, session_id), _mark_of(caller, session_id)
        try:
            dropped: bool = await session.ask(DropAssignment(caller.workspace_id, mark), timeout_s=COMMAND_TIMEOUT_S)
        except ActorStoppedError as error:
            raise OutcomeUnknownError("the server is stopping; some assignments may have been dropped") from error
        except UnavailableError:
            dropped = False
        return dropped or (mark is not None and await self._deps.store.find_idempotent(mark) is not None)

    async def _await_release(self, workspace_id: str) -> None:
        """Let the operator's workspace take in what its session has just told it, so that a reader sees it free."""
        with suppress(SightlineError):
            await self._registry.ref(WORKSPACE, workspace_id).ask(GetWorkspace(), timeout_s=RELEASE_TIMEOUT_S)

    async def _session(self, session_id: str) -> Session | None:
        """The session with passed deadlines settled: from what its actor published, else by asking it."""
        ref = self._registry.ref(SESSION, session_id)
        known: Session | None = ref.snapshot
        if known is not None:
            now_ms = self._now()
            if known.is_terminal or machine.settle_deadline(known, now_ms, self._deps.limits.session) is None:
                return known
        try:
            found: Session | None = await ref.ask(GetSession(), timeout_s=self._deps.limits.ask_timeout_s)
        except OutcomeUnknownError as error:
            raise StoreUnavailableError("the session did not answer in time") from error
        return found

    async def _require_session(self, session_id: str) -> Session:
        session = await self._session(session_id)
        if session is None:
            raise RefusedError(SESSION_NOT_FOUND)
        return session

    async def _workspace(self, workspace_id: str) -> Workspace:
        ref = self._registry.ref(WORKSPACE, workspace_id)
        workspace: Workspace | None = ref.snapshot
        if workspace is None:
            try:
                workspace = await ref.ask(GetWorkspace(), timeout_s=self._deps.limits.ask_timeout_s)
            except OutcomeUnknownError as error:
                raise StoreUnavailableError("the workspace did not answer in time") from error
        if workspace is None:
            raise RefusedError(NOT_FOUND)
        return workspace

    async def _require_operator(self, caller: Caller) -> None:
        workspace = await self._workspace(caller.workspace_id)
        if not workspace.is_supplier:
            raise RefusedError(NOT_OPERATOR)

    async def _may_accept(self, session: Session, workspace_id: str) -> bool:
        if not isinstance(session.phase, Requested):
            return False
        workspace = await self._workspace(workspace_id)
        return workspace.is_supplier and workspace.covers(session.terms.lat, session.terms.lng)

    async def _listed(self, session: Session, workspace_id: str) -> View:
        """A stored session as a list shows it: the actor's newer one, deadlines that passed allowed for."""
        known = self._registry.peek(SESSION, session.id)
        latest = known if known is not None and known.version >= session.version else session
        now_ms = self._now()
        if effective_state(latest, now_ms) is not latest.state:
            latest = await self._session(session.id) or latest
        return session_view(latest, now_ms, self._deps.limits.session, parties_of(latest, workspace_id))

    async def _spot(self, workspace_id: str, lat: float, lng: float) -> tuple[Price, int]:
        limits, now_ms = self._deps.limits, self._now()
        dispatcher = self._registry.ref(DISPATCHER, DISPATCHER_ID)
        supply: int = await dispatcher.ask(CountOperators(lat, lng), timeout_s=limits.ask_timeout_s)
        demand = await self._deps.store.demand_near(
            lat=lat,
            lng=lng,
            within_m=limits.demand_radius_m,
            since_ms=now_ms - limits.demand_window_ms,
            now_ms=now_ms,
            not_of=workspace_id,
        )
        zone = f"{int(lat // 1)},{int(lng // 1)}"
        corridor_bps = limits.corridors.get(zone, BASIS_POINTS)
        return price(limits.base_rate, supply=supply, demand=demand.requests, corridor_bps=corridor_bps), supply

    async def _rate_for(self, workspace_id: str, new: NewSession) -> MicroUsdc:
        if new.quote_id is None:
            spot, _ = await self._spot(workspace_id, new.lat, new.lng)
            return spot.rate
        quote = await self._deps.store.load_quote(new.quote_id)
        refusal = self._judge_quote(quote, workspace_id, new)
        if refusal is not None:
            raise RefusedError(refusal)
        assert quote is not None
        return quote.price.rate

    def _judge_quote(self, quote: Quote | None, workspace_id: str, new: NewSession) -> Refusal | None:
        if quote is None or quote.workspace_id != workspace_id:
            return Refusal(Code.NOT_FOUND, "pricing:quote", "Quote not found")
        if quote.consumed_by is not None:
            return Refusal(Code.INVALID_STATE, "pricing:quoteConsumed", "The quote has been used")
        if self._now() >= quote.expires_at_ms:
            return Refusal(Code.INVALID_STATE, "pricing:quoteExpired", "The quote has expired")
        away_m = distance_m(quote.lat, quote.lng, new.lat, new.lng)
        if away_m > self._deps.limits.quote_radius_m or new.max_duration_s > quote.duration_s:
            return Refusal(Code.INVALID_INPUT, "pricing:quoteMismatch", "The quote is for another place or duration")
        return None


def _mark_of(caller: Caller, part: str) -> IdempotencyKey | None:
    """The key under which one part of a call with an idempotency key is recorded."""
    key = caller.idempotency
    return replace(key, path=f"{key.path}#{part}") if key is not None else None


def _states_to_look_at(wanted: frozenset[SessionState]) -> frozenset[SessionState]:
    """The stored states in which a session may be that shows as one of the wanted: its deadline may have passed."""
    found = set(wanted)
    if SessionState.EXPIRED in wanted:
        found |= {SessionState.REQUESTED, SessionState.ASSIGNED}
    if SessionState.ENDED in wanted:
        found.add(SessionState.LIVE)
    return frozenset(found)
