"""The meter: which seconds of a LIVE session were clean. A pure function of recorded evidence.

Three kinds of *window* make time dirty: no proof of presence (LOCATION_STALE), the device outside the fence
(GEOFENCE_EXIT), no proof of media (MEDIA_LOST). Presence and media are *signals*: the instants at which something was
proved, folded into runs, and *breaks*, the instants at which it was reported lost.

A gap between two proofs of a signal is dirty if it is `silence_ms` long or longer, or if it contains a break. Its
window opens when the silence has lasted that long, or at the break; it is dated back to the last proof plus `grace_ms`,
if that is earlier; it closes at the next proof. A proof at the very instant at which the silence is complete is too
late. A break and a proof of the same millisecond count in the order in which they were reported.

The clean time of an ended session is its duration minus the union of its windows, in whole seconds, rounded down once;
`count_seconds` gives the shortest charge. At the end, time after the last proof of either signal plus `grace_ms` is
dirty as well: see `read_final`.

A heartbeat asks only whether a window is open and when to look next. Both are answered from the newest proofs; only a
reading, and a pause that may end the session, walk over the windows of the past.
"""

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, final

from sightline.domain.units import SECOND_MS, MicroUsdc, ceil_div, floor_div
from sightline.domain.value import Value

Interval = tuple[int, int]

OPEN: Final = -1
"""`to_ms` of a fence window that is still open."""

RUNS_MAX: Final = 128
"""Most runs a signal stores. Above it the oldest clean gap is merged into one run; if every gap is dirty, the shortest
run is dropped, so its time counts as dirty."""

FAR_MS: Final = 1 << 60
"""Later than any instant: where an open window ends if nothing closes it."""


class PauseReason(StrEnum):
    """Why the meter is paused."""

    LOCATION_STALE = "LOCATION_STALE"
    GEOFENCE_EXIT = "GEOFENCE_EXIT"
    MEDIA_LOST = "MEDIA_LOST"


@final
class MeterLimits(Value, kw_only=True):
    """The limits of LIVE enforcement; each is a setting."""

    silence_ms: int = 10_000
    grace_ms: int = 2_000
    pause_max_ms: int = 60_000
    paused_total_max_ms: int = 180_000


class Gap(NamedTuple):
    """A dirty gap of a signal: from where it is dirty, and when that could first be known."""

    from_ms: int
    opened_ms: int


