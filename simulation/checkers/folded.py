"""Checks that heartbeats which are stored are counted by their LIVE session, whatever messages were lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, final

from sightline.domain.metering import PauseReason
from sightline.domain.session.model import Ended, Live
from simulation.history import Checker

if TYPE_CHECKING:
    from sightline.domain.session.model import Session
    from sightline.ports.store import Heartbeat
    from simulation.history import History, SessionStep

SILENCE_MS: Final = 10_000
ARRIVED_MS: Final = 5_000
"""Heartbeats that were received this long ago have reached their session."""
SETTLED_MS: Final = 25_000
"""Lost messages must be repaired within this time after the last fault."""


@final
class Folded(Checker):
    """A session that ends well after the faults has no silence in which heartbeats of its operator were stored."""

    name: ClassVar[str] = "folded"

    def on_session(self, step: SessionStep) -> None:
        phase, healed_ms = step.after.phase, self.history.truth.healed_ms
        was_live = step.before is not None and isinstance(step.before.phase, Live)
        if not isinstance(phase, Ended) or not was_live or healed_ms is None or step.at_ms < healed_ms + SETTLED_MS:
            return
        beats = _proofs(self.history, phase.operator.workspace_id)
        for window in phase.windows:
            if window.reason is PauseReason.LOCATION_STALE:
                to_ms = min(window.to_ms or phase.ended_at_ms, phase.ended_at_ms - ARRIVED_MS)
                lost = [beat.sequence for beat in beats if window.from_ms < beat.fix.at_ms < to_ms]
                self.require(not lost, f"{step.after.id} ended with {window} and lost the heartbeats {lost[:5]}")


def beats_not_folded(history: History, session: Session) -> list[int]:
    """The sequences of stored heartbeats that lie in a silence of a LIVE session."""
    phase = session.phase
    assert isinstance(phase, Live)
    runs, start_ms = phase.evidence.presence.runs, phase.evidence.started_at_ms
    until_ms = history.clock.now_ms() - ARRIVED_MS
    ends = [start_ms, *(last for _, last in runs)]
    begins = [*(first for first, _ in runs), until_ms]
    silences = [(end, begin) for end, begin in zip(ends, begins, strict=True) if begin - end >= SILENCE_MS]
    beats = _proofs(history, phase.operator.workspace_id)
    return [beat.sequence for beat in beats if any(end < beat.fix.at_ms < begin for end, begin in silences)]


def _proofs(history: History, workspace_id: str) -> list[Heartbeat]:
    """The stored heartbeats of an operator that prove its presence."""
    beats = history.truth.durable_beats.get(workspace_id, [])
    return [beat for beat in beats if beat.is_fresh and beat.fix.is_proof and beat.fix.accuracy_m <= 100]
