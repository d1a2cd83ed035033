"""Token buckets, as GCRA: one number per bucket, the moment at which it is full again.

Source: ITU-T I.371 (GCRA); draft-ietf-httpapi-ratelimit-headers-10 for the headers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Self, final

from sightline.domain.refusal import Code
from sightline.http.pipeline.errors import ApiError
from sightline.http.server import Headers

_BUCKETS_MAX: Final = 50_000


class RateClass(StrEnum):
    """Which budget a route spends from."""

    DEFAULT = "default"
    LIST = "list"
    FRAME = "frame"
    LOCATION = "location"
    QUOTE = "quote"
    CREATE = "create"
    AUTH = "auth"
    FAILED = "failed"
    """Credentials that were refused. Those that are good spend nothing here."""
    NONE = "none"


@final
@dataclass(frozen=True, slots=True)
class Budget:
    """`per_s` calls a second in the long run, `burst` at once."""

    per_s: float
    burst: int

    @property
    def window_s(self) -> int:
        """How long an empty bucket takes to fill."""
        return max(1, math.ceil(self.burst / self.per_s))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Budgets per class. Per key or wallet, save frame (session), location (workspace), auth, failed (IP address)."""

    is_enabled: bool = True
    budgets: Mapping[RateClass, Budget] = field(
        default_factory=lambda: {
            RateClass.DEFAULT: Budget(50, 100),
            RateClass.LIST: Budget(10, 10),
            RateClass.FRAME: Budget(10, 20),
            RateClass.LOCATION: Budget(4, 10),
            RateClass.QUOTE: Budget(10, 10),
            RateClass.CREATE: Budget(10, 10),
            RateClass.AUTH: Budget(20 / 60, 20),
            RateClass.FAILED: Budget(60 / 60, 60),
        }
    )

    def with_failed_per_minute(self, count: int) -> Self:
        """The same with another budget of refused credentials."""
        return replace(self, budgets={**self.budgets, RateClass.FAILED: Budget(count / 60, count)})


@final
class RateLimiter:
    """All buckets of one server. Not shared between processes."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._full_at: dict[tuple[RateClass, str], float] = {}
        self._names = {name: name.encode() for name in limits.budgets}
        self._policies = {
            name: (b"ratelimit-policy", b'"%b";q=%d;w=%d' % (name.encode(), budget.burst, budget.window_s))
            for name, budget in limits.budgets.items()
        }

    def take(self, rate: RateClass, key: str, now_s: float) -> Headers:
        """Spend one call. Returns the headers that tell what is left.

        Raises:
            ApiError: RATE_LIMITED, when the bucket is empty; the call spends nothing.
        """
        budget = self._limits.budgets.get(rate)
        if budget is None or not self._limits.is_enabled:
            return []
        interval = 1 / budget.per_s
        capacity = budget.burst * interval
        bucket = (rate, key)
        full_at = max(self._full_at.get(bucket, 0.0), now_s)
        wait = full_at + interval - capacity - now_s
        # Sums of intervals are not exact: a bucket that is full but for rounding is full.
        if wait > 1e-9:
            headers = self._headers(rate, 0, math.ceil(wait))
            raise ApiError(Code.RATE_LIMITED, f"rate:{rate}", retry_after_s=math.ceil(wait), headers=headers)
        full_at += interval
        self._full_at[bucket] = full_at
        if len(self._full_at) > _BUCKETS_MAX:
            self._forget_full(now_s)
        left = int((capacity - (full_at - now_s)) / interval + 1e-9)
        return self._headers(rate, left, math.ceil(full_at - now_s))

    def _headers(self, rate: RateClass, left: int, seconds: int) -> Headers:
        return [(b"ratelimit", b'"%b";r=%d;t=%d' % (self._names[rate], left, seconds)), self._policies[rate]]

    def _forget_full(self, now_s: float) -> None:
        self._full_at = {bucket: full_at for bucket, full_at in self._full_at.items() if full_at > now_s}