@final
class Signal(Value):
    """The proofs of one signal as sorted disjoint runs, and the first break of each broken gap."""

    runs: tuple[Interval, ...] = ()
    breaks: tuple[int, ...] = ()

    @property
    def last_proof_ms(self) -> int | None:
        """The newest proof, or None."""
        return self.runs[-1][1] if self.runs else None

    def prove(self, at_ms: int, limits: MeterLimits, *, is_prompt: bool = False) -> "Signal":
        """Add a proof. It may be older than the newest one.

        Args:
            is_prompt: This signal's proofs and breaks arrive in order, so a clean gap is final and joins two runs.
        """
        if at_ms in self.breaks:
            kept = tuple(broke_ms for broke_ms in self.breaks if broke_ms != at_ms)
            return Signal(self.runs, kept).prove(at_ms, limits, is_prompt=is_prompt)
        runs = self.runs
        if runs and runs[-1][0] <= at_ms:
            first, last = runs[-1]
            if at_ms <= last:
                return self
            if self._is_joined(last, at_ms, limits, is_prompt=is_prompt):
                return Signal((*runs[:-1], (first, at_ms)), self.breaks)
            return self._bounded((*runs, (at_ms, at_ms)), limits)
        merged: list[Interval] = []
        for first, last in sorted((*runs, (at_ms, at_ms))):
            if merged and self._is_joined(merged[-1][1], first, limits, is_prompt=is_prompt):
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return self._bounded(tuple(merged), limits)

    def lose(self, at_ms: int) -> "Signal":
        """Add a break. One that is older than the newest proof is ignored: the proof shows that the signal was back."""
        last = self.last_proof_ms
        if last is not None and at_ms < last:
            return self
        if self.breaks and (last is None or self.breaks[-1] >= last):
            return Signal(self.runs, (*self.breaks[:-1], min(at_ms, self.breaks[-1])))
        return Signal(self.runs, (*self.breaks, at_ms))

    def span(self, first_ms: int, last_ms: int) -> "Signal":
        """Add an unbroken run from `first_ms`, which is not before the newest proof, to `last_ms`."""
        assert self.last_proof_ms is None or self.last_proof_ms <= first_ms <= last_ms
        if self.last_proof_ms == first_ms:
            return Signal((*self.runs[:-1], (self.runs[-1][0], last_ms)), self.breaks)
        return Signal((*self.runs, (first_ms, last_ms)), self.breaks)

    def gap(self, started_at_ms: int, last: int | None, until: int, limits: MeterLimits) -> Gap | None:
        """Return what is dirty of the gap from the proof `last` (None: the start) to the proof `until`."""
        begin = started_at_ms if last is None else last
        broke_ms = self.first_break(begin, until) if self.breaks else None
        opened_ms = begin + limits.silence_ms
        if broke_ms is not None:
            opened_ms = min(opened_ms, broke_ms)
        elif until < opened_ms:
            return None
        return Gap(started_at_ms if last is None else min(last + limits.grace_ms, opened_ms), opened_ms)

    def open_gap(self, started_at_ms: int, now_ms: int, limits: MeterLimits) -> Gap | None:
        """Return the dirty part of the gap between the newest proof and `now_ms`."""
        last: int | None = None
        for first, end in reversed(self.runs):
            if first <= now_ms:
                last = end
                break
        if last is not None and last > now_ms:
            return None
        gap = self.gap(started_at_ms, last, now_ms + 1, limits)
        return gap if gap is not None and gap.opened_ms <= now_ms else None

    def unproven_from_ms(self, started_at_ms: int, at_ms: int, limits: MeterLimits) -> int | None:
        """Return from where on nothing proves the time up to `at_ms`; None if a later proof covers it."""
        last: int | None = None
        for first, end in self.runs:
            if first > at_ms:
                if self.gap(started_at_ms, last, first, limits) is None:
                    return None
                break
            last = end
        if last is None:
            return started_at_ms
        return None if last > at_ms else last + limits.grace_ms

    def first_break(self, from_ms: int, until_ms: int) -> int | None:
        """Return the first break in [from_ms, until_ms)."""
        place = bisect_left(self.breaks, from_ms)
        return self.breaks[place] if place < len(self.breaks) and self.breaks[place] < until_ms else None

    def _is_joined(self, last: int, first: int, limits: MeterLimits, *, is_prompt: bool) -> bool:
        """Whether proofs at `last` and `first` belong to one run."""
        if self.breaks and self.first_break(last, first) is not None:
            return False
        return first - last <= limits.grace_ms or (is_prompt and first - last < limits.silence_ms)

    def _bounded(self, runs: tuple[Interval, ...], limits: MeterLimits) -> "Signal":
        if len(runs) <= RUNS_MAX:
            return Signal(runs, self.breaks)
        for place in range(len(runs) - 1):
            (first, last), (again, end) = runs[place], runs[place + 1]
            if self.gap(first, last, again, limits) is None:
                return Signal((*runs[:place], (first, end), *runs[place + 2 :]), self.breaks)
        shortest = min(range(1, len(runs) - 1), key=lambda place: runs[place][1] - runs[place][0])
        begin, end = runs[shortest - 1][1], runs[shortest + 1][0]
        kept = self.first_break(begin, end)
        breaks = tuple(at_ms for at_ms in self.breaks if not begin <= at_ms < end or at_ms == kept)
        return Signal((*runs[:shortest], *runs[shortest + 1 :]), breaks)


class FenceWindow(NamedTuple):
    """A stay outside the fence: from the first of the fixes outside, or from the start if that is the first of all.

    `opened_ms` is the fix that settled it.
    """

    from_ms: int
    to_ms: int
    opened_ms: int


