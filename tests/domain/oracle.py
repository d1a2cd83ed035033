"""A second implementation of the meter, written from the text of the specification alone.

It shares no code and no representation with ``sightline.domain``: it looks at the whole list of
facts each time, without any state kept between two facts. It is slow and simple on purpose, so that
a difference between the two is worth reading. The sentences quoted below are the specification's.

All times are milliseconds.
"""

from typing import Literal, TypeAlias

from sightline.domain.value import Value

STALE, FENCE, MEDIA = "LOCATION_STALE", "GEOFENCE_EXIT", "MEDIA_LOST"

SILENCE_MS = 10_000
"""'No accepted heartbeat for 10 s', 'no new frame for 10 s'."""

GRACE_MS = 2_000
"""A window 'is dated back to the last proof + 2 s'."""

ONE_PAUSE_MS = 60_000
ALL_PAUSES_MS = 180_000


class Fix(Value):
    """One heartbeat. ``proves`` is False for one that is MANUAL or a mock: it never proves presence."""

    at: int
    distance_m: float
    accuracy_m: float
    proves: bool = True


class Media(Value):
    """One fact of the video backend. A frame and a connect prove media; a disconnect breaks it."""

    at: int
    kind: Literal["frame", "disconnect"]


class Hangup(Value):
    """A party's ``end``."""

    at: int
    reason: str


class Look(Value):
    """The service looks at the session: a timer fired, or somebody reads it."""

    at: int


Fact: TypeAlias = Fix | Media | Hangup
Window: TypeAlias = tuple[int, int, str]
Span: TypeAlias = tuple[int, int]


class Terms(Value):
    """What the session was started with."""

    started_at: int
    max_ms: int
    radius_m: float = 500.0
    minimum_s: int = 0


class Ending(Value):
    """How a session ended. ``reasons`` holds every reason that the text permits."""

    ended_at: int
    reasons: frozenset[str]
    windows: frozenset[Window]
    clean_seconds: int


def is_coarse(fix: Fix) -> bool:
    """'A fix with accuracy over 100 m proves nothing.'"""
    return fix.accuracy_m > 100


def is_presence(fact: Fact) -> bool:
    """Whether the fact is an accepted heartbeat that proves presence."""
    return isinstance(fact, Fix) and fact.proves and not is_coarse(fact)


def is_media(fact: Fact) -> bool:
    """Whether the fact proves media: 'recovers: next frame or connect'."""
    return isinstance(fact, Media) and fact.kind != "disconnect"


def is_outside(fix: Fix, terms: Terms) -> bool:
    """'Exit ring: d - min(accuracy, 50) > R + max(20, 0.1 R).'"""
    edge = terms.radius_m + max(20.0, 0.1 * terms.radius_m)
    return fix.distance_m - min(fix.accuracy_m, 50.0) > edge


def presence_breaks(facts: list[Fact]) -> list[int]:
    """Positions of the facts that make presence stale at once: the fifth coarse fix in a row."""
    breaks, row = [], 0
    for position, fact in enumerate(facts):
        if isinstance(fact, Fix):
            row = row + 1 if is_coarse(fact) else 0
            if row >= 5:
                breaks.append(position)
    return breaks


def media_breaks(facts: list[Fact]) -> list[int]:
    """Positions of the disconnects."""
    return [position for position, fact in enumerate(facts) if isinstance(fact, Media) and fact.kind == "disconnect"]


class Shown(Value):
    """A dirty window and the instant at which it could first be known."""

    start: int
    end: int
    reason: str
    known_at: int

    def until(self, instant: int) -> Window:
        """The window as it was at an instant."""
        return (self.start, min(self.end, instant), self.reason)


