"""What the link of one viewer carries: which layer of simulcast, or keyframes alone. Pure; time is an argument.

Receiver reports are the measure: the loss, and the round trip beyond the shortest one, which is the time that packets
wait in queues. Two bad reports in a row lead to the highest lower layer that fits into what arrived. After some seconds
without a bad report the next higher layer is tried; one bad report ends a trial, and the next one comes later.
"""

import math
from collections.abc import Sequence
from typing import Final, final

from sightline.video.media.layers import Layer

RTT_FIRST_MS: Final = 100.0
RTT_MIN_MS, RTT_MAX_MS = 20.0, 500.0
"""Bounds of the measured round trip, by which repeated requests are limited."""
RTT_CREEP: Final = 0.02
THIN_LOSS: Final = 0.2
"""A viewer of the lowest layer that reports a larger loss, twice in a row, is below its bitrate."""
THIN_FIRST_MS: Final = 8_000.0
THIN_MAX_MS: Final = 60_000.0
"""For how long a viewer gets keyframes only; doubled each time that it fails again soon after."""
SLOW_MIN_BPS: Final = 100_000.0
SLOW_LOSS: Final = 0.1
"""Loss from which a viewer gets a lower layer. Wi-Fi and mobile links lose a few percent without being full."""
SLOW_QUEUE_MS: Final = 300.0
"""The same for the time in queues."""
TRIAL_MS: Final = 6_000.0
"""A bad report within this time after a higher layer was tried means that the link does not carry it."""
FALL_MS: Final = 3_000.0
"""Reports of this time after a fall to a lower layer are about the layer before: its packets are still in queues."""
HOLD_FIRST_MS: Final = 10_000.0
HOLD_MAX_MS: Final = 160_000.0
"""Time without a bad report until a higher layer is tried; doubled by each failed trial, because a trial that fails
costs the viewer about three seconds of picture."""


@final
class ViewerLink:
    """The state of one viewer's link."""

    def __init__(self) -> None:
        self.rtt_ms = RTT_FIRST_MS
        self.delivered_bps = SLOW_MIN_BPS
        """What arrived when the link was last seen to be too slow."""
        self._arrived_bps = math.inf
        """Bitrate that arrived by the last bad report; infinite if that one showed delay and no loss."""
        self._rtt_least_ms = math.inf
        self._reported_ms = 0.0
        self._octets_reported = 0
        self._lossy_reports = self._slow_reports = 0
        self._thin_until_ms = self._thinned_ms = 0.0
        self._thin_for_ms = THIN_FIRST_MS
        self._choice: int | None = None
        self._has_lower = self._is_too_slow = False
        self._fits_bps = math.inf
        """The bitrate up to which a layer is chosen when the present one does not arrive any more."""
        self._settled_ms = 0.0
        """When the layer was chosen, or the last bad report after that."""
        self._tried_ms = self._fell_ms = -math.inf
        self._hold_ms = HOLD_FIRST_MS

    def is_thinned(self, now_ms: float) -> bool:
        """True while the link carries keyframes only."""
        return now_ms < self._thin_until_ms

    @property
    def is_too_slow(self) -> bool:
        """True if a lower layer must be chosen now."""
        return self._is_too_slow

    def reported(self, fraction: float, rtt_ms: float | None, octets: int, now_ms: float) -> bool:
        """Take a receiver report; True if the link carries keyframes only from now on.

        Args:
            fraction: Loss of the packets since the last report, before retransmissions.
            rtt_ms: The round trip, if the report tells it.
            octets: Sent to the viewer until now.
        """
        elapsed_ms, sent = now_ms - self._reported_ms, octets - self._octets_reported
        self._reported_ms, self._octets_reported = now_ms, octets
        queue_ms = self._measured(rtt_ms) if rtt_ms is not None else 0.0
        if fraction >= SLOW_LOSS and elapsed_ms > 0 and not self.is_thinned(now_ms):
            self.delivered_bps = max(SLOW_MIN_BPS, sent * 8_000 * (1 - fraction) / elapsed_ms)
        if now_ms - self._fell_ms < FALL_MS:
            self._lossy_reports = self._slow_reports = 0
            return False
        self._lossy_reports = self._lossy_reports + 1 if fraction >= THIN_LOSS else 0
        if fraction >= SLOW_LOSS or queue_ms >= SLOW_QUEUE_MS:
            self._slow_reports += 1
            self._settled_ms = now_ms
            self._arrived_bps = self.delivered_bps if fraction >= SLOW_LOSS else math.inf
        else:
            self._slow_reports = 0
        if self._has_lower:
            self._is_too_slow = self._slow_reports >= (1 if now_ms - self._tried_ms < TRIAL_MS else 2)
            return False
        if self._lossy_reports < 2 or self.is_thinned(now_ms):
            return False
        again = self._thinned_ms > 0 and now_ms - self._thin_until_ms < self._thin_for_ms
        self._thin_for_ms = min(THIN_MAX_MS, self._thin_for_ms * 2) if again else THIN_FIRST_MS
        self._thin_until_ms, self._thinned_ms = now_ms + self._thin_for_ms, now_ms
        self._lossy_reports = 0
        return True

    def _measured(self, rtt_ms: float) -> float:
        """Take a round trip; gives the part of it that is waiting in queues."""
        # The shortest one creeps up, because a viewer may come to a network with a longer way.
        least_ms = self._rtt_least_ms if math.isfinite(self._rtt_least_ms) else rtt_ms
        self._rtt_least_ms = max(0.0, min(rtt_ms, least_ms + RTT_CREEP * (rtt_ms - least_ms)))
        self.rtt_ms += 0.3 * (max(RTT_MIN_MS, min(RTT_MAX_MS, rtt_ms)) - self.rtt_ms)
        return rtt_ms - self._rtt_least_ms

    def choose(self, layers: Sequence[Layer], now_ms: float) -> int | None:
        """The SSRC of the layer to send; None if none is measured yet.

        Args:
            layers: Those that arrive, the lowest first.
        """
        if not layers:
            self._has_lower = self._is_too_slow = False
            return None
        at = next((index for index, layer in enumerate(layers) if layer.ssrc == self._choice), None)
        if at is None:  # the first choice, another publisher, or the layer has stopped
            at = self._highest_that_fits(layers)
        elif self._is_too_slow and at > 0:
            is_trial = now_ms - self._tried_ms < TRIAL_MS
            self._hold_ms = min(HOLD_MAX_MS, self._hold_ms * 2) if is_trial else HOLD_FIRST_MS
            below_bps = layers[at - 1].bps
            self._fits_bps = below_bps if is_trial else min(self._arrived_bps, below_bps)
            at = self._highest_that_fits(layers[:at])
            self._settled_ms = self._fell_ms = now_ms
        elif math.isinf(self._fits_bps):
            at = len(layers) - 1
        elif at < len(layers) - 1 and now_ms - max(self._settled_ms, self._thin_until_ms) >= self._hold_ms:
            at += 1
            self._fits_bps = math.inf if at == len(layers) - 1 else max(self._fits_bps, layers[at].bps)
            self._tried_ms = self._settled_ms = now_ms
        self._choice, self._has_lower, self._is_too_slow = layers[at].ssrc, at > 0, False
        return self._choice

    def _highest_that_fits(self, layers: Sequence[Layer]) -> int:
        return max((index for index, layer in enumerate(layers) if layer.bps <= self._fits_bps), default=0)
