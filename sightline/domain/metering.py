"""The meter: which seconds of a live session were clean. A pure function of recorded evidence.

Three things can make time dirty, each a *window*: no proof of presence (LOCATION_STALE), presence outside the
fence (GEOFENCE_EXIT), no proof of media (MEDIA_LOST). Heartbeats and media are *signals*: instants at which
something was proved, folded into runs, and breaks at which something was reported lost. A window opens when a
signal has been silent for `silence_ms` or broke, is dated back to the last proof plus `grace_ms`, and closes at
the next proof. Because a signal is a set of instants, late evidence gives the same meter as evidence in order.

Proofs no further apart than `grace_ms` form one run; a break inside a run has no effect, since what arrived
outweighs a notice that it was lost. What is charged is whole clean seconds, floored once, at the very end.

What is asked at every heartbeat (is a window open, when is the next look due) is answered from the ends of the
signals alone; only a reading walks over the windows of the past.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from sightline.domain.units import SECOND_MS, MicroUsdc, floor_div

Interval = tuple[int, int]

OPEN: Final = -1
"""End of a fence window that has not closed."""

RUNS_MAX: Final = 64
"""Runs a signal keeps apart. Beyond, its oldest quiet gap is closed for good: a break that comes later than that many
runs after its time finds no gap any more."""


class PauseReason(StrEnum):
    """Why the meter is paused."""

    LOCATION_STALE = "LOCATION_STALE"
    GEOFENCE_EXIT = "GEOFENCE_EXIT"
    MEDIA_LOST = "MEDIA_LOST"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MeterLimits:
    """The numbers of LIVE enforcement; every one is a setting."""

    silence_ms: int = 10_000
    grace_ms: int = 2_000
    pause_max_ms: int = 60_000
    paused_total_max_ms: int = 180_000


@final
@dataclass(frozen=True, slots=True)
class Signal:
    """A set of proofs, kept as sorted disjoint runs, and a sorted set of breaks."""

    runs: tuple[Interval, ...] = ()
    breaks: tuple[int, ...] = ()

    @property
    def last_proof_ms(self) -> int | None:
        """The newest proof, or None."""
        return self.runs[-1][1] if self.runs else None

    def prove(self, at_ms: int, limits: MeterLimits, *, is_prompt: bool = False) -> "Signal":
        """Add a proof, in any order.

        Args:
            is_prompt: Breaks of this signal never come late, so that a gap that is too short to be silence and holds
                no break need not be remembered.
        """
        runs = self.runs
        if runs and runs[-1][0] <= at_ms:
            first, last = runs[-1]
            if at_ms <= last:
                return self
            if self._is_joined(last, at_ms, limits, is_prompt=is_prompt):
                return Signal((*runs[:-1], (first, at_ms)), self.breaks)
            return Signal(self._bounded((*runs, (at_ms, at_ms)), limits), self.breaks)
        merged: list[Interval] = []
        for first, last in sorted((*runs, (at_ms, at_ms))):
            if merged and self._is_joined(merged[-1][1], first, limits, is_prompt=is_prompt):
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return Signal(self._bounded(tuple(merged), limits), self.breaks)

    def lose(self, at_ms: int) -> "Signal":
        """Add a break, in any order."""
        if at_ms in self.breaks:
            return self
        return Signal(self.runs, tuple(sorted((*self.breaks, at_ms))))

    def span(self, first_ms: int, last_ms: int) -> "Signal":
        """Take it as proved without a gap from `first_ms`, which is not before the newest proof, to `last_ms`."""
        assert self.last_proof_ms is None or self.last_proof_ms <= first_ms <= last_ms
        if self.last_proof_ms == first_ms:
            return Signal((*self.runs[:-1], (self.runs[-1][0], last_ms)), self.breaks)
        return Signal((*self.runs, (first_ms, last_ms)), self.breaks)

    def _is_joined(self, last: int, first: int, limits: MeterLimits, *, is_prompt: bool) -> bool:
        """Whether proofs at `last` and `first` are of one run."""
        if first - last <= limits.grace_ms:
            return True
        return is_prompt and self._is_quiet(last, first, limits)

    def _is_quiet(self, last: int, first: int, limits: MeterLimits) -> bool:
        if first - last >= limits.silence_ms:
            return False
        return not self.breaks or bisect_right(self.breaks, first) == bisect_left(self.breaks, last)

    def _bounded(self, runs: tuple[Interval, ...], limits: MeterLimits) -> tuple[Interval, ...]:
        if len(runs) <= RUNS_MAX:
            return runs
        for place in range(len(runs) - 1):
            (first, last), (again, end) = runs[place], runs[place + 1]
            if self._is_quiet(last, again, limits):
                return (*runs[:place], (first, end), *runs[place + 2 :])
        return runs


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything the meter of one session knows. `first_outside_ms` is a fix outside that needs a second one."""

    started_at_ms: int
    presence: Signal = Signal()
    media: Signal = Signal()
    fence_windows: tuple[Interval, ...] = ()
    first_outside_ms: int | None = None

    def with_media(self, media: Signal) -> "Evidence":
        """The same with other evidence of media."""
        return Evidence(
            started_at_ms=self.started_at_ms,
            presence=self.presence,
            media=media,
            fence_windows=self.fence_windows,
            first_outside_ms=self.first_outside_ms,
        )


