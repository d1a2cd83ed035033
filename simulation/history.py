"""The history of a world, in order: the trace, the durable rows, and the calls of the checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, final

import trio

from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session
from sightline.domain.value import Value
from sightline.ports.store import Committed, Heartbeat, Rejected, RejectedAssignment, SessionWrite, WorkspaceWrite
from simulation.trace import Trace

if TYPE_CHECKING:
    from sightline.ports.clock import Clock
    from simulation.memory.ledger import MemoryLedger
    from simulation.memory.store import MemoryStore

SHARDS_NOTED = 8
"""Number of shards of one step that the trace names."""
PROMPT_MS = 1_000
"""Evidence that takes longer than this from its receipt to its session is recorded in `Truth`."""


@final
class SessionStep(Value, kw_only=True):
    """One committed step of a session.

    Attributes:
        is_assignment: It was written together with the operator's claim, by the server of the operator and under the
            lease of the session's server.
    """

    owner: str
    write: SessionWrite
    before: Session | None
    after: Session
    at_ms: int
    is_assignment: bool = False


@final
class WorkspaceStep(Value, kw_only=True):
    """One committed step of a workspace."""

    owner: str
    write: WorkspaceWrite
    before: Workspace | None
    after: Workspace
    at_ms: int


@final
class CallReply(Value, kw_only=True):
    """The result of one command for its caller, after all retries.

    `outcome` is ok, refused (no effect, the server gave a reason), or gave up (the outcome is unknown).
    """

    who: str
    what: str
    session_id: str | None
    key: str
    outcome: str
    value: object = None
    detail: str | None = None
    was_unknown: bool = False
    """Whether an earlier try of the same command had no answer."""


@final
@dataclass(slots=True)
class Truth:
    """What the devices really did, which the checkers compare with the meter."""

    durable_beats: dict[str, list[Heartbeat]] = field(default_factory=dict)
    slow_beats_ms: dict[str, int] = field(default_factory=dict)
    answered_beats_ms: dict[str, int] = field(default_factory=dict)
    """The newest heartbeat of each workspace whose commit was reported to the server."""
    """By workspace: receive time of the newest heartbeat that took over a second to become durable."""
    late_evidence_ms: dict[str, int] = field(default_factory=dict)
    """By session: receive time of the newest heartbeat or frame that took over a second to reach the session."""
    odd_fix_ms: dict[str, int] = field(default_factory=dict)
    """By workspace: when its device last sent a fix that was not clearly inside the fence, or stopped publishing."""
    media_ms: dict[str, list[int]] = field(default_factory=dict)
    """By session: when its publisher sent frames to a running server."""
    stopped_ms: int = -1
    """When a server was last killed or paused."""
    disturbed_ms: int = -1
    """When a server was last killed or paused, or a call of its store failed."""
    healed_ms: int | None = None
    """When the faults of a service of several servers ended."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """By session: the highest version that an answered command made."""
    versions: dict[tuple[str, str], int] = field(default_factory=dict)
    """By session and idempotency key: the version that the command made."""
    acknowledged_beats: dict[str, int] = field(default_factory=dict)
    """By workspace: the highest sequence of an acknowledged heartbeat."""


class Checker:
    """Checks one promise. Each method is called in the step that it checks; the default does nothing."""

    name: ClassVar[str]
    history: History

    def fail(self, text: str) -> None:
        """Report a broken promise."""
        self.history.violate(self.name, text)

    def require(self, holds: bool, text: str) -> None:
        """Report a broken promise unless the condition is true."""
        if not holds:
            self.fail(text)

    def on_shards(self, owner: str, epochs: Mapping[int, int]) -> None:
        """A server took the shards at these epochs."""

    def on_session(self, step: SessionStep) -> None:
        """A session's step was committed."""

    def on_workspace(self, step: WorkspaceStep) -> None:
        """A workspace's step was committed."""

    def on_heartbeats(self, owner: str, batch: Sequence[Heartbeat]) -> None:
        """Heartbeats became durable."""

    def on_acknowledged_heartbeat(self, workspace_id: str, sequence: int, known: int) -> None:
        """A device got the answer that its heartbeat is durable; it had sent it knowing that `known` is."""

    def on_reply(self, reply: CallReply) -> None:
        """A caller knows the outcome of its command."""

    def on_no_effect(self, slug: str) -> None:
        """Record that the creation of a workspace without an idempotency key was answered 503: it must not exist."""

    def on_reading(self, life: str, session_id: str, clean_seconds: int) -> None:
        """A caller read the meter of a LIVE session."""

    def on_time(self, now_ms: int) -> None:
        """Called about once a second."""

    def on_end(self) -> None:
        """Called once at the end, when everything must have finished."""