def gaps_as_windows(
    terms: Terms, facts: list[Fact], proofs: list[int], breaks: list[int], now: int, reason: str
) -> list[Shown]:
    """Make a window of each gap between two proofs that was too long or was broken.

    'A stale or media window opens after 10 s without proof and is dated back to the last proof + 2 s (never any
    proof: startedAt).' A window that opens at once is dated back only if the last proof + 2 s is in the past. A
    break that carries the same millisecond as the proof told after it does not count: it lasted for no time.
    """
    windows = []
    edges = [None, *proofs]
    for index, before in enumerate(edges):
        after = edges[index + 1] if index + 1 < len(edges) else None
        since = terms.started_at if before is None else facts[before].at
        until = now if after is None else facts[after].at
        first = -1 if before is None else before
        last = len(facts) if after is None else after
        opened = [
            facts[position].at
            for position in breaks
            if first < position < last and (after is None or facts[position].at < until)
        ]
        if until - since >= SILENCE_MS:
            opened.append(since + SILENCE_MS)
        if opened:
            start = terms.started_at if before is None else min(since + GRACE_MS, *opened, since + SILENCE_MS)
            windows.append(Shown(start, until, reason, min(opened)))
    return windows


def placed(facts: list[Fact]) -> list[Fix]:
    return [fact for fact in facts if isinstance(fact, Fix) and is_presence(fact)]


def only_outside(terms: Terms, facts: list[Fact]) -> bool:
    """Whether the only position so far is outside."""
    return [is_outside(fix, terms) for fix in placed(facts)] == [True]


def fence_windows(terms: Terms, facts: list[Fact], now: int) -> list[Shown]:
    """'2 consecutive fixes outside the exit ring', 'from the first of the two', '1 fix inside the entry ring'.

    'If the first position of all is outside, from the start' (ADR 0255).
    """
    windows: list[Shown] = []
    opened: tuple[int, int] | None = None
    first_outside: int | None = None
    fixes = placed(facts)
    for fact in fixes:
        if opened is not None:
            if fact.distance_m <= terms.radius_m:
                windows.append(Shown(opened[0], fact.at, FENCE, opened[1]))
                opened = first_outside = None
        elif not is_outside(fact, terms):
            first_outside = None
        elif first_outside is None:
            first_outside = terms.started_at if fact is fixes[0] else fact.at
        else:
            opened = (first_outside, fact.at)
    if opened is not None:
        windows.append(Shown(opened[0], now, FENCE, opened[1]))
    return windows


def windows_at(terms: Terms, facts: list[Fact], now: int) -> list[Shown]:
    """List every window that these facts show at ``now``; an open one ends at ``now``."""
    presence = [index for index, fact in enumerate(facts) if is_presence(fact)]
    media = [index for index, fact in enumerate(facts) if is_media(fact)]
    return [
        *gaps_as_windows(terms, facts, presence, presence_breaks(facts), now, STALE),
        *fence_windows(terms, facts, now),
        *gaps_as_windows(terms, facts, media, media_breaks(facts), now, MEDIA),
    ]


def union(windows: list[Window]) -> list[Span]:
    """Merge the windows into pauses: disjoint spans in order."""
    spans: list[Span] = []
    for start, end, _ in sorted(windows):
        if start >= end:
            continue
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans


def limit_reached(windows: list[Window]) -> int | None:
    """Return the instant at which one pause reached 60 s or all pauses reached 180 s."""
    total = 0
    for start, end in union(windows):
        reached = [instant for instant in (start + ONE_PAUSE_MS, start + ALL_PAUSES_MS - total) if instant <= end]
        if reached:
            return min(reached)
        total += end - start
    return None


def first_end(terms: Terms, facts: list[Fact], now: int, since: int) -> tuple[int, frozenset[str], int] | None:
    """Return when and why the session ended, and when that could first be known; or None.

    Walks over every instant after ``since`` at which something could be known for the first time, and asks at each what
    was known then. (Up to ``since`` the same facts were looked at before.)
    """
    deadline = terms.started_at + terms.max_ms
    instants = {deadline, now, terms.started_at + SILENCE_MS}
    for fact in facts:
        instants |= {fact.at, fact.at + SILENCE_MS}
    for instant in sorted(value for value in instants if max(since, terms.started_at) <= value <= now):
        then = [fact for fact in facts if fact.at <= instant]
        shown = [window.until(instant) for window in windows_at(terms, then, instant) if window.known_at <= instant]
        reached = limit_reached(shown)
        if reached is not None and reached <= deadline:
            return reached, frozenset(reason for start, end, reason in shown if start < reached <= end), instant
        if instant >= deadline:
            return deadline, frozenset({"MAX_DURATION"}), deadline
        for fact in then:
            if isinstance(fact, Hangup):
                return fact.at, frozenset({fact.reason}), instant
    return None


