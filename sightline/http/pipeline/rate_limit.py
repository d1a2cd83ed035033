"""Rate limits: token buckets, computed as GCRA with one number per bucket (the time at which it is full again).

Sources: ITU-T I.371 (GCRA); draft-ietf-httpapi-ratelimit-headers-10 for the headers.
"""

import ipaddress
import math
from collections.abc import Callable
from typing import Final, Protocol, final

import trio

from sightline.domain.refusal import Code
from sightline.http.budgets import RateClass, RateLimits
from sightline.http.pipeline.errors import ApiError
from sightline.http.server import Headers

_BUCKETS_MAX: Final = 50_000
_IPV6_PREFIX: Final = 64
"""An IPv6 customer has a whole /64, so limits count per /64 and not per address."""


class RateSharing(Protocol):
    """Exchanges with other servers what callers take from their rate limits."""

    @property
    def servers(self) -> int:
        """Number of servers that take from the same buckets."""
        ...

    def spent(self, rate: str, key: str, cost: int) -> None:
        """Send it to the other servers soon."""
        ...

    def attach(self, take: Callable[[str, str, int], None]) -> None:
        """Call `take` with the class, key and tokens of what others tell."""
        ...


@final
class RateLimiter:
    """All buckets of one server process.

    With several servers each has its own buckets, and the servers tell each other what they take from a bucket. They do
    so only for callers that use more than this server's part of the rate, so nearly all requests cause no message. A
    caller of N servers can take N bursts once; its long-term rate is that of one bucket.
    """

    def __init__(self, limits: RateLimits, sharing: RateSharing | None = None) -> None:
        self._limits = limits
        self._sharing = sharing
        self._part_full_at: dict[tuple[RateClass, str], float] = {}
        """As `_full_at`, of buckets with this server's part of the rate."""
        if sharing is not None:
            sharing.attach(self._take_elsewhere)
        self._full_at: dict[tuple[RateClass, str], float] = {}
        self._names = {name: name.encode() for name in limits.budgets}
        self._policies = {
            name: (b"ratelimit-policy", b'"%b";q=%d;w=%d' % (name.encode(), budget.burst, budget.window_s))
            for name, budget in limits.budgets.items()
        }

    def take(self, rate: RateClass, key: str, now_s: float, *, cost: int = 1) -> Headers:
        """Take tokens from a bucket. Returns the headers that say what is left.

        A request that costs more than the burst is let through when the bucket is full, and the bucket takes
        correspondingly longer to fill again.

        Raises:
            ApiError: RATE_LIMITED if the bucket has too few tokens; none are taken.
        """
        budget = self._limits.budgets.get(rate)
        if budget is None or not self._limits.is_enabled:
            return []
        interval = 1 / budget.per_s
        capacity = budget.burst * interval
        bucket = (rate, key)
        full_at = max(self._full_at.get(bucket, 0.0), now_s)
        wait = full_at + min(cost, budget.burst) * interval - capacity - now_s
        # Sums of intervals are inexact: a bucket that is full but for rounding counts as full.
        if wait > 1e-9:
            headers = self._headers(rate, 0, math.ceil(wait))
            raise ApiError(Code.RATE_LIMITED, f"rate:{rate}", retry_after_s=math.ceil(wait), headers=headers)
        return self.charge(rate, key, now_s, cost=cost)

    def charge(self, rate: RateClass, key: str, now_s: float, *, cost: int) -> Headers:
        """Take tokens even if the bucket has too few. Returns the headers that say what is left."""
        budget = self._limits.budgets.get(rate)
        if budget is None or not self._limits.is_enabled:
            return []
        interval, bucket = 1 / budget.per_s, (rate, key)
        full_at = self._full_at[bucket] = max(self._full_at.get(bucket, 0.0), now_s) + cost * interval
        if self._sharing is not None:
            self._share(self._sharing, bucket, cost, interval, budget.burst * interval, now_s)
        if len(self._full_at) > _BUCKETS_MAX:
            self._drop_full(now_s)
        left = max(0, int((budget.burst * interval - (full_at - now_s)) / interval + 1e-9))
        return self._headers(rate, left, math.ceil(full_at - now_s))

    def _share(
        self,
        sharing: RateSharing,
        bucket: tuple[RateClass, str],
        cost: int,
        interval: float,
        capacity: float,
        now_s: float,
    ) -> None:
        """Tell the other servers of a caller that takes more than this server's part of the rate."""
        servers = sharing.servers
        if servers > 1:
            part_full_at = max(self._part_full_at.get(bucket, 0.0), now_s) + cost * interval * servers
            self._part_full_at[bucket] = min(part_full_at, now_s + capacity)
            if part_full_at - now_s > capacity / servers:
                sharing.spent(*bucket, cost)

    def _take_elsewhere(self, rate: str, key: str, cost: int) -> None:
        """Another server took tokens from its bucket."""
        name = next((name for name in self._limits.budgets if name == rate), None)
        if name is None:  # a class of a newer version
            return
        budget, bucket, now_s = self._limits.budgets[name], (name, key), trio.current_time()
        full_at = max(self._full_at.get(bucket, 0.0), now_s) + cost / budget.per_s
        # Not further ahead than one burst: after that this server refuses, and takes nothing more.
        self._full_at[bucket] = min(full_at, now_s + budget.burst / budget.per_s)

    def wait_s(self, rate: RateClass, key: str, now_s: float) -> float:
        """Seconds until the bucket has a token; 0 if it has one now."""
        budget = self._limits.budgets.get(rate)
        if budget is None or not self._limits.is_enabled:
            return 0.0
        return max(0.0, self._full_at.get((rate, key), 0.0) - (budget.burst - 1) / budget.per_s - now_s)

    def _headers(self, rate: RateClass, left: int, seconds: int) -> Headers:
        return [(b"ratelimit", b'"%b";r=%d;t=%d' % (self._names[rate], left, seconds)), self._policies[rate]]

    def _drop_full(self, now_s: float) -> None:
        """Forget buckets that are full: a new one is full too."""
        self._full_at = {bucket: full_at for bucket, full_at in self._full_at.items() if full_at > now_s}
        self._part_full_at = {bucket: at_s for bucket, at_s in self._part_full_at.items() if at_s > now_s}


def address_key(client_ip: str) -> str:
    """The key of a client's address: the address itself for IPv4, its /64 network for IPv6."""
    if ":" not in client_ip:
        return client_ip
    try:
        address = ipaddress.IPv6Address(client_ip.partition("%")[0])
    except ValueError:
        return client_ip
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _IPV6_PREFIX), strict=False))
