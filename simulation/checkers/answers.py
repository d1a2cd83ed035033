"""Checks of answers: acknowledged calls are durable, refused calls have no effect, no call takes effect twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from sightline.domain.session.messages import EventKind
from sightline.ports.store import Heartbeat
from simulation.history import CallReply, Checker, SessionStep, WorkspaceStep

PROOF: Final = {
    "create": (EventKind.CREATED,),
    "dispatch": (EventKind.ASSIGNED,),
    "accept": (EventKind.ASSIGNED,),
    "start": (EventKind.STARTED,),
    "decline": (EventKind.REOPENED, EventKind.EXPIRED),
    "end": (EventKind.ENDED, EventKind.CANCELLED),
    "cancel": (EventKind.CANCELLED,),
}
"""The recorded events of which an acknowledged command needs at least one. `end` in ASSIGNED cancels the session."""


@final
class Acknowledged(Checker):
    """An acknowledged command or heartbeat is in the store when it is acknowledged, and stays there."""

    name: ClassVar[str] = "acknowledged"

    def __init__(self) -> None:
        self._events: list[tuple[str, tuple[EventKind, ...]]] = []
        self._beats: list[tuple[str, int]] = []

    def on_reply(self, reply: CallReply) -> None:
        if reply.outcome != "ok" or reply.what not in PROOF or reply.session_id is None:
            return
        claim = (reply.session_id, PROOF[reply.what])
        self._events.append(claim)
        self._check_event(*claim)

    def on_acknowledged_heartbeat(self, workspace_id: str, sequence: int, _known: int) -> None:
        self._beats.append((workspace_id, sequence))
        stored = self.history.store._heartbeats.get(workspace_id, [])
        newest_first = (beat.sequence for beat in reversed(stored))
        self.require(
            any(found == sequence for found in newest_first),
            f"heartbeat {sequence} of {workspace_id} was acknowledged and is not stored",
        )

    def on_end(self) -> None:
        for claim in self._events:
            self._check_event(*claim)
        stored = {
            (workspace_id, beat.sequence)
            for workspace_id, beats in self.history.store._heartbeats.items()
            for beat in beats
        }
        lost = [beat for beat in self._beats if beat not in stored]
        self.require(not lost, f"acknowledged heartbeats are gone: {lost[:3]}")

    def _check_event(self, session_id: str, kinds: tuple[EventKind, ...]) -> None:
        recorded = self.history.store._events.get(session_id, [])
        self.require(
            any(entry.event.kind in kinds for entry in recorded),
            f"{kinds[0].value} of {session_id} was acknowledged and is not recorded",
        )


@final
class OneEffect(Checker):
    """A command has one effect however often it is repeated, and none if it was refused."""

    name: ClassVar[str] = "one effect"

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], set[str]] = {}
        self._keys: set[str] = set()

    def on_session(self, step: SessionStep) -> None:
        record = step.write.idempotency
        if record is None:
            return
        # The path distinguishes the parts of one command: cancel-all has a record for each assignment that it cancels.
        self._keys.add(record.key.key)
        sessions = self._by_key.setdefault((record.key.path, record.key.key), set())
        sessions.add(f"{step.after.id}/{step.after.version}")
        self.require(len(sessions) == 1, f"the command {record.key.key} took effect as {sorted(sessions)}")

    def on_reply(self, reply: CallReply) -> None:
        happened = reply.key in self._keys
        if reply.outcome == "ok" and reply.what in PROOF:
            self.require(happened, f"{reply.what} by {reply.who} was acknowledged without a recorded answer")
        if reply.outcome == "refused":
            self.require(not happened, f"{reply.what} by {reply.who} was refused ({reply.detail}) and took effect")


@final
class Sequences(Checker):
    """A heartbeat is acknowledged only above those acknowledged before it was sent, and each number is one report's.

    A report may be stored twice if its device repeated it while an actor that was lost in a crash was still writing it.
    """

    name: ClassVar[str] = "sequences"

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], Heartbeat] = {}

    def on_heartbeats(self, owner: str, batch: Sequence[Heartbeat]) -> None:
        for beat in batch:
            first = self._seen.setdefault((beat.workspace_id, beat.sequence), beat)
            self.require(_report(first) == _report(beat), f"heartbeat {beat.sequence} of {beat.workspace_id} is two")

    def on_acknowledged_heartbeat(self, workspace_id: str, sequence: int, known: int) -> None:
        self.require(sequence > known, f"heartbeat {sequence} of {workspace_id} was acknowledged after {known}")


def _report(beat: Heartbeat) -> tuple[float, float, float, str | None]:
    return (beat.fix.lat, beat.fix.lng, beat.fix.accuracy_m, beat.session_id)


@final
class NoEffect(Checker):
    """A creation without an idempotency key that was answered 503 has no effect, now or later."""

    name: ClassVar[str] = "no effect"

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def on_no_effect(self, slug: str) -> None:
        self._refused.add(slug)
        self.require(slug not in self.history.store._slugs, f"{slug} was answered as not created, and exists")

    def on_workspace(self, step: WorkspaceStep) -> None:
        slug = step.after.slug
        self.require(slug not in self._refused, f"{slug} was created after it was answered as not created")


@final
class Readings(Checker):
    """The meter that a caller reads never decreases while the session's actor keeps its memory."""

    name: ClassVar[str] = "readings"

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def on_reading(self, life: str, session_id: str, clean_seconds: int) -> None:
        last = self._last.get((life, session_id), 0)
        self.require(clean_seconds >= last, f"the meter of {session_id} went from {last} s to {clean_seconds} s")
        self._last[life, session_id] = clean_seconds
