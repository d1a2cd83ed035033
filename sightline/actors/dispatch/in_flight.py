"""The dispatches that are in flight, by consumer, of all servers."""

from typing import Final, final

KEPT_MS: Final = 30_000
"""A dispatch whose end was not told, because its server died, is forgotten after this."""


@final
class DispatchesInFlight:
    """Remembers which dispatches of a consumer have begun and not ended."""

    def __init__(self) -> None:
        self._begun_ms: dict[str, dict[str, int]] = {}

    def begin(self, consumer_workspace_id: str, session_id: str, now_ms: int) -> frozenset[str]:
        """Note a dispatch; returns the sessions of the same consumer whose dispatch began before it."""
        begun = self._begun_ms.setdefault(consumer_workspace_id, {})
        for old in [each for each, at_ms in begun.items() if now_ms - at_ms >= KEPT_MS]:
            del begun[old]
        if session_id not in begun:
            begun[session_id] = now_ms
        earlier = list(begun)[: list(begun).index(session_id)]
        return frozenset(earlier)

    def end(self, consumer_workspace_id: str, session_id: str) -> None:
        """Forget a dispatch."""
        begun = self._begun_ms.get(consumer_workspace_id, {})
        begun.pop(session_id, None)
        if not begun:
            self._begun_ms.pop(consumer_workspace_id, None)
