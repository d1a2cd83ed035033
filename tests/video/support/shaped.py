"""A UDP proxy with the bottleneck of a mobile uplink between a client and the server's media port."""

import random
from dataclasses import dataclass, field
from typing import Final

import trio

from tests.video.support.lossy import LossyLink

OVERHEAD_BYTES: Final = 28
"""IPv4 and UDP headers."""


@dataclass
class ShapedLink(LossyLink):
    """One direction: a rate, a queue of limited delay, random loss. Both directions: a fixed delay."""

    rate_bps: float = 1_000_000
    queue_max_s: float = 0.3
    delay_s: float = 0.02
    spare_first: int = 0
    shapes_uplink: bool = True
    """Which direction has the bottleneck: client to server, or server to client."""
    queue_s: list[tuple[float, float]] = field(default_factory=list, init=False)
    """(time, how long a datagram waited in the queue) of each datagram that passed."""
    delivered: list[tuple[float, int]] = field(default_factory=list, init=False)
    """(time, bytes) of each datagram that passed the bottleneck."""
    _free_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._uplink_chance = random.Random(self.seed)

    def bottleneck_delay(self, size: int) -> float | None:
        """Seconds until a datagram of this size arrives, or None if it is lost."""
        now = trio.current_time()
        waits = max(0.0, self._free_at - now)
        if waits > self.queue_max_s or self._uplink_chance.random() < self.loss:
            self.dropped += 1
            return None
        self.queue_s.append((now, waits))
        self._free_at = now + waits + (size + OVERHEAD_BYTES) * 8 / self.rate_bps
        self.delivered.append((self._free_at, size))
        return self._free_at - now + self.delay_s

    def fate_of(self, data: bytes, *, uplink: bool) -> float | None:
        self.passed += 1
        return self.bottleneck_delay(len(data)) if uplink is self.shapes_uplink else self.delay_s

    def bitrate_bps(self, since: float, until: float) -> float:
        """What passed the bottleneck between two times."""
        return sum(size * 8 for at, size in self.delivered if since <= at < until) / (until - since)

    def queue_p95_s(self, since: float, until: float) -> float:
        """95th percentile of the queue's delay over the datagrams between two times."""
        waits = sorted(wait for at, wait in self.queue_s if since <= at < until)
        return waits[int(len(waits) * 0.95)] if waits else 0.0