@final
class Evidence(Value, kw_only=True):
    """Everything the meter of one session knows.

    `first_outside_ms` is a fix outside that waits for a second one, or the start if it is the first fix of all.
    """

    started_at_ms: int
    presence: Signal = Signal()
    media: Signal = Signal()
    fence_windows: tuple[FenceWindow, ...] = ()
    first_outside_ms: int | None = None

    @property
    def newest_ms(self) -> int:
        """The newest instant that the evidence speaks of."""
        newest = self.started_at_ms
        for signal in (self.presence, self.media):
            if signal.runs and signal.runs[-1][1] > newest:
                newest = signal.runs[-1][1]
            if signal.breaks and signal.breaks[-1] > newest:
                newest = signal.breaks[-1]
        return newest


@final
class Window(Value):
    """A dirty span; `to_ms` is None while it is open."""

    from_ms: int
    to_ms: int | None
    reason: PauseReason


class _Known(NamedTuple):
    """A window, and when it could first be known."""

    opened_ms: int
    window: Window


@final
class Reading(Value, kw_only=True):
    """The meter at one instant. `pause` is the open window with the earliest start, or None while RUNNING."""

    windows: tuple[Window, ...]
    dirty_ms: int
    clean_seconds: int
    pause: Window | None


@final
class PauseEnd(Value):
    """A session ended by its pauses: at `ended_at_ms`, which was known at `decided_at_ms` for the first time."""

    ended_at_ms: int
    decided_at_ms: int
    reason: PauseReason


# Windows.


def windows_at(evidence: Evidence, now_ms: int, limits: MeterLimits) -> tuple[Window, ...]:
    """List every dirty window known at `now_ms`, by start."""
    return tuple(sorted((known.window for known in _known_at(evidence, now_ms, limits)), key=_opening))


def _opening(window: Window) -> tuple[int, str]:
    return (window.from_ms, window.reason)


def _known_at(evidence: Evidence, now_ms: int, limits: MeterLimits) -> list[_Known]:
    started_at_ms = evidence.started_at_ms
    found = _signal_windows(started_at_ms, evidence.presence, now_ms, PauseReason.LOCATION_STALE, limits)
    found += _signal_windows(started_at_ms, evidence.media, now_ms, PauseReason.MEDIA_LOST, limits)
    found += [
        _Known(fence.opened_ms, Window(fence.from_ms, _closing(fence, now_ms), PauseReason.GEOFENCE_EXIT))
        for fence in evidence.fence_windows
        if fence.opened_ms <= now_ms
    ]
    return found


def _closing(fence: FenceWindow, now_ms: int) -> int | None:
    return None if fence.to_ms == OPEN or fence.to_ms > now_ms else fence.to_ms


def _signal_windows(
    started_at_ms: int, signal: Signal, now_ms: int, reason: PauseReason, limits: MeterLimits
) -> list[_Known]:
    found: list[_Known] = []
    last: int | None = None
    for first, end in signal.runs:
        if first > now_ms:
            break
        gap = signal.gap(started_at_ms, last, first, limits)
        if gap is not None and gap.from_ms < first:
            found.append(_Known(gap.opened_ms, Window(gap.from_ms, first, reason)))
        last = end
    opened = signal.open_gap(started_at_ms, now_ms, limits)
    if opened is not None:
        found.append(_Known(opened.opened_ms, Window(opened.from_ms, None, reason)))
    return found


def union(windows: Sequence[Window], until_ms: int) -> list[Interval]:
    """Merge the windows into sorted disjoint spans; open ones end at `until_ms`."""
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


def _dirty_ms(windows: Sequence[Window], until_ms: int) -> int:
    return sum(end - start for start, end in union(windows, until_ms))


# Readings.


