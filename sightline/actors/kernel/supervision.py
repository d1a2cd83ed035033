"""How often an actor may fail, and how long to wait before it is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from sightline.actors.kernel.behaviour import Rng
    from sightline.actors.kernel.kind import KindOptions


@final
class Strikes:
    """The recent failures of one actor."""

    __slots__ = ("_crashes", "_options", "_reloads", "_rng", "pause_s")

    def __init__(self, options: KindOptions, rng: Rng) -> None:
        self._options = options
        self._rng = rng
        self._crashes: list[float] = []
        self._reloads = 0
        self.pause_s = 0.0
        """How long to wait before the next load."""

    def note_crash(self, now: float) -> bool:
        """Count a crash; false if it was one too many within the window."""
        horizon = now - self._options.restart_window_s
        self._crashes = [at for at in self._crashes if at > horizon]
        self._crashes.append(now)
        self.pause_s = self._backoff_s(len(self._crashes))
        return len(self._crashes) <= self._options.restarts_max

    def note_reload(self) -> None:
        """Count a reload that is no crash; the first one in a row goes without a pause."""
        self.pause_s = self._backoff_s(self._reloads) if self._reloads else 0.0
        self._reloads += 1

    def calm(self) -> None:
        """Note a turn that went well."""
        self._reloads = 0
        self.pause_s = 0.0

    def _backoff_s(self, attempt: int) -> float:
        doubled_ms = self._options.backoff_first_ms << min(attempt - 1, 16)
        return min(doubled_ms, self._options.backoff_max_ms) * (0.5 + self._rng.random()) / 1000