@final
class History(Trace):
    """The history of one world. Calls the checkers in the step that they check."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: MemoryStore,
        ledger: MemoryLedger,
        checkers: Sequence[Checker],
        on_violation: Callable[[], None],
    ) -> None:
        super().__init__(clock, on_violation)
        self.clock = clock
        self.store = store
        self.ledger = ledger
        self.truth = Truth()
        self.sessions: dict[str, Session] = {}
        self.workspaces: dict[str, Workspace] = {}
        self.epochs: dict[int, tuple[str, int]] = {}
        self.steps = 0
        self._news: dict[str, trio.Event] = {}
        self._checkers = checkers
        for checker in checkers:
            checker.history = self

    def shards_taken(self, owner: str, epochs: Mapping[int, int]) -> None:
        """Record that a server took the shards."""
        self.note("shards", owner, *(f"{shard}:{epoch}" for shard, epoch in sorted(epochs.items())[:SHARDS_NOTED]))
        for checker in self._checkers:
            checker.on_shards(owner, epochs)
        for shard, epoch in epochs.items():
            self.epochs[shard] = (owner, epoch)

    def session_written(
        self, owner: str, write: SessionWrite, result: Committed | Rejected, *, is_assignment: bool = False
    ) -> None:
        """Record that a session's step was committed or refused."""
        if isinstance(result, Rejected):
            self.note("rejected", owner, write.session.id, result.why.value)
            return
        session_id = write.session.id
        before = self.sessions.get(session_id)
        after = self.store._sessions[session_id]
        self.note("session", owner, session_id, result.version, after.state.value, after.head_hash[:8])
        self.sessions[session_id] = after
        if write.idempotency is not None:
            self.truth.versions[session_id, write.idempotency.key.key] = after.version
        self.steps += 1
        if after.operator is not None and (news := self._news.pop(after.operator.workspace_id, None)) is not None:
            news.set()
        step = SessionStep(
            owner=owner,
            write=write,
            before=before,
            after=after,
            at_ms=self.clock.now_ms(),
            is_assignment=is_assignment,
        )
        for checker in self._checkers:
            checker.on_session(step)

    def workspace_written(self, owner: str, write: WorkspaceWrite, result: Committed | Rejected) -> None:
        """Record that a workspace's step was committed or refused."""
        if isinstance(result, Rejected):
            self.note("rejected", owner, write.workspace.id, result.why.value)
            return
        workspace_id = write.workspace.id
        before = self.workspaces.get(workspace_id)
        after = self.store._workspaces[workspace_id]
        claims = ",".join(f"{claim.session_id}{'*' * claim.is_live}" for claim in after.claims.values())
        self.note("workspace", owner, workspace_id, result.version, after.availability.value, claims)
        self.workspaces[workspace_id] = after
        self.steps += 1
        step = WorkspaceStep(owner=owner, write=write, before=before, after=after, at_ms=self.clock.now_ms())
        for checker in self._checkers:
            checker.on_workspace(step)

    def assignment_written(
        self, owner: str, session: SessionWrite, workspace: WorkspaceWrite, result: Committed | RejectedAssignment
    ) -> None:
        """Record that an assignment and its claim were committed together or refused."""
        if isinstance(result, RejectedAssignment):
            self.note("rejected", owner, session.session.id, f"{result.session or result.workspace}")
            return
        self.workspace_written(owner, workspace, Committed(workspace.workspace.version + 1))
        self.session_written(owner, session, result, is_assignment=True)

    def heartbeats_answered(self, batch: Sequence[Heartbeat]) -> None:
        """Record that the server knows that heartbeats are durable."""
        for beat in batch:
            self.truth.answered_beats_ms[beat.workspace_id] = beat.fix.at_ms

    def heartbeats_written(self, owner: str, batch: Sequence[Heartbeat]) -> None:
        """Record that heartbeats became durable."""
        now_ms = self.clock.now_ms()
        self.note("beats", *(f"{beat.workspace_id[:8]}:{beat.sequence}" for beat in batch))
        for beat in batch:
            self.truth.durable_beats.setdefault(beat.workspace_id, []).append(beat)
            if now_ms - beat.fix.at_ms > PROMPT_MS:
                self.truth.slow_beats_ms[beat.workspace_id] = beat.fix.at_ms
        for checker in self._checkers:
            checker.on_heartbeats(owner, batch)

    def evidence_delivered(self, session_id: str, received_ms: int) -> None:
        """Record that a delayed heartbeat or frame has reached its session."""
        if self.clock.now_ms() - received_ms > PROMPT_MS:
            self.truth.late_evidence_ms[session_id] = received_ms

    def replied(self, reply: CallReply) -> None:
        """Record that a caller knows the outcome of its command."""
        self.note("reply", reply.who, reply.what, reply.session_id, reply.outcome, reply.detail)
        if reply.outcome == "ok" and reply.session_id is not None:
            made = self.truth.versions.get((reply.session_id, reply.key), 0)
            acknowledged = self.truth.acknowledged
            acknowledged[reply.session_id] = max(made, acknowledged.get(reply.session_id, 0))
        for checker in self._checkers:
            checker.on_reply(reply)

    def heartbeat_acknowledged(self, workspace_id: str, sequence: int, *, known: int) -> None:
        """Record that a device got the answer that its heartbeat is durable.

        Args:
            known: The newest acknowledged heartbeat when this one was sent. Two that are in flight together may be
                answered in one turn, and their callers then run in any order.
        """
        acknowledged = self.truth.acknowledged_beats
        acknowledged[workspace_id] = max(sequence, acknowledged.get(workspace_id, -1))
        for checker in self._checkers:
            checker.on_acknowledged_heartbeat(workspace_id, sequence, known)

    def had_no_effect(self, slug: str) -> None:
        """Record that the creation of a workspace was answered 503: it must not exist."""
        self.note("no effect", slug)
        for checker in self._checkers:
            checker.on_no_effect(slug)

    def read_live(self, life: str, session_id: str, clean_seconds: int) -> None:
        """Record a caller's reading of a LIVE session's meter. `life` changes when actors were loaded again."""
        for checker in self._checkers:
            checker.on_reading(life, session_id, clean_seconds)

    async def until_news_of(self, workspace_id: str, *, patience_s: float) -> None:
        """Wait until a session of this operator changes, as a live stream would report it, or until the time limit."""
        news = self._news.setdefault(workspace_id, trio.Event())
        with trio.move_on_after(patience_s):
            await news.wait()

    def passed(self, seconds: float) -> None:
        """Call the time checks; about once a second."""
        for checker in self._checkers:
            checker.on_time(self.clock.now_ms())

    def ended(self) -> None:
        """Run the final checks after the quiet phase."""
        self.note("ended")
        for checker in self._checkers:
            checker.on_end()
