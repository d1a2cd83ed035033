"""Checks of money: holds, charges, the evidence for the charges, and one settlement per session."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Final, final

from sightline.domain.metering import PauseReason
from sightline.domain.session.model import Closed, Ended, Session
from sightline.domain.settlement import fee_of
from sightline.ports.ledger import HoldState
from simulation.history import PROMPT_MS, Checker, SessionStep

SILENCE_MS: Final = 10_000
GRACE_MS: Final = 2_000
ONE_PAUSE_MS: Final = 60_000
ALL_PAUSES_MS: Final = 180_000
STEADY_MS: Final = 6_000
"""Proofs at most this far apart show that there was no silence."""


@final
class Holds(Checker):
    """The held amount is the sum over open sessions; a hold shrinks to the charge at the end, 0 if never LIVE."""

    name: ClassVar[str] = "holds"

    def on_session(self, step: SessionStep) -> None:
        session, ledger = step.after, self.history.ledger
        hold = ledger._holds.get(session.id)
        if hold is None:
            self.fail(f"session {session.id} has no hold")
            return
        expected: tuple[int, HoldState]
        match session.phase:
            case Ended(charged=charged):
                expected = (charged, HoldState.CHARGE)
            case Closed():
                expected = (session.terms.hold, HoldState.RELEASED)
            case _:
                expected = (session.terms.hold, HoldState.OPEN)
        self.require(
            (hold.amount, hold.state) == expected,
            f"{session.state} session {session.id} holds {hold}, not {expected}",
        )

    def on_end(self) -> None:
        unknown = set(self.history.ledger._holds) - set(self.history.sessions)
        self.require(not unknown, f"money is held for sessions that do not exist: {sorted(unknown)[:3]}")


@final
class Charges(Checker):
    """Charge = clean seconds x rate, at most the hold; clean seconds never exceed the LIVE time, rounded up."""

    name: ClassVar[str] = "charges"

    def on_session(self, step: SessionStep) -> None:
        session, phase = step.after, step.after.phase
        if not isinstance(phase, Ended):
            return
        span_ms = phase.ended_at_ms - phase.started_at_ms
        whole_s, started_s = span_ms // 1000, (span_ms + 999) // 1000
        self.require(
            0 <= phase.clean_seconds <= max(whole_s, min(session.terms.minimum_s, started_s)),
            f"{session.id}: {phase.clean_seconds} s of {span_ms} ms",
        )
        self.require(phase.clean_seconds <= session.terms.max_duration_s, f"{session.id} is longer than agreed")
        self.require(
            phase.charged == phase.clean_seconds * session.terms.rate <= session.terms.hold,
            f"{session.id} is charged {phase.charged} for {phase.clean_seconds} s at {session.terms.rate}",
        )
        if isinstance(step.before, Session) and isinstance(step.before.phase, Ended):
            self.require(step.before.phase.charged == phase.charged, f"the charge of {session.id} changed")


@final
class Settlements(Checker):
    """Exactly one settlement for a session that was LIVE, none otherwise; its amounts add up."""

    name: ClassVar[str] = "settlements"

    def __init__(self) -> None:
        self._composed: dict[str, int] = {}

    def on_session(self, step: SessionStep) -> None:
        session = step.after
        composed = self._composed.get(session.id, 0) + (step.write.settle is not None)
        self._composed[session.id] = composed
        record = self.history.ledger._settlements.get(session.id)
        if not isinstance(session.phase, Ended):
            self.require(record is None, f"{session.state} session {session.id} is being settled")
            return
        self.require(composed == 1 and record is not None, f"session {session.id} was settled {composed} times")
        if record is not None:
            paid = record.payload
            fee = fee_of(session.phase.charged, session.terms.platform_fee_bps)
            self.require(
                paid.to_amount + paid.fee_amount == session.phase.charged and paid.fee_amount == fee,
                f"the settlement of {session.id} pays {paid.to_amount} + {paid.fee_amount} of {session.phase.charged}",
            )


@final
class Pauses(Checker):
    """The windows of the meter justify an end by pauses: one pause of 60 s, or 180 s in all, for the stated reason."""

    name: ClassVar[str] = "pauses"

    def on_session(self, step: SessionStep) -> None:
        phase = step.after.phase
        if not isinstance(phase, Ended) or phase.reason.value not in set(PauseReason):
            return
        at_the_end = {window.reason.value for window in phase.windows if window.to_ms == phase.ended_at_ms}
        self.require(phase.reason.value in at_the_end, f"{step.after.id} ended {phase.reason} with {phase.windows}")
        pauses = _merged([(window.from_ms, window.to_ms or phase.ended_at_ms) for window in phase.windows])
        lengths = [end - start for start, end in pauses]
        self.require(
            max(lengths, default=0) >= ONE_PAUSE_MS or sum(lengths) >= ALL_PAUSES_MS,
            f"{step.after.id} ended {phase.reason} after pauses of {lengths} ms",
        )


@final
class Meter(Checker):
    """Time without a recorded proof is not charged, and time that was clearly clean is not lost.

    Uses the stored heartbeats and the actions of the devices, not the session machine's evidence.
    """

    name: ClassVar[str] = "meter"

    def on_session(self, step: SessionStep) -> None:
        phase = step.after.phase
        if not isinstance(phase, Ended) or (step.before is not None and isinstance(step.before.phase, Ended)):
            return
        start, end = phase.started_at_ms, phase.ended_at_ms
        presence = self._proofs(phase.operator.workspace_id, start, end + SILENCE_MS)
        media = self.history.truth.media_ms.get(step.after.id, [])
        dirty = _merged([*_unproven(presence, start, end), *_unproven(media, start, end)])
        provable_ms = end - start - sum(until - since for since, until in dirty)
        provable_s = provable_ms // 1000
        if provable_ms > 0:
            provable_s = max(provable_s, min(step.after.terms.minimum_s, (end - start + 999) // 1000))
        self.require(
            phase.clean_seconds <= provable_s,
            f"{step.after.id} is charged {phase.clean_seconds} s; heartbeats and frames prove at most {provable_s} s",
        )
        proofs = [at_ms for at_ms in presence if at_ms <= end]
        if phase.windows and self._was_steady(step.after.id, phase, proofs):
            self.fail(f"{step.after.id} was published without interruption and has windows {phase.windows}")

    def _proofs(self, workspace_id: str, start: int, end: int) -> list[int]:
        beats = self.history.truth.durable_beats.get(workspace_id, [])
        return sorted(
            beat.fix.at_ms
            for beat in beats
            if start <= beat.fix.at_ms <= end and beat.is_fresh and beat.fix.is_proof and beat.fix.accuracy_m <= 100
        )

    def _was_steady(self, session_id: str, phase: Ended, proofs: list[int]) -> bool:
        truth, workspace_id = self.history.truth, phase.operator.workspace_id
        start, end = phase.started_at_ms, phase.ended_at_ms
        troubles = (
            truth.disturbed_ms,
            truth.odd_fix_ms.get(workspace_id, -1),
            truth.slow_beats_ms.get(workspace_id, -1),
            truth.late_evidence_ms.get(session_id, -1),
        )
        if max(troubles) >= start - SILENCE_MS:
            return False
        if proofs and proofs[-1] > truth.answered_beats_ms.get(workspace_id, -1):
            return False  # the server does not know yet that its newest heartbeat is stored
        shown = truth.media_ms.get(session_id, [])
        media = shown[bisect_left(shown, start) : bisect_right(shown, end)]
        return all(_is_unbroken(instants, start, end) for instants in (proofs, media))


def _is_unbroken(proofs: Sequence[int], start: int, end: int) -> bool:
    """Whether proofs cover the whole session. The newest ones may not have arrived yet. The start is not a proof."""
    arrived = [at_ms for at_ms in proofs if at_ms <= end - PROMPT_MS]
    return (
        bool(arrived)
        and end - arrived[-1] <= GRACE_MS
        and all(later - earlier <= STEADY_MS for earlier, later in pairwise([start, *proofs]))
    )


def _unproven(proofs: Sequence[int], start: int, end: int) -> list[tuple[int, int]]:
    """List the spans of a session without proof: gaps of 10 s or more, and the time after the last proof."""
    spans: list[tuple[int, int]] = []
    last: int | None = None
    for at_ms in proofs:
        if at_ms < start:
            continue
        since = start if last is None else last
        if at_ms - since >= SILENCE_MS:
            spans.append((since if last is None else since + GRACE_MS, min(at_ms, end)))
        last = at_ms
    if last is None:
        return [(start, end)]
    if last < end:
        spans.append((last + GRACE_MS, end))
    return [(since, until) for since, until in spans if since < until]


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