def horizon_ms(evidence: Evidence, now_ms: int) -> int:
    """Return the instant up to which time is proved: the older of the newest proofs of presence and of media.

    A live reading stops there, because a later window may be dated back to any instant after it. It also stops at a
    first fix outside the fence, until the next fix confirms or refutes it.
    """
    horizon = now_ms
    for signal in (evidence.presence, evidence.media):
        last = signal.last_proof_ms
        horizon = min(horizon, evidence.started_at_ms if last is None else last)
    if evidence.first_outside_ms is not None:
        horizon = min(horizon, evidence.first_outside_ms)
    return max(horizon, evidence.started_at_ms)


def count_seconds(clean_ms: int, span_ms: int, max_duration_s: int, minimum_s: int) -> int:
    """Return the seconds that clean time counts: whole ones, rounded down.

    Time is clean only where position and video are proved. Any clean time counts at least `minimum_s`, but never more
    than the span, rounded up.
    """
    least_s = min(minimum_s, ceil_div(span_ms, SECOND_MS)) if clean_ms > 0 else 0
    return min(max_duration_s, max(floor_div(clean_ms, SECOND_MS), least_s))


def read_live(
    evidence: Evidence, now_ms: int, max_duration_s: int, limits: MeterLimits, *, minimum_s: int = 0
) -> Reading:
    """Read the meter of a LIVE session. Counts proved time only, so that the reading never decreases."""
    now_ms = max(now_ms, evidence.newest_ms)
    windows = windows_at(evidence, now_ms, limits)
    counted_ms = horizon_ms(evidence, now_ms)
    span_ms = counted_ms - evidence.started_at_ms
    clean_ms = span_ms - _dirty_ms(windows, counted_ms)
    return Reading(
        windows=windows,
        dirty_ms=_dirty_ms(windows, now_ms),
        clean_seconds=count_seconds(clean_ms, span_ms, max_duration_s, minimum_s),
        pause=next((window for window in windows if window.to_ms is None), None),
    )


def read_final(
    evidence: Evidence,
    ended_at_ms: int,
    max_duration_s: int,
    limits: MeterLimits,
    *,
    minimum_s: int = 0,
    decided_at_ms: int | None = None,
) -> Reading:
    """Read the meter that is charged: every window is closed, and what nothing proves up to the end is dirty.

    Args:
        decided_at_ms: When the end was known, if later than the end itself. Windows that opened in between count.
    """
    decided = ended_at_ms if decided_at_ms is None else decided_at_ms
    found = [known.window for known in _known_at(evidence, decided, limits)]
    for signal, reason in (
        (evidence.presence, PauseReason.LOCATION_STALE),
        (evidence.media, PauseReason.MEDIA_LOST),
    ):
        unproven_ms = signal.unproven_from_ms(evidence.started_at_ms, decided, limits)
        if unproven_ms is not None and not any(window.to_ms is None and window.reason is reason for window in found):
            found.append(Window(unproven_ms, None, reason))
    if _is_outside_so_far(evidence, decided):
        found.append(Window(evidence.started_at_ms, None, PauseReason.GEOFENCE_EXIT))
    windows = tuple(
        Window(window.from_ms, ended_at_ms if window.to_ms is None else min(window.to_ms, ended_at_ms), window.reason)
        for window in sorted(found, key=_opening)
        if window.from_ms < ended_at_ms
    )
    dirty_ms = _dirty_ms(windows, ended_at_ms)
    span_ms = ended_at_ms - evidence.started_at_ms
    return Reading(
        windows=windows,
        dirty_ms=dirty_ms,
        clean_seconds=count_seconds(span_ms - dirty_ms, span_ms, max_duration_s, minimum_s),
        pause=None,
    )


def _is_outside_so_far(evidence: Evidence, at_ms: int) -> bool:
    """Whether the session has one position up to `at_ms`, and it is outside the fence."""
    first = evidence.presence.runs[0][0] if evidence.presence.runs else at_ms + 1
    return evidence.first_outside_ms == evidence.started_at_ms and first <= at_ms


# Pauses.


