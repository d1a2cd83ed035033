"""Fault rates, and the random decisions that apply them. The rates are drawn from the seed."""

from __future__ import annotations

import random  # noqa: TID251  (generators seeded from the world's seed only)
from enum import Enum
from typing import final

from msgspec.structs import asdict

from sightline.domain.value import Value


class Outcome(Enum):
    """The outcome of one call."""

    FINE = "fine"
    REFUSED = "refused"
    """A definite failure: the call was not applied."""
    UNKNOWN_APPLIED = "unknown, applied"
    """The call was applied, and its answer is lost."""
    UNKNOWN_LOST = "unknown, not applied"


@final
class FaultRates(Value, kw_only=True):
    """Probabilities per call, unless the field is a period.

    Attributes:
        slow: A call takes up to `slow_s` instead of a few milliseconds.
        crash_every_s: Mean time between kills of the server, in seconds; 0 for none.
        pause_every_s: Mean time between pauses of the server, in seconds; 0 for none. In half of them another server
            takes over.
        duplicate, late: Messages between actors and from the video engine.
    """

    store_refused: float = 0.0
    store_unknown_applied: float = 0.0
    store_unknown_lost: float = 0.0
    read_refused: float = 0.0
    slow: float = 0.0
    slow_s: float = 1.0
    latency_ms: float = 3.0
    relations_refused: float = 0.0
    video_refused: float = 0.0
    video_hangs: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    late_s: float = 1.0
    crash_every_s: float = 0.0
    pause_every_s: float = 0.0

    @classmethod
    def drawn(cls, rng: random.Random) -> FaultRates:
        """Draw rates from the seed: each kind of fault is absent, rare or common, independently of the others."""

        def rate(most: float) -> float:
            kind = rng.randrange(3)
            return 0.0 if kind == 0 else most * rng.random() * (0.1 if kind == 1 else 1.0)

        return cls(
            store_refused=rate(0.10),
            store_unknown_applied=rate(0.05),
            store_unknown_lost=rate(0.05),
            read_refused=rate(0.10),
            slow=rate(0.05),
            slow_s=rng.choice((0.5, 2.0, 8.0)),
            latency_ms=rng.choice((0.5, 3.0, 20.0)),
            relations_refused=rate(0.10),
            video_refused=rate(0.20),
            video_hangs=rate(0.05),
            duplicate=rate(0.10),
            late=rate(0.10),
            late_s=rng.choice((0.2, 1.0)),
            crash_every_s=rng.choice((0.0, 0.0, 30.0, 90.0)),
            pause_every_s=rng.choice((0.0, 0.0, 40.0, 120.0)),
        )

    def described(self) -> str:
        """Describe the rates that are not zero, for a failure report."""
        values = asdict(self).items()
        return " ".join(f"{name}={value:.3g}" for name, value in values if value)


@final
class Faults:
    """Random decisions of one world. `quiet` stops all faults."""

    def __init__(self, rates: FaultRates, rng: random.Random) -> None:
        self.rates = rates
        self._rng = rng
        self.is_quiet = False

    def quiet(self) -> None:
        """Stop all faults from now on."""
        self.is_quiet = True

    def hits(self, chance: float) -> bool:
        """Decide with this probability."""
        return not self.is_quiet and chance > 0.0 and self._rng.random() < chance

    def latency_s(self) -> float:
        """Draw the latency of a call in one direction, in seconds."""
        if self.hits(self.rates.slow):
            return self._rng.random() * self.rates.slow_s
        return self._rng.random() * self.rates.latency_ms / 1000

    def write_outcome(self) -> Outcome:
        """Draw the outcome of a write."""
        rates = self.rates
        if self.hits(rates.store_refused):
            return Outcome.REFUSED
        if self.hits(rates.store_unknown_applied):
            return Outcome.UNKNOWN_APPLIED
        return Outcome.UNKNOWN_LOST if self.hits(rates.store_unknown_lost) else Outcome.FINE

    def read_fails(self) -> bool:
        """Decide whether a read is refused."""
        return self.hits(self.rates.read_refused)

    def wait_s(self, mean_s: float) -> float:
        """Draw the time until the next random event of a kind, in seconds."""
        return self._rng.expovariate(1.0 / mean_s)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._rng.random()
