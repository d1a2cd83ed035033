"""The budgets of requests: which class a route uses, and what each class may take."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self, final

from msgspec import field

from sightline.domain.value import Value


class RateClass(StrEnum):
    """The budget that a route uses. Counted per workspace if the caller has one, else per wallet or address."""

    DEFAULT = "default"
    LIST = "list"
    FRAME = "frame"
    """Frames of one session, per workspace and session."""
    FRAMES = "frames"
    """Frame requests of one workspace for all sessions, unknown ones included."""
    CLIP = "clip"
    """Clips of one session, per workspace and session."""
    LOCATION = "location"
    """Heartbeats; a batch costs one token for each ten."""
    QUOTE = "quote"
    CREATE = "create"
    AUTH = "auth"
    """Challenges, sign-ins and workspace creation, per address."""
    FAILED = "failed"
    """Refused credentials, per address. Valid credentials cost nothing."""
    SIGNALLING = "signalling"
    """WHIP and WHEP requests, per address."""
    CHAIN = "chain"
    """CPU time in ms that the embedded chain spends on heavy JSON-RPC requests, per address; charged after each."""
    NONE = "none"
    """No limit; only for the internal listener."""


@final
class Budget(Value):
    """A long-term rate of `per_s` requests a second, and `burst` requests at once."""

    per_s: float
    burst: int

    @property
    def window_s(self) -> int:
        """Seconds until an empty bucket is full."""
        return max(1, math.ceil(self.burst / self.per_s))


DEFAULT_BUDGETS: Final[Mapping[RateClass, Budget]] = {
    RateClass.DEFAULT: Budget(50, 100),
    RateClass.LIST: Budget(10, 10),
    RateClass.FRAME: Budget(10, 20),
    RateClass.FRAMES: Budget(200, 400),
    RateClass.CLIP: Budget(0.5, 5),
    RateClass.LOCATION: Budget(4, 10),
    RateClass.QUOTE: Budget(10, 10),
    RateClass.CREATE: Budget(10, 10),
    RateClass.AUTH: Budget(20 / 60, 20),
    RateClass.FAILED: Budget(1, 60),
    RateClass.SIGNALLING: Budget(20, 100),
    RateClass.CHAIN: Budget(200, 4_000),
}


@final
class RateLimits(Value, kw_only=True):
    """The budget of every class, and the switch."""

    is_enabled: bool = True
    budgets: Mapping[RateClass, Budget] = field(default_factory=lambda: dict(DEFAULT_BUDGETS))

    @classmethod
    def parse(cls, text: str, *, is_enabled: bool = True) -> Self:
        """Read changed budgets, written `class=per_second/burst,...`, on top of the defaults.

        Raises:
            ValueError: A class is unknown or listed twice, or a number is not positive.
        """
        changed: dict[RateClass, Budget] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, _, numbers = item.partition("=")
            per_s, _, burst = numbers.partition("/")
            known = {str(rate): rate for rate in DEFAULT_BUDGETS}
            if name not in known or known[name] in changed:
                raise ValueError(f"{name!r} is not one of {', '.join(known)}, or is listed twice")
            try:
                budget = Budget(float(per_s), int(burst))
            except ValueError:
                raise ValueError(f"{item!r} is not written class=per_second/burst") from None
            if not (budget.per_s > 0 and math.isfinite(budget.per_s) and budget.burst >= 1):
                raise ValueError(f"{item!r}: the rate must be above 0 and the burst at least 1")
            changed[known[name]] = budget
        return cls(is_enabled=is_enabled, budgets={**DEFAULT_BUDGETS, **changed})