def unproven_tail(terms: Terms, facts: list[Fact], ended_at: int) -> list[Window]:
    """'At the end, time after the last proof of presence or of media plus 2 s is not clean.'

    'A session without any proof is charged nothing': without a proof the tail is everything.
    """
    tail = []
    for proves, reason in ((is_presence, STALE), (is_media, MEDIA)):
        proofs = [fact.at for fact in facts if proves(fact)]
        start = max(proofs) + GRACE_MS if proofs else terms.started_at
        if start < ended_at:
            tail.append((start, ended_at, reason))
    if only_outside(terms, facts):
        tail.append((terms.started_at, ended_at, FENCE))
    return tail


def clean_seconds(terms: Terms, windows: list[Window], ended_at: int) -> int:
    """'min(maxDurationSeconds, floor((endedAt - startedAt - length of the union of dirty windows) / 1 s))'.

    'A session that proved at least one instant of position and video together counts at least minimum_seconds clean
    seconds, never more than its duration rounded up.'
    """
    duration = ended_at - terms.started_at
    clean = duration - sum(end - start for start, end in union(windows))
    seconds = clean // 1000
    while clean > 0 and seconds < terms.minimum_s and seconds * 1000 < duration:
        seconds += 1
    return min(terms.max_ms // 1000, seconds)


def is_told_too_late(facts: list[Fact], fact: Fact) -> bool:
    """'The live reading never runs back', so a disconnect counts no more once newer media has been counted."""
    is_break = isinstance(fact, Media) and fact.kind == "disconnect"
    return is_break and any(is_media(proof) and proof.at > fact.at for proof in facts)


def judge_session(terms: Terms, told: list[Fact | Look]) -> Ending | None:
    """Tell how the session ended, if it did. A fact may be told late: it counts with its own time."""
    facts: list[Fact] = []
    seen = terms.started_at
    for item in told:
        now = max(seen, item.at)
        ended = first_end(terms, facts, now, seen)
        if ended is None and not isinstance(item, Look) and not is_told_too_late(facts, item):
            facts = sorted([*facts, item], key=lambda fact: fact.at)
            ended = first_end(terms, facts, now, min(seen, item.at))
        seen = now
        if ended is not None:
            ended_at, reasons, known_at = ended
            known = [fact for fact in facts if fact.at <= known_at]
            shown = [
                window.until(ended_at)
                for window in windows_at(terms, known, known_at)
                if window.known_at <= known_at and window.start < ended_at
            ]
            windows = [*shown, *unproven_tail(terms, known, ended_at)]
            return Ending(ended_at, reasons, frozenset(windows), clean_seconds(terms, windows, ended_at))
    return None


def live_reading(terms: Terms, facts: list[Fact], now: int) -> int:
    """Return the clean seconds that a party is shown at ``now`` while the session is LIVE.

    'The live reading never runs back': only time that no later fact can make dirty is counted, so it stops at the last
    proof, and at a first fix outside until the next fix decides (docs/api.md, "Metering").
    """
    presence = [fact.at for fact in facts if is_presence(fact)]
    media = [fact.at for fact in facts if is_media(fact)]
    if not presence or not media:
        return 0
    horizon = min(now, max(presence), max(media))
    if only_outside(terms, facts):
        return 0
    newest = placed(facts)[-1]
    if is_outside(newest, terms):
        horizon = min(horizon, newest.at)
    windows = [window.until(horizon) for window in windows_at(terms, facts, now) if window.start < horizon]
    return clean_seconds(terms, windows, max(horizon, terms.started_at))
