"""Checks of rows: who may write them, in which order, and which state may follow which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, final

from sightline.actors.shards import shard_of
from sightline.domain.session.messages import EventKind
from sightline.domain.session.model import Assigned, Session, SessionState
from sightline.domain.session.record import event_hash
from sightline.domain.value import replace
from sightline.ports.store import Heartbeat, ShardLease
from simulation.history import Checker, SessionStep, WorkspaceStep

S = SessionState
# A step that records REOPENED goes from ASSIGNED to REQUESTED, and possibly on from there.
LEGAL: Final = {
    S.REQUESTED: {S.ASSIGNED, S.CANCELLED, S.EXPIRED},
    S.ASSIGNED: {S.LIVE, S.CANCELLED, S.EXPIRED},
    S.LIVE: {S.LIVE, S.ENDED},
    S.ENDED: {S.ENDED},
    S.CANCELLED: set[SessionState](),
    S.EXPIRED: set[SessionState](),
}


@final
class Epochs(Checker):
    """Each epoch has one owner; epochs increase; every write carries the epoch at which its writer holds the shard."""

    name: ClassVar[str] = "epochs"

    def __init__(self) -> None:
        self._owners: dict[tuple[int, int], str] = {}

    def on_shards(self, owner: str, epochs: Mapping[int, int]) -> None:
        for shard, epoch in epochs.items():
            held = self.history.epochs.get(shard)
            self.require(held is None or epoch > held[1], f"epoch of shard {shard} went from {held} to {epoch}")
            first = self._owners.setdefault((shard, epoch), owner)
            self.require(first == owner, f"shard {shard} epoch {epoch} has two owners: {first}, {owner}")

    def on_session(self, step: SessionStep) -> None:
        lease = step.write.lease
        owner = self.history.epochs[lease.shard][0] if step.is_assignment else step.owner
        self._check(owner, lease, step.after.id)

    def on_workspace(self, step: WorkspaceStep) -> None:
        self._check(step.owner, step.write.lease, step.after.id)

    def on_heartbeats(self, owner: str, batch: Sequence[Heartbeat]) -> None:
        for beat in batch:
            holder = self.history.epochs[shard_of(beat.workspace_id)]
            self.require(holder[0] == owner, f"{owner} took heartbeats of {beat.workspace_id} while {holder} holds it")

    def _check(self, owner: str, lease: ShardLease, row: str) -> None:
        holder = self.history.epochs[shard_of(row)]
        self.require(lease.shard == shard_of(row), f"{row} was written under shard {lease.shard}")
        self.require(
            holder == (owner, lease.epoch), f"{owner} wrote {row} at epoch {lease.epoch} while {holder} holds it"
        )


@final
class Versions(Checker):
    """Every commit increases the row's version by exactly one."""

    name: ClassVar[str] = "versions"

    def on_session(self, step: SessionStep) -> None:
        before = step.before.version if step.before is not None else 0
        self.require(
            step.after.version == before + 1, f"session {step.after.id} went from {before} to {step.after.version}"
        )
        self.require(step.write.session.version == before, f"session {step.after.id} was written over a newer row")

    def on_workspace(self, step: WorkspaceStep) -> None:
        before = step.before.version if step.before is not None else 0
        self.require(
            step.after.version == before + 1, f"workspace {step.after.id} went from {before} to {step.after.version}"
        )
        self.require(step.write.workspace.version == before, f"workspace {step.after.id} was written over a newer row")


@final
class Transitions(Checker):
    """A session changes state only as the table allows, and its fixed fields never change."""

    name: ClassVar[str] = "transitions"

    def on_session(self, step: SessionStep) -> None:
        before, after = step.before, step.after
        if before is None:
            self.require(after.state is S.REQUESTED, f"session {after.id} was created in state {after.state}")
            return
        if replace(after, version=before.version) == before:
            return  # a new version only, so that an assignment which was prepared before is not stored
        was_reopened = any(recorded.event.kind is EventKind.REOPENED for recorded in step.write.events)
        allowed = LEGAL[S.REQUESTED] | {S.REQUESTED} if was_reopened else LEGAL[before.state]
        self.require(after.state in allowed, f"session {after.id} went from {before.state} to {after.state}")
        self.require(not was_reopened or before.state is S.ASSIGNED, f"session {after.id} was reopened: {before.state}")
        self.require(after.terms == before.terms, f"the terms of session {after.id} changed")
        if isinstance(after.phase, Assigned):
            again = after.phase.operator.workspace_id in after.phase.unstarted_by
            self.require(not again, f"session {after.id} was assigned again to an operator that had not started it")
        if before.operator is not None and not was_reopened:
            self.require(after.operator == before.operator, f"session {after.id} changed its operator")

    def on_end(self) -> None:
        for session in self.history.sessions.values():
            self.require(session.is_terminal, f"session {session.id} is still {session.state} after the quiet phase")


@final
class MeterChain(Checker):
    """Events are numbered without gaps, and every hash covers the previous one."""

    name: ClassVar[str] = "chain"

    def on_session(self, step: SessionStep) -> None:
        head = step.before.head_hash if step.before is not None else ""
        count = step.before.events if step.before is not None else 0
        for recorded in step.write.events:
            count += 1
            head = event_hash(head, step.after.id, count, recorded.event)
            self.require(
                recorded.sequence == count,
                f"event {recorded.sequence} of {step.after.id} is stored at position {count}",
            )
            self.require(recorded.hash == head, f"event {count} of {step.after.id} breaks the hash chain")
        self._head(step.after, head, count)

    def _head(self, session: Session, head: str, count: int) -> None:
        self.require((session.head_hash, session.events) == (head, count), f"the head of {session.id} is not its last")
