"""Random histories of one LIVE session, dense at the boundaries of the meter, played on the machine and on the oracle.

A history is a list of facts and looks in the order in which the service is told of them. `play` gives it to the real
machine, with a crash and a recovery where the history says so; `tests.domain.oracle` judges the same list.
"""

import json
from random import Random

from sightline.domain.geofence import FenceLimits
from sightline.domain.metering import next_check_ms
from sightline.domain.session import codec, machine
from sightline.domain.session.messages import End, FixReported, MediaBroke, MediaProved, Party, Tick
from sightline.domain.session.model import Ended, Live, MediaCheckpoint, Session, SessionLimits
from sightline.domain.value import Value, replace
from tests.domain import oracle
from tests.domain.builders import T0, a_fix, a_live_session, taken

LIMITS = SessionLimits(fence=FenceLimits(speed_max_mps=1e9))
"""The speed check is off: the distances of a history jump."""

GAPS_MS = (0, 1, 500, 1_000, 1_999, 2_000, 2_001, 3_000, 7_999, 8_000, 9_999, 10_000, 10_001, 12_000, 45_000, 58_000)
HOLES_MS = (60_000, 62_000, 61_999, 70_000, 33_000)
DISTANCES_M = (0.0, 490.0, 520.0, 640.0)
"""Inside the fence of 500 m, at its edge, between the rings, outside."""


class Crash(Value):
    """The process dies and the session is recovered from what is durable."""

    at: int


class History(Value):
    """What one session is told, in order."""

    max_duration_s: int
    told: tuple[oracle.Fact | oracle.Look | Crash, ...]
    timer_late_ms: int | None
    """How late each timer fires; None: no timer fires at all."""
    minimum_s: int
    """Least seconds that are charged if any time was clean."""


def draw(seed: int, *, crashes: bool = False) -> History:
    """Draw a history."""
    rng = Random(f"history {seed}")
    max_duration_s = rng.choice((30, 120, 240, 600, 600))
    end_at = T0 + rng.choice((5_000, 9_999, 10_000, 15_000, 40_000, 100_000, 250_000, 700_000))
    told = [*_fixes(rng, end_at), *_media(rng, end_at)]
    told += [oracle.Look(T0 + rng.randrange(1, 300_000)) for _ in range(rng.randrange(3))]
    if crashes:
        told += [Crash(T0 + rng.randrange(1, 200_000)) for _ in range(rng.randrange(1, 3))]
    told.append(oracle.Hangup(end_at, rng.choice(("CONSUMER_ENDED", "OPERATOR_ENDED"))))
    shuffled = rng.sample(told, len(told)) if rng.random() < 0.5 else told  # settles ties in any order
    late = rng.random() < 0.1
    order = sorted(
        shuffled,
        key=lambda item: item.at + (rng.choice((0, 0, 0, 300)) if late and isinstance(item, oracle.Media) else 0),
    )
    return History(max_duration_s, tuple(order), rng.choice((0, 0, 0, 5, 700, 3_000, None)), seed % 4)


def _fixes(rng: Random, end_at: int) -> list[oracle.Fact]:
    at, facts = T0 + rng.choice((0, 0, 1, 1_000, 9_999, 10_000, 20_000, 54_000)), []
    regular, distance, coarse = rng.choice((2_000, 5_000, 9_000, 45_000)), 0.0, 0
    while at < end_at and len(facts) < 60:
        if rng.random() < 0.25:
            distance = rng.choice(DISTANCES_M)
        if coarse == 0 and rng.random() < 0.06:
            coarse = rng.choice((1, 4, 5, 6, 9))
        accuracy = 150.0 if coarse else rng.choice((5.0, 5.0, 100.0))
        coarse = max(0, coarse - 1)
        facts.append(oracle.Fix(at, distance, accuracy, rng.random() > 0.04))
        gap = rng.choice(GAPS_MS) if rng.random() < 0.3 else regular
        at += rng.choice(HOLES_MS) if rng.random() < 0.02 else gap
    return facts


def _media(rng: Random, end_at: int) -> list[oracle.Fact]:
    at, facts = T0 + rng.choice((0, 0, 500, 9_999, 10_000, 54_000)), []
    regular = rng.choice((1_000, 2_000, 3_000, 9_000))
    while at < end_at and len(facts) < 80:
        facts.append(oracle.Media(at, "disconnect" if rng.random() < 0.06 else "frame"))
        gap = rng.choice(GAPS_MS) if rng.random() < 0.25 else regular
        at += rng.choice(HOLES_MS) if rng.random() < 0.03 else gap
    return facts