@final
@dataclass(frozen=True, slots=True)
class Window:
    """A dirty span; `to_ms` is None while it is open."""

    from_ms: int
    to_ms: int | None
    reason: PauseReason


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The meter at one instant."""

    windows: tuple[Window, ...]
    dirty_ms: int
    clean_seconds: int
    pause: Window | None
    """The open window that opened first; its `from_ms` is the start of the pause it is part of."""
    pause_from_ms: int | None


def windows_at(evidence: Evidence, now_ms: int, limits: MeterLimits) -> tuple[Window, ...]:
    """Every dirty window known at `now_ms`, by start."""
    found = _signal_windows(evidence.started_at_ms, evidence.presence, now_ms, PauseReason.LOCATION_STALE, limits)
    found += _signal_windows(evidence.started_at_ms, evidence.media, now_ms, PauseReason.MEDIA_LOST, limits)
    found += [
        Window(start, None if end == OPEN else end, PauseReason.GEOFENCE_EXIT)
        for start, end in evidence.fence_windows
        if start <= now_ms
    ]
    return tuple(sorted(found, key=_opening))


def _opening(window: Window) -> tuple[int, str]:
    return (window.from_ms, window.reason)


def _signal_windows(
    started_at_ms: int, signal: Signal, now_ms: int, reason: PauseReason, limits: MeterLimits
) -> list[Window]:
    windows: list[Window] = []
    last: int | None = None
    for first, end in signal.runs:
        if first > now_ms:
            break
        closed = _gap_window(started_at_ms, last, first, signal.breaks, limits)
        if closed is not None and closed[1] > closed[0]:
            windows.append(Window(closed[0], closed[1], reason))
        last = end
    opened = _open_window(started_at_ms, signal, now_ms, reason, limits)
    return windows if opened is None else [*windows, opened]


def _open_window(
    started_at_ms: int, signal: Signal, now_ms: int, reason: PauseReason, limits: MeterLimits
) -> Window | None:
    last: int | None = None
    for first, end in reversed(signal.runs):
        if first <= now_ms:
            last = end
            break
    if last is not None and last >= now_ms:
        return None
    gap = _gap_window(started_at_ms, last, now_ms, signal.breaks, limits)
    return Window(gap[0], None, reason) if gap is not None and gap[0] <= now_ms else None


def _gap_window(
    started_at_ms: int, last: int | None, until: int, breaks: tuple[int, ...], limits: MeterLimits
) -> Interval | None:
    """The dirty part of the silence between the proof `last` (None: never any) and `until`, if there is one."""
    begin = started_at_ms if last is None else max(last, started_at_ms)
    if until <= begin:
        return None
    place = bisect_right(breaks, begin)
    broke = place < len(breaks) and breaks[place] <= until
    if last is not None and place and breaks[place - 1] == last:
        broke, place = True, place - 1
    if not broke and until - begin < limits.silence_ms:
        return None
    if last is None or last < started_at_ms:
        return (started_at_ms, until)
    graced = last + limits.grace_ms
    start = min(graced, breaks[place]) if broke else graced
    return (max(started_at_ms, start), until)


def union(windows: tuple[Window, ...], until_ms: int) -> list[Interval]:
    """The windows as sorted disjoint spans, open ones ending at `until_ms`."""
    spans: list[Interval] = []
    for window in windows:
        start, end = window.from_ms, until_ms if window.to_ms is None else min(window.to_ms, until_ms)
        if end <= start:
            continue
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans


def horizon_ms(evidence: Evidence, now_ms: int) -> int:
    """Up to when time is proved: what comes after it may yet turn out dirty, so a live reading stops there.

    The grace after the last proof is not counted: a break inside it that is told late would take it back. What is
    charged has the grace (`read_final`).
    """
    horizon = now_ms
    for signal in (evidence.presence, evidence.media):
        last = signal.last_proof_ms
        horizon = min(horizon, evidence.started_at_ms if last is None else max(last, evidence.started_at_ms))
    if evidence.first_outside_ms is not None:
        horizon = min(horizon, max(evidence.first_outside_ms, evidence.started_at_ms))
    return horizon


def read_live(evidence: Evidence, now_ms: int, max_duration_s: int, limits: MeterLimits) -> Reading:
    """The reading of a LIVE session: counts proved time only, so that it never runs backwards.

    One thing can still lower it: a break told only after a proof of the same signal that is not older than it, in a gap
    between proofs longer than the grace. Such a gap counts once it is over, or a slow camera's reading would not move.
    """
    windows = windows_at(evidence, now_ms, limits)
    return _reading(evidence, windows, now_ms, horizon_ms(evidence, now_ms), max_duration_s)


def read_final(evidence: Evidence, ended_at_ms: int, max_duration_s: int, limits: MeterLimits) -> Reading:
    """The reading that is charged: everything not shown dirty by `ended_at_ms` is clean."""
    windows = windows_at(evidence, ended_at_ms, limits)
    return _reading(evidence, windows, ended_at_ms, ended_at_ms, max_duration_s)


def _reading(
    evidence: Evidence, windows: tuple[Window, ...], now_ms: int, count_until_ms: int, max_duration_s: int
) -> Reading:
    spans = union(windows, now_ms)
    counted = union(windows, count_until_ms)
    clean_ms = count_until_ms - evidence.started_at_ms - sum(end - start for start, end in counted)
    clean_s = min(max_duration_s, floor_div(max(0, clean_ms), SECOND_MS))
    opened = [window for window in windows if window.to_ms is None]
    pause_from = None
    if opened:
        pause_from = spans[-1][0] if spans and spans[-1][1] >= now_ms else opened[0].from_ms
    return Reading(
        windows=windows,
        dirty_ms=sum(end - start for start, end in spans),
        clean_seconds=clean_s,
        pause=opened[0] if opened else None,
        pause_from_ms=pause_from,
    )


def open_pause(evidence: Evidence, now_ms: int, limits: MeterLimits) -> Window | None:
    """The open window that opened first, or None. The same as in a reading, without looking at the past."""
    found: Window | None = None
    for signal, reason in (
        (evidence.presence, PauseReason.LOCATION_STALE),
        (evidence.media, PauseReason.MEDIA_LOST),
    ):
        last = signal.last_proof_ms
        if last is not None and not signal.breaks and last <= now_ms < last + limits.silence_ms:
            continue
        window = _open_window(evidence.started_at_ms, signal, now_ms, reason, limits)
        if window is not None and (found is None or _opening(window) < _opening(found)):
            found = window
    if evidence.fence_windows:
        start, end = evidence.fence_windows[-1]
        window = Window(start, None, PauseReason.GEOFENCE_EXIT)
        if end == OPEN and start <= now_ms and (found is None or _opening(window) < _opening(found)):
            found = window
    return found


def next_check_ms(evidence: Evidence, now_ms: int, limits: MeterLimits) -> int:
    """The next instant at which silence alone would open a window, or at which a pause would end the session."""
    next_ms = pause_end_ms(evidence, now_ms, limits)
    for signal in (evidence.presence, evidence.media):
        last = signal.last_proof_ms
        silent_at = (evidence.started_at_ms if last is None else last) + limits.silence_ms
        if silent_at > now_ms and (next_ms is None or silent_at < next_ms):
            next_ms = silent_at
    return now_ms + limits.silence_ms if next_ms is None else next_ms


def pause_end_ms(evidence: Evidence, now_ms: int, limits: MeterLimits) -> int | None:
    """When the present pause ends the session if nothing recovers; None while nothing is paused."""
    opened = open_pause(evidence, now_ms, limits)
    if opened is None:
        return None
    spans = union(windows_at(evidence, now_ms, limits), now_ms)
    start = opened.from_ms
    if spans and spans[-1][1] >= start:
        start = spans[-1][0]
        spans = spans[:-1]
    earlier = sum(until - since for since, until in spans)
    return start + min(limits.pause_max_ms, max(0, limits.paused_total_max_ms - earlier))


def charge(clean_seconds: int, rate: MicroUsdc, hold: MicroUsdc) -> MicroUsdc:
    """The price of the clean seconds; never above the hold, since clean seconds never exceed the maximum."""
    charged = clean_seconds * rate
    assert 0 <= charged <= hold
    return MicroUsdc(charged)
