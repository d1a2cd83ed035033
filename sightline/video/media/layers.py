"""Chooses one of several simultaneous video streams of a publisher (simulcast): the highest that flows. Pure."""

from typing import Final, final

from sightline.domain.value import Value

WINDOW_MS: Final = 1_000.0
"""Rates are compared once in this time."""
SILENT_MS: Final = 500.0
"""A layer without a packet for so long has stopped: an encoder drops its highest layer when bandwidth falls."""
HIGHER: Final = 1.3
"""A layer is higher if its bitrate is larger by this factor."""
LAYERS_MAX: Final = 8
"""Streams that are compared; packets of others are ignored."""


@final
class Layer(Value):
    """A stream that arrives, and its bitrate in the last window."""

    ssrc: int
    bps: float


@final
class _Measured:
    __slots__ = ("bps", "octets", "seen_ms")

    def __init__(self) -> None:
        self.octets = 0
        self.bps = 0.0
        self.seen_ms = 0.0


@final
class LayerChooser:
    """Says for each packet which SSRC to show. Stays with one SSRC while it flows and no other carries more."""

    def __init__(self) -> None:
        self.chosen: int | None = None
        self._layers: dict[int, _Measured] = {}
        self._window_ms = 0.0

    @property
    def several(self) -> bool:
        """True if the publisher has sent more than one stream."""
        return len(self._layers) > 1

    def take(self, ssrc: int, size: int, now_ms: float) -> int | None:
        """Note one packet; gives the SSRC to show."""
        layer = self._layers.get(ssrc)
        if layer is None:
            if len(self._layers) >= LAYERS_MAX and not self._forget_silent(now_ms):
                return self.chosen
            layer = self._layers[ssrc] = _Measured()
        layer.octets += size
        layer.seen_ms = now_ms
        if self.chosen is None:
            self.chosen, self._window_ms = ssrc, now_ms
        elif ssrc != self.chosen and now_ms - self._layers[self.chosen].seen_ms >= SILENT_MS:
            self.chosen = ssrc
        if now_ms - self._window_ms >= WINDOW_MS:
            self._compare(now_ms)
            self._window_ms = now_ms
        return self.chosen

    def below(self, now_ms: float) -> list[Layer]:
        """The streams that arrive, by their bitrate, and the chosen one last; empty before the first window is over."""
        chosen = self.chosen
        if chosen is None or not self._layers[chosen].bps:
            return []
        # A busy encoder sends less of its highest layer than of the next one for a while; the order stays.
        lower = [
            Layer(ssrc, layer.bps)
            for ssrc, layer in self._layers.items()
            if layer.bps and now_ms - layer.seen_ms < SILENT_MS and ssrc != chosen
        ]
        return [*sorted(lower, key=lambda layer: layer.bps), Layer(chosen, self._layers[chosen].bps)]

    def _compare(self, now_ms: float) -> None:
        assert self.chosen is not None
        elapsed_ms = now_ms - self._window_ms
        flowing = [ssrc for ssrc, layer in self._layers.items() if now_ms - layer.seen_ms < SILENT_MS]
        best = max(flowing, key=lambda ssrc: self._layers[ssrc].octets, default=self.chosen)
        if self._layers[best].octets > HIGHER * self._layers[self.chosen].octets:
            self.chosen = best
        for layer in self._layers.values():
            layer.bps = layer.octets * 8_000 / elapsed_ms
            layer.octets = 0

    def _forget_silent(self, now_ms: float) -> bool:
        silent = [
            ssrc
            for ssrc, layer in self._layers.items()
            if ssrc != self.chosen and now_ms - layer.seen_ms >= 10 * WINDOW_MS
        ]
        for ssrc in silent:
            del self._layers[ssrc]
        return bool(silent)