def message_of(item, sequence: int):
    """The machine's message of a fact or a look."""
    match item:
        case oracle.Fix():
            fix = a_fix(item.at, north_m=item.distance_m, accuracy_m=item.accuracy_m, is_proof=item.proves)
            return FixReported(fix, sequence)
        case oracle.Media(kind="disconnect"):
            return MediaBroke(item.at)
        case oracle.Media():
            return MediaProved(item.at)
        case oracle.Hangup(reason=reason):
            return End(Party.CONSUMER if reason == "CONSUMER_ENDED" else Party.OPERATOR)
        case oracle.Look():
            return Tick()


class Player:
    """Plays a history on the machine, firing its timers and keeping what a store would keep."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.session: Session = a_live_session(max_duration_s=history.max_duration_s, minimum_s=history.minimum_s)
        self.stored = self._written(self.session)
        self.checkpoint: int | None = None
        self.heartbeats: list[FixReported] = []
        self.judged: list[oracle.Fact | oracle.Look] = []
        """What the oracle is told: the same, with a look for each timer."""
        self.shown = 0
        self.now = T0

    def play(self) -> "Player":
        """Play until the session has ended."""
        for item in self.history.told:
            self._fire_timers(item.at)
            if self.session.is_terminal:
                return self
            self.now = max(self.now, item.at)
            if isinstance(item, Crash):
                self._crash()
                continue
            message = message_of(item, len(self.heartbeats) + 1)
            if isinstance(message, FixReported):
                self.heartbeats.append(message)
            self._tell(message, item)
            if isinstance(item, oracle.Media) and item.kind == "frame" and not self.session.is_terminal:
                self.checkpoint = max(self.checkpoint or item.at, item.at)
            if self.session.is_terminal:
                return self
        self._tell(Tick(), oracle.Look(T0 + 10_000_000))
        return self

    def _tell(self, message, item) -> None:
        at_ms = max(self.now, item.at)
        if isinstance(message, End):
            late = machine.settle_deadline(self.session, at_ms, LIMITS)
            step = late if late is not None else taken(machine.step(self.session, message, at_ms, LIMITS))
        else:
            step = taken(machine.step(self.session, message, at_ms, LIMITS))
        self.judged.append(item)
        self.session = step.session
        if step.must_be_stored:
            self.stored = self._written(step.session)
        live = self.session.phase
        if isinstance(live, Live):
            shown = machine.live_reading(self.session.terms, live, at_ms, LIMITS).clean_seconds
            assert shown >= self.shown, f"the live reading ran back from {self.shown} to {shown} at {at_ms - T0}"
            self.shown = shown

    def _fire_timers(self, until: int) -> None:
        while self.history.timer_late_ms is not None and isinstance(self.session.phase, Live):
            due = min(self.session.phase.ends_at_ms, next_check_ms(self.session.phase.evidence, self.now, LIMITS.meter))
            at_ms = max(self.now, due + self.history.timer_late_ms)
            if at_ms >= until or due <= self.now - self.history.timer_late_ms:
                return
            self.now = at_ms
            self._tell(Tick(), oracle.Look(at_ms))

    def _crash(self) -> None:
        media = None if self.checkpoint is None else MediaCheckpoint(proved_at_ms=self.checkpoint)
        step = machine.recover(codec.from_doc(json.loads(self.stored), 1), media, self.heartbeats, self.now, LIMITS)
        self.session = step.session
        self.judged.append(oracle.Look(self.now))
        self.shown = 0

    @staticmethod
    def _written(session: Session) -> str:
        return json.dumps(codec.to_doc(replace(session, version=0)))


def difference(seed: int) -> str | None:
    """Say where the machine and the oracle differ on the history of this seed; None if they agree."""
    history = draw(seed)
    player = Player(history).play()
    ended = player.session.phase
    terms = oracle.Terms(T0, history.max_duration_s * 1_000, minimum_s=history.minimum_s)
    expected = oracle.judge_session(terms, player.judged)
    assert expected is not None
    if not isinstance(ended, Ended):
        return f"the machine is {player.session.state}, the oracle says {expected}"
    windows = [(window.from_ms, window.to_ms, window.reason.value) for window in ended.windows]
    found = oracle.Ending(ended.ended_at_ms, frozenset({ended.reason.value}), frozenset(windows), ended.clean_seconds)
    same = (found.ended_at, found.clean_seconds) == (expected.ended_at, expected.clean_seconds)
    if same and found.reasons <= expected.reasons and oracle.union(windows) == oracle.union(list(expected.windows)):
        return None
    return f"seed {seed}: machine {_told(found)}, oracle {_told(expected)}; max {history.max_duration_s}\n" + "\n".join(
        f"  {item.at - T0:>7} {item}" for item in player.judged
    )


def _told(ending: oracle.Ending) -> str:
    windows = sorted((start - T0, end - T0, reason) for start, end, reason in ending.windows)
    return f"{ending.ended_at - T0} {sorted(ending.reasons)} {ending.clean_seconds} s {windows}"