def open_pause(evidence: Evidence, now_ms: int, limits: MeterLimits) -> Window | None:
    """Return the open window with the earliest start, or None. The same as in a reading, without reading the past."""
    found: Window | None = None
    for signal, reason in (
        (evidence.presence, PauseReason.LOCATION_STALE),
        (evidence.media, PauseReason.MEDIA_LOST),
    ):
        last = signal.last_proof_ms
        if last is not None and not signal.breaks and last <= now_ms < last + limits.silence_ms:
            continue
        gap = signal.open_gap(evidence.started_at_ms, now_ms, limits)
        if gap is not None:
            window = Window(gap.from_ms, None, reason)
            if found is None or _opening(window) < _opening(found):
                found = window
    if evidence.fence_windows:
        fence = evidence.fence_windows[-1]
        if fence.opened_ms <= now_ms and _closing(fence, now_ms) is None:
            window = Window(fence.from_ms, None, PauseReason.GEOFENCE_EXIT)
            if found is None or _opening(window) < _opening(found):
                found = window
    return found


def pause_end(evidence: Evidence, until_ms: int, limits: MeterLimits) -> PauseEnd | None:
    """Return how the pauses ended the session by `until_ms`; None if they did not.

    The end depends on the evidence alone and not on when it is asked for: the windows are opened one after another, as
    they became known, and the first that brings one pause or all pauses to their limit decides.
    """
    known = sorted(_known_at(evidence, until_ms, limits), key=lambda each: each.opened_ms)
    if _limit_reached(_by_start(known), until_ms, limits) is None:
        return None
    opened = sorted({each.opened_ms for each in known})
    for place, opened_ms in enumerate(opened):
        horizon = opened[place + 1] - 1 if place + 1 < len(opened) else until_ms
        shown = _by_start([each for each in known if each.opened_ms <= opened_ms])
        reached_ms = _limit_reached(shown, horizon, limits)
        if reached_ms is not None:
            reason = next(
                window.reason
                for window in shown
                if window.from_ms < reached_ms and (window.to_ms is None or reached_ms <= window.to_ms)
            )
            return PauseEnd(reached_ms, max(opened_ms, reached_ms), reason)
    raise AssertionError("all windows together reach the limit")


def pause_end_ms(evidence: Evidence, now_ms: int, limits: MeterLimits) -> int | None:
    """Return when the open pause ends the session if nothing closes it; None while nothing is paused."""
    if open_pause(evidence, now_ms, limits) is None:
        return None
    return _limit_reached(windows_at(evidence, now_ms, limits), FAR_MS, limits)


def next_check_ms(evidence: Evidence, now_ms: int, limits: MeterLimits) -> int:
    """Return the next instant at which silence opens a window, or at which the open pause ends the session."""
    next_ms = pause_end_ms(evidence, now_ms, limits)
    for signal in (evidence.presence, evidence.media):
        last = signal.last_proof_ms
        silent_at = (evidence.started_at_ms if last is None else last) + limits.silence_ms
        if silent_at > now_ms and (next_ms is None or silent_at < next_ms):
            next_ms = silent_at
    return now_ms + limits.silence_ms if next_ms is None else next_ms


def _by_start(known: Sequence[_Known]) -> list[Window]:
    return sorted((each.window for each in known), key=_opening)


def _limit_reached(windows: Sequence[Window], until_ms: int, limits: MeterLimits) -> int | None:
    """Return the instant, up to `until_ms`, at which one pause or all pauses together reached their limit."""
    earlier = 0
    for start, end in union(windows, until_ms):
        reached_ms = start + min(limits.pause_max_ms, limits.paused_total_max_ms - earlier)
        if reached_ms <= end:
            return reached_ms
        earlier += end - start
    return None


def charge(clean_seconds: int, rate: MicroUsdc, hold: MicroUsdc) -> MicroUsdc:
    """Price the clean seconds. Never above the hold, because clean seconds never exceed the maximum duration."""
    charged = clean_seconds * rate
    assert 0 <= charged <= hold
    return MicroUsdc(charged)
