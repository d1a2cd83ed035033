"""Detects ask cycles in test mode: actors that wait for each other's answers inside their turns.

Such a cycle blocks until a deadline passes. Turns ask only from session to workspace to dispatcher; this graph makes a
violation visible in tests and in the simulator. It observes asks through `Post.on_ask`; an ask takes the same path
without it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, final

from sightline.actors.kernel.errors import AskCycleError

if TYPE_CHECKING:
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.ref import Key

turn_of: ContextVar[Key | None] = ContextVar("turn_of", default=None)
"""The actor whose turn the current task runs; None outside of turns, helpers included."""


@final
class WaitForGraph:
    """Edges from an actor in a turn to the actors whose answers that turn waits for."""

    def __init__(self) -> None:
        self._waits: dict[Key, list[tuple[Key, Envelope[object]]]] = {}

    def note_ask(self, askee: Key, envelope: Envelope[object]) -> None:
        """Record that the current turn waits for `askee` until the envelope is answered.

        Raises:
            AskCycleError: If `askee` already waits, directly or through others, for the asker.
        """
        asker = turn_of.get()
        if asker is None:
            return
        path = self._path(askee, asker)
        if path is not None:
            envelope.abandon()
            raise AskCycleError(" -> ".join(f"{kind}/{key}" for kind, key in [asker, *path]))
        self._waits[asker] = [*self._awaited_by(asker), (askee, envelope)]

    def _awaited_by(self, asker: Key) -> list[tuple[Key, Envelope[object]]]:
        """The open asks of an actor's turn; forgets answered ones."""
        waits = [wait for wait in self._waits.pop(asker, ()) if wait[1].awaited]
        if waits:
            self._waits[asker] = waits
        return waits

    def _path(self, start: Key, goal: Key) -> list[Key] | None:
        """A chain of waits from start to goal, both included."""
        trails = [[start]]
        seen = {start}
        while trails:
            trail = trails.pop()
            if trail[-1] == goal:
                return trail
            for following, _ in self._awaited_by(trail[-1]):
                if following not in seen:
                    seen.add(following)
                    trails.append([*trail, following])
        return None
