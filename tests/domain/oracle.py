"""A second implementation of the meter, written from the text of the specification alone.

It shares no code and no representation with ``sightline.domain``: it looks at the whole list of
facts each time, without any state kept between two facts. It is slow and simple on purpose, so that
a difference between the two is worth reading. The sentences quoted below are the specification's.

All times are milliseconds.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

STALE, FENCE, MEDIA = "LOCATION_STALE", "GEOFENCE_EXIT", "MEDIA_LOST"

SILENCE_MS = 10_000
"""'No accepted heartbeat for 10 s', 'no new frame for 10 s'."""

GRACE_MS = 2_000
"""A window 'is dated back to the last proof + 2 s'."""

ONE_PAUSE_MS = 60_000
ALL_PAUSES_MS = 180_000


@dataclass(frozen=True)
class Fix:
    """One heartbeat of the operator.

    ``proves`` is False for a fix that is old, MANUAL or a mock: it never proves presence.
    """

    at: int
    heard: int
    distance_m: float
    accuracy_m: float
    proves: bool = True


@dataclass(frozen=True)
class Media:
    """One fact of the video backend. A frame and a connect prove media; a disconnect breaks it."""

    at: int
    heard: int
    kind: Literal["frame", "connect", "disconnect"]


@dataclass(frozen=True)
class End:
    """A party's ``end``."""

    at: int
    heard: int
    reason: str


Fact: TypeAlias = Fix | Media | End
Window: TypeAlias = tuple[int, int, str]
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Terms:
    """What the session was started with."""

    started_at: int
    max_ms: int
    radius_m: float = 500.0


@dataclass(frozen=True)
class Verdict:
    """How the session ended. ``reasons`` holds every reason that the text permits."""

    ended_at: int
    reasons: frozenset[str]
    windows: tuple[Window, ...]
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


def gaps_as_windows(
    terms: Terms, facts: list[Fact], proofs: list[int], breaks: list[int], now: int, reason: str
) -> list[Window]:
    """Make a window of each gap between two proofs that was too long or was broken.

    'A stale or media window opens after 10 s without proof and is dated back to the last proof +
    2 s (never any proof: startedAt).' A break that carries the same millisecond as the proof after
    it does not count: the proof shows that the break lasted for no time.
    """
    windows = []
    edges = [None, *proofs]
    for index, before in enumerate(edges):
        after = edges[index + 1] if index + 1 < len(edges) else None
        since = terms.started_at if before is None else facts[before].at
        until = now if after is None else facts[after].at
        first = -1 if before is None else before
        last = len(facts) if after is None else after
        broken = any(first < position < last and (after is None or facts[position].at < until) for position in breaks)
        start = terms.started_at if before is None else since + GRACE_MS
        if (until - since >= SILENCE_MS or broken) and start < until:
            windows.append((start, until, reason))
    return windows


def fence_windows(terms: Terms, facts: list[Fact], now: int) -> list[Window]:
    """'2 consecutive fixes outside the exit ring', 'from the first of the two', '1 fix inside'."""
    windows: list[Window] = []
    opened: int | None = None
    first_outside: int | None = None
    for fact in facts:
        if not isinstance(fact, Fix) or not is_presence(fact):
            continue
        if opened is not None:
            if fact.distance_m <= terms.radius_m:
                windows.append((opened, fact.at, FENCE))
                opened = first_outside = None
        elif not is_outside(fact, terms):
            first_outside = None
        elif first_outside is None:
            first_outside = fact.at
        else:
            opened = first_outside
    if opened is not None:
        windows.append((opened, now, FENCE))
    return [window for window in windows if window[0] < window[1]]


def windows_at(terms: Terms, facts: list[Fact], now: int) -> list[Window]:
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


def first_end(terms: Terms, facts: list[Fact], now: int) -> tuple[int, frozenset[str], int] | None:
    """Return when and why the session ended, and when that could first be known; or None.

    Walks over every instant at which something could be known for the first time. At one instant
    the deadlines count before the facts that carry it: 'no heartbeat for 10 s' is true at 10.000.
    """
    deadline = terms.started_at + terms.max_ms
    instants = {deadline, now, terms.started_at + SILENCE_MS}
    for fact in facts:
        instants |= {fact.at, fact.at + SILENCE_MS}
    for instant in sorted(value for value in instants if terms.started_at <= value <= now):
        earlier = [fact for fact in facts if fact.at < instant]
        shown = windows_at(terms, earlier, instant)
        reached = limit_reached(shown)
        if reached is not None:
            open_then = {reason for start, end, reason in shown if start < reached <= end}
            if reached == deadline:
                open_then.add("MAX_DURATION")
            return reached, frozenset(open_then), instant
        if instant >= deadline:
            return deadline, frozenset({"MAX_DURATION"}), instant
        for fact in facts:
            if isinstance(fact, End) and fact.at == instant:
                return fact.at, frozenset({fact.reason}), instant
        until_now = [fact for fact in facts if fact.at <= instant]
        shown = windows_at(terms, until_now, instant)
        reached = limit_reached(shown)
        if reached is not None:
            open_then = {reason for start, end, reason in shown if start < reached <= end}
            return reached, frozenset(open_then), instant
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
    return tail


def clean_seconds(terms: Terms, windows: list[Window], ended_at: int) -> int:
    """'min(maxDurationSeconds, floor((endedAt - startedAt - union of dirty windows) / 1 s))'."""
    dirty = sum(end - start for start, end in union(windows))
    return min(terms.max_ms // 1000, (ended_at - terms.started_at - dirty) // 1000)


def judge_session(terms: Terms, heard: list[Fact], looks: list[int]) -> Verdict | None:
    """Tell how the session ended, if it did, when the service looked at these instants.

    Args:
        terms: What the session was started with.
        heard: The facts in the order in which the service handled them.
        looks: Instants in order at which the service decides: timers that fired, facts handled.
            A fact counts from the first look at or after its ``heard``, with its own ``at``.
    """
    for look in looks:
        facts = sorted((fact for fact in heard if fact.heard <= look), key=lambda fact: fact.at)
        ended = first_end(terms, facts, look)
        if ended is None:
            continue
        ended_at, reasons, known_at = ended
        known = [fact for fact in facts if fact.at <= known_at]
        shown = windows_at(terms, known, max(ended_at, known_at))
        cut = [(start, min(end, ended_at), reason) for start, end, reason in shown if start < ended_at]
        windows = [*cut, *unproven_tail(terms, known, ended_at)]
        return Verdict(ended_at, reasons, tuple(sorted(windows)), clean_seconds(terms, windows, ended_at))
    return None


def live_reading(terms: Terms, facts: list[Fact], now: int) -> int:
    """Return the clean seconds that a party may be shown at ``now`` while the session is LIVE.

    'The live reading never runs back': only time that no later fact can make dirty is counted, so
    it stops at the last proof + 2 s, and at a first fix outside until the next fix decides.
    """
    presence = [fact.at for fact in facts if is_presence(fact)]
    media = [fact.at for fact in facts if is_media(fact)]
    if not presence or not media:
        return 0
    horizon = min(now, max(presence) + GRACE_MS, max(media) + GRACE_MS)
    fixes = [fact for fact in facts if isinstance(fact, Fix) and is_presence(fact)]
    if is_outside(fixes[-1], terms):
        horizon = min(horizon, fixes[-1].at)
    windows = [
        (start, min(end, horizon), reason) for start, end, reason in windows_at(terms, facts, now) if start < horizon
    ]
    return clean_seconds(terms, windows, max(horizon, terms.started_at))
