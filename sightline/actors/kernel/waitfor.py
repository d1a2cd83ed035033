"""Test mode: who waits for whose reply inside a turn, and an error that names the circle.

An actor that awaits a peer's reply inside its turn can deadlock until a deadline passes. The house forbids it; this
graph makes a breach loud in tests, where it is switched on.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias, final

from sightline.actors.kernel.errors import AskCycleError

if TYPE_CHECKING:
    from collections.abc import Iterator

Key: TypeAlias = tuple[str, str]

turn_of: ContextVar[Key | None] = ContextVar("turn_of", default=None)
"""The actor whose turn the current task belongs to; helpers are no turn."""


@final
class WaitForGraph:
    """Edges from an actor in a turn to the actors whose replies that turn awaits."""

    def __init__(self) -> None:
        self._waits: dict[Key, list[Key]] = {}

    @contextmanager
    def waiting(self, askee: Key) -> Iterator[None]:
        """Hold the edge from the current turn, if any, to `askee`.

        Raises:
            AskCycleError: If `askee` already waits, directly or through others, for the asker.
        """
        asker = turn_of.get()
        if asker is None:
            yield
            return
        path = self._path(askee, asker)
        if path is not None:
            raise AskCycleError(" -> ".join(f"{kind}/{key}" for kind, key in [asker, *path]))
        self._waits.setdefault(asker, []).append(askee)
        try:
            yield
        finally:
            self._waits[asker].remove(askee)
            if not self._waits[asker]:
                del self._waits[asker]

    def _path(self, start: Key, goal: Key) -> list[Key] | None:
        """A chain of waits from start to goal, both included."""
        trails = [[start]]
        seen = {start}
        while trails:
            trail = trails.pop()
            if trail[-1] == goal:
                return trail
            for following in self._waits.get(trail[-1], ()):
                if following not in seen:
                    seen.add(following)
                    trails.append([*trail, following])
        return None
