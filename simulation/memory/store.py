"""The store in memory, for simulation and tests. Passes the same contract suite as the one on Postgres.

Each method yields once and then acts without yielding, so that a write is atomic. A write applies its relations and its
part of the ledger in the same step. Uses no thread and no clock.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import final

import trio

from sightline.domain.conduct import Conduct
from sightline.domain.geofence import distance_m
from sightline.domain.operator.model import Availability, Workspace
from sightline.domain.pricing import Quote
from sightline.domain.session.machine import deadline_ms
from sightline.domain.session.model import (
    Assigned,
    Closed,
    Delivery,
    EndReason,
    Live,
    MediaCheckpoint,
    Session,
    SessionState,
)
from sightline.domain.units import DAY_MS, MicroUsdc
from sightline.domain.value import replace
from sightline.ports.leases import ServerRole
from sightline.ports.ledger import FundsPolicy
from sightline.ports.relations import TupleUpdate
from sightline.ports.store import (
    ABANDONED_READ,
    DEMAND_DURATION_MIN_S,
    DEMAND_ONCE_MS,
    SHARDS,
    Committed,
    ConsumerDispatches,
    Heartbeat,
    HeartbeatWrite,
    HoldGrowth,
    IdempotencyKey,
    IdempotencyRecord,
    RecordedEvent,
    Rejected,
    RejectedAssignment,
    RejectedWhy,
    SessionQuery,
    SessionView,
    SessionWrite,
    ShardLease,
    StoredSession,
    UnfinishedSession,
    WorkspaceWrite,
)
from simulation.memory.identity import MemoryRelations
from simulation.memory.ledger import MemoryLedger
from simulation.memory.pushes import MemoryPushes

UNFINISHED = frozenset({SessionState.REQUESTED, SessionState.ASSIGNED, SessionState.LIVE})
AWAITED = frozenset({SessionState.REQUESTED, SessionState.ASSIGNED})
ABANDONED = frozenset({EndReason.START_TIMEOUT, EndReason.CONSUMER_CANCELLED})


_Scope = tuple[str, str, str, str]


def _newest(one: Delivery | None, other: Delivery | None) -> Delivery | None:
    known = [each for each in (one, other) if each is not None]
    return max(known, key=lambda each: each.last_at_ms, default=None)


@final
class MemoryStore:
    """Durable state, for as long as this object lives."""

    def __init__(self, *, relations: MemoryRelations, ledger: MemoryLedger) -> None:
        self._relations = relations
        self._ledger = ledger
        self._webhooks = ledger.webhooks
        self._webhooks.record_call = self.record_call
        self._epochs = dict.fromkeys((*range(SHARDS), *ServerRole), 0)
        self._sessions: dict[str, Session] = {}
        self.pushes = MemoryPushes(self._sessions.get)
        ledger.session_of = self._sessions.get
        self._due: dict[str, int | None] = {}
        self._events: dict[str, list[RecordedEvent]] = {}
        self._media: dict[str, MediaCheckpoint] = {}
        self._workspaces: dict[str, Workspace] = {}
        self._slugs: dict[str, str] = {}
        self._heartbeats: dict[str, list[Heartbeat]] = {}
        self._quotes: dict[str, Quote] = {}
        self._conducts: dict[str, Conduct] = {}
        self._answers: dict[_Scope, IdempotencyRecord] = {}

    # --- ownership ---

    def raise_epochs(self, shards: Iterable[int]) -> dict[int, int]:
        """Give shards to another owner, as part of another store's step; returns their epochs."""
        raised = {shard: self._epochs[shard] + 1 for shard in shards}
        self._epochs.update(raised)
        return raised

    def _holds(self, lease: ShardLease) -> bool:
        return self._epochs.get(lease.shard) == lease.epoch

    def _admit(self, lease: ShardLease, record: IdempotencyRecord | None) -> RejectedWhy | None:
        if not self._holds(lease):
            return RejectedWhy.FENCED
        if record is not None and _scope(record.key) in self._answers:
            return RejectedWhy.IDEMPOTENT
        return None

    # --- sessions ---

    async def write_session(self, write: SessionWrite) -> Committed | Rejected:
        """Store one session step."""
        await trio.lowlevel.checkpoint()
        why = self._admit(write.lease, write.idempotency) or self._refuse_session(write)
        if why is not None:
            return self._rejected(write, why)
        return self._put_session(write)

    def _rejected(self, write: SessionWrite, why: RejectedWhy) -> Rejected:
        """Return a rejection, with what the limit or the funds that a write exceeds leave for its session."""
        request = write.take_hold or write.grow_hold
        if request is None or why not in (RejectedWhy.FUNDS, RejectedWhy.UNFUNDED):
            return Rejected(why, self._left_for_key(write) if why is RejectedWhy.KEY_LIMIT else None)
        left = self._ledger.left_by_payer(write.session.id, request, now_ms=write.at_ms)
        if left is not None or why is RejectedWhy.UNFUNDED:
            return Rejected(why, left)
        is_authorized = write.session.terms.is_authorized
        return Rejected(
            why,
            free=self._ledger.free_beside_holds(
                write.session.id, request.payer_address, is_authorized=is_authorized, now_ms=write.at_ms
            ),
        )

    def _put_session(self, write: SessionWrite) -> Committed:
        session = replace(write.session, version=write.session.version + 1)
        self._sessions[session.id] = session
        self._due[session.id] = write.due_at_ms
        self._events.setdefault(session.id, []).extend(write.events)
        if write.consume_quote is not None:
            quote = self._quotes[write.consume_quote]
            self._quotes[quote.id] = replace(quote, consumed_by=session.id)
        self._move_money(write)
        self._webhooks.note_session(write)
        self.pushes.note_session(write)
        return Committed(session.version, self._conclude(write.tuples, write.idempotency))

    def _refuse_session(self, write: SessionWrite) -> RejectedWhy | None:
        stored = self._sessions.get(write.session.id)
        if (stored.version if stored is not None else 0) != write.session.version:
            return RejectedWhy.VERSION
        if write.consume_quote is not None:
            quote = self._quotes.get(write.consume_quote)
            if quote is None or quote.consumed_by is not None:
                return RejectedWhy.QUOTE_CONSUMED
        hold = write.take_hold
        if hold is not None:
            if self._left_for_key(write) is not None:
                return RejectedWhy.KEY_LIMIT
            if self._ledger.is_unpaid(hold.payer_address):
                return RejectedWhy.UNPAID
            if self._ledger.has_unfunded(hold.payer_address, hold.amount, hold.unfunded_max, write.at_ms):
                return RejectedWhy.UNFUNDED
            policy = FundsPolicy.ENFORCED if hold.is_enforced else FundsPolicy.ADVISORY
            held = self._ledger.take_hold_now(
                write.session.id,
                hold.payer_address,
                hold.amount,
                policy,
                is_authorized=write.session.terms.is_authorized,
                now_ms=write.at_ms,
            )
            if not held:
                return RejectedWhy.FUNDS
            if hold.spending is not None:
                self._ledger.count_for_key(write.session.id, hold.spending, now_ms=write.at_ms)
        return None if write.grow_hold is None else self._grow(write, write.grow_hold)

    def _grow(self, write: SessionWrite, growth: HoldGrowth) -> RejectedWhy | None:
        """Add to the session's hold; return why that is not allowed, with the hold unchanged."""
        ledger, session_id, spending = self._ledger, write.session.id, growth.spending
        why = ledger.why_not_grown(session_id, growth, now_ms=write.at_ms)
        if why is None and self._left_for_key(write) is not None:
            why = RejectedWhy.KEY_LIMIT
        if why is None and spending is not None:
            ledger.count_for_key(session_id, spending, now_ms=write.at_ms)
        if why is None and not growth.is_trial:
            ledger.grow_hold_now(session_id, growth.amount)
        return why

    def _left_for_key(self, write: SessionWrite) -> MicroUsdc | None:
        hold = write.take_hold or write.grow_hold
        if hold is None or hold.spending is None:
            return None
        left = self._ledger.left_for_key(hold.spending, hold.amount, now_ms=write.at_ms, session_id=write.session.id)
        return None if left is None else MicroUsdc(left)

    def _move_money(self, write: SessionWrite) -> None:
        if write.charge_hold is not None:
            self._ledger.charge_hold_now(write.session.id, write.charge_hold)
        if write.release_hold:
            self._ledger.release_hold_now(write.session.id)
        if write.settle is not None:
            self._ledger.compose_now(write.settle, now_ms=write.at_ms)

    def _conclude(self, tuples: Sequence[TupleUpdate], record: IdempotencyRecord | None) -> int | None:
        revision = self._relations.apply(tuples) if tuples else None
        if record is not None:
            self._answers[_scope(record.key)] = replace(record, revision=revision)
        return revision

    async def load_session(self, session_id: str) -> StoredSession | None:
        """Read one session."""
        await trio.lowlevel.checkpoint()
        session = self._sessions.get(session_id)
        if session is None:
            return None
        later: tuple[Heartbeat, ...] = ()
        if isinstance(phase := session.phase, Live):
            beats = self._heartbeats.get(phase.operator.workspace_id, [])
            newer = beats[bisect_right(beats, phase.location.last_sequence, key=_sequence) :]
            later = tuple(beat for beat in newer if beat.fix.at_ms >= phase.started_at_ms)
        return StoredSession(session=session, media=self._media.get(session_id), heartbeats=later)

    async def list_sessions(self, query: SessionQuery) -> Sequence[Session]:
        """Read one page."""
        await trio.lowlevel.checkpoint()
        place = (query.after.created_at_ms, query.after.id) if query.after is not None else None
        found = sorted(
            (
                session
                for session in self._sessions.values()
                if _is_wanted(session, query) and (place is None or _place(session) < place)
            ),
            key=_place,
            reverse=True,
        )
        return found[: query.limit]

    async def sessions_of_operator(self, workspace_id: str, state: SessionState) -> Sequence[str]:
        """Ids of the operator's sessions in a state."""
        await trio.lowlevel.checkpoint()
        found = [session for session in self._with_operator(workspace_id) if session.state is state]
        return [session.id for session in sorted(found, key=_place)]

    async def dispatches_of(self, consumer_workspace_id: str) -> ConsumerDispatches:
        """The consumer's dispatched sessions that are not started, and those that it abandoned."""
        await trio.lowlevel.checkpoint()
        unstarted: set[str] = set()
        abandoned: list[int] = []
        for session in self._sessions.values():
            phase = session.phase
            if session.terms.consumer_workspace_id != consumer_workspace_id:
                continue
            if isinstance(phase, Assigned) and phase.is_dispatched:
                unstarted.add(session.id)
            elif isinstance(phase, Closed) and phase.is_dispatched and phase.reason in ABANDONED:
                abandoned.append(phase.closed_at_ms)
        return ConsumerDispatches(frozenset(unstarted), tuple(sorted(abandoned, reverse=True)[:ABANDONED_READ]))

    def _with_operator(self, workspace_id: str) -> Iterable[Session]:
        return (
            session
            for session in self._sessions.values()
            if session.operator is not None and session.operator.workspace_id == workspace_id
        )

    async def unfinished_sessions(self, shard: int | None = None) -> Sequence[UnfinishedSession]:
        """Every session that is not terminal."""
        await trio.lowlevel.checkpoint()
        return [
            UnfinishedSession(
                id=session.id,
                state=session.state,
                operator_workspace_id=session.operator.workspace_id if session.operator is not None else None,
                video_ref=session.phase.video.ref if isinstance(session.phase, Live) else None,
                due_at_ms=self._due[session.id],
            )
            for session in sorted(self._sessions.values(), key=lambda session: session.id)
            if session.state in UNFINISHED and _is_in(shard, session.id)
        ]

    async def session_events(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> Sequence[RecordedEvent]:
        """Return the recorded events of a session after a sequence."""
        await trio.lowlevel.checkpoint()
        found = [event for event in self._events.get(session_id, []) if event.sequence > after]
        return found[:limit]

    async def checkpoint_media(self, checkpoints: Mapping[str, MediaCheckpoint]) -> None:
        """Record checkpoints of media."""
        await trio.lowlevel.checkpoint()
        for session_id, new in checkpoints.items():
            old = self._media.get(session_id, new)
            self._media[session_id] = MediaCheckpoint(
                proved_at_ms=max(old.proved_at_ms, new.proved_at_ms),
                delivery=_newest(old.delivery, new.delivery),
            )

    # --- workspaces ---

    async def write_workspace(self, write: WorkspaceWrite) -> Committed | Rejected:
        """Store one workspace step."""
        await trio.lowlevel.checkpoint()
        why = self._admit(write.lease, write.idempotency) or self._refuse_workspace(write.workspace)
        return Rejected(why) if why is not None else self._put_workspace(write)

    async def write_assignment(
        self, session: SessionWrite, workspace: WorkspaceWrite
    ) -> Committed | RejectedAssignment:
        """Store an assignment with its claim."""
        await trio.lowlevel.checkpoint()
        why = self._admit(workspace.lease, None) or self._refuse_workspace(workspace.workspace)
        if why is not None:
            return RejectedAssignment(workspace=why)
        why = self._admit(session.lease, session.idempotency) or self._refuse_session(session)
        if why is not None:
            return RejectedAssignment(session=why)
        self._put_workspace(workspace)
        return self._put_session(session)

    def _put_workspace(self, write: WorkspaceWrite) -> Committed:
        workspace = replace(write.workspace, version=write.workspace.version + 1)
        self._webhooks.note_workspace(self._workspaces.get(workspace.id), workspace, write.at_ms)
        self._workspaces[workspace.id] = workspace
        self._slugs[workspace.slug] = workspace.id
        if workspace.version == 1:
            self._ledger.track_now(workspace.id, workspace.wallet_address, now_ms=write.at_ms)
        return Committed(workspace.version, self._conclude(write.tuples, write.idempotency))

    def _refuse_workspace(self, workspace: Workspace) -> RejectedWhy | None:
        stored = self._workspaces.get(workspace.id)
        if (stored.version if stored is not None else 0) != workspace.version:
            return RejectedWhy.VERSION
        if self._slugs.get(workspace.slug, workspace.id) != workspace.id:
            return RejectedWhy.SLUG_TAKEN
        return None

    async def load_workspace(self, workspace_id: str) -> Workspace | None:
        """Read one workspace."""
        await trio.lowlevel.checkpoint()
        return self._seen(self._workspaces[workspace_id]) if workspace_id in self._workspaces else None

    async def workspaces(self, ids: Sequence[str]) -> Sequence[Workspace]:
        """Read several workspaces."""
        await trio.lowlevel.checkpoint()
        return [self._seen(self._workspaces[each]) for each in dict.fromkeys(ids) if each in self._workspaces]

    async def suppliers(self, shard: int | None = None) -> Sequence[Workspace]:
        """Every supplier the dispatcher must know of."""
        await trio.lowlevel.checkpoint()
        return [
            self._seen(workspace)
            for workspace in self._workspaces.values()
            if workspace.is_supplier
            and (workspace.availability is not Availability.OFFLINE or workspace.claims)
            and _is_in(shard, workspace.id)
        ]

    async def conducts(self, *, since_ms: int) -> Mapping[str, Conduct]:
        """The records of wallets."""
        await trio.lowlevel.checkpoint()
        return {
            wallet: each
            for wallet, each in self._conducts.items()
            if each.is_proved or (each.no_shows_ms and each.no_shows_ms[-1] > since_ms)
        }

    async def save_conducts(self, conducts: Mapping[str, Conduct]) -> None:
        """Record the conduct of wallets."""
        await trio.lowlevel.checkpoint()
        self._conducts |= conducts

    def _seen(self, workspace: Workspace) -> Workspace:
        beats = self._heartbeats.get(workspace.id)
        if not beats:
            return replace(workspace, last_place=None)
        newest = beats[-1]
        workspace = replace(workspace, last_place=(newest.fix.lat, newest.fix.lng))
        if newest.sequence <= workspace.last_sequence:
            return workspace
        return replace(workspace, last_sequence=newest.sequence, last_seen_at_ms=newest.fix.at_ms)

    # --- heartbeats ---

    async def append_heartbeats(self, batch: Sequence[HeartbeatWrite]) -> frozenset[ShardLease]:
        """Record the writes whose lease is still held; returns the leases that are lost."""
        await trio.lowlevel.checkpoint()
        lost = frozenset(write.lease for write in batch if not self._holds(write.lease))
        for write in batch:
            if write.lease in lost:
                continue
            for beat in write.heartbeats:
                self._append_heartbeat(beat)
            for answer in write.answers:
                self._answers.setdefault(_scope(answer.key), answer)
        return lost

    def _append_heartbeat(self, beat: Heartbeat) -> None:
        beats = self._heartbeats.setdefault(beat.workspace_id, [])
        if not beats or beats[-1].sequence < beat.sequence:
            beats.append(beat)
        elif not any(_identity(beat) == _identity(other) for other in beats):
            insort(beats, beat, key=_order)

    async def latest_heartbeat(self, workspace_id: str) -> Heartbeat | None:
        """The newest recorded heartbeat."""
        await trio.lowlevel.checkpoint()
        beats = self._heartbeats.get(workspace_id)
        return beats[-1] if beats else None

    # --- quotes and answers ---

    async def insert_quote(self, quote: Quote) -> None:
        """Record a quote; recording it again changes nothing."""
        await trio.lowlevel.checkpoint()
        self._quotes.setdefault(quote.id, quote)

    async def load_quote(self, quote_id: str) -> Quote | None:
        """Read a quote."""
        await trio.lowlevel.checkpoint()
        return self._quotes.get(quote_id)

    async def demand_near(
        self, *, lat: float, lng: float, within_m: float, since_ms: int, now_ms: int, not_of: str
    ) -> int:
        """Count the other funded wallets that wait near a point."""
        await trio.lowlevel.checkpoint()
        own = self._workspaces.get(not_of)
        own_wallet = "" if own is None else own.wallet_address.lower()

        def counts(session: Session) -> bool:
            terms = session.terms
            return (
                session.state in AWAITED
                and terms.consumer_workspace_id != not_of
                and terms.payer_address.lower() != own_wallet
                and terms.created_at_ms >= since_ms
                and terms.max_duration_s >= DEMAND_DURATION_MIN_S
                and (session.state is SessionState.ASSIGNED or (deadline_ms(session) or 0) > now_ms)
                and distance_m(lat, lng, terms.lat, terms.lng) <= within_m
                and self._ledger.is_funded(session.id, is_authorized=session.terms.is_authorized, now_ms=now_ms)
                and (not self._requested_before(session) or self._ledger.has_paid(terms.payer_address, now_ms))
            )

        return len({each.terms.payer_address.lower() for each in self._sessions.values() if counts(each)})

    def _requested_before(self, session: Session) -> bool:
        """Whether the payer requested another session shortly before this one."""
        payer, at_ms = session.terms.payer_address.lower(), session.terms.created_at_ms
        return any(
            each.terms.payer_address.lower() == payer and at_ms - DEMAND_ONCE_MS <= each.terms.created_at_ms < at_ms
            for each in self._sessions.values()
        )

    async def is_funded(self, session_id: str, now_ms: int) -> bool:
        """Whether the payer's wallet covers the session's hold and all its holds together."""
        await trio.lowlevel.checkpoint()
        session = self._sessions.get(session_id)
        is_authorized = session is not None and session.terms.is_authorized
        return self._ledger.is_funded(session_id, is_authorized=is_authorized, now_ms=now_ms)

    async def find_idempotent(self, key: IdempotencyKey) -> IdempotencyRecord | None:
        """The record of a call."""
        await trio.lowlevel.checkpoint()
        return self._answers.get(_scope(key))

    async def record_idempotent(self, record: IdempotencyRecord) -> bool:
        """Keep the answer of a call."""
        await trio.lowlevel.checkpoint()
        return self.record_call(record)

    def record_call(self, record: IdempotencyRecord) -> bool:
        """Keep the answer of a call, as part of another store's step."""
        if _scope(record.key) in self._answers:
            return False
        self._answers[_scope(record.key)] = record
        return True


def _is_in(shard: int | None, actor_id: str) -> bool:
    return shard is None or int(actor_id[:2], 16) == shard


def _scope(key: IdempotencyKey) -> _Scope:
    return (key.workspace_id, key.method, key.path, key.key)


def _sequence(beat: Heartbeat) -> int:
    return beat.sequence


def _order(beat: Heartbeat) -> tuple[int, int]:
    return (beat.sequence, beat.fix.at_ms)


def _identity(beat: Heartbeat) -> tuple[int, int]:
    """Two heartbeats of a workspace with one sequence on one UTC day are one heartbeat, as in Postgres."""
    return (beat.sequence, beat.fix.at_ms // DAY_MS)


def _place(session: Session) -> tuple[int, str]:
    return (session.terms.created_at_ms, session.id)


def _is_wanted(session: Session, query: SessionQuery) -> bool:
    terms = session.terms
    if query.states and session.state not in query.states:
        return False
    if query.created_after_ms is not None and terms.created_at_ms <= query.created_after_ms:
        return False
    if query.created_before_ms is not None and terms.created_at_ms >= query.created_before_ms:
        return False
    is_consumer = terms.consumer_workspace_id == query.workspace_id
    is_operator = session.operator is not None and session.operator.workspace_id == query.workspace_id
    match query.view:
        case SessionView.CONSUMER:
            return is_consumer
        case SessionView.OPERATOR:
            return is_operator
        case SessionView.OPEN:
            return _is_open(session, query)
        case SessionView.PARTY | None:
            return is_consumer or is_operator


def _is_open(session: Session, query: SessionQuery) -> bool:
    terms = session.terms
    if session.state is not SessionState.REQUESTED or (deadline_ms(session) or 0) <= query.now_ms:
        return False
    if query.coverage is None:
        return True
    lat, lng, radius_m = query.coverage
    return distance_m(lat, lng, terms.lat, terms.lng) <= radius_m
