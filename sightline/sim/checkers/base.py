"""What a checker is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from sightline.ports.store import Heartbeat
    from sightline.sim.history import History, Reply, SessionStep, WorkspaceStep


class Checker:
    """Watches one promise. Each method is called within the step it is about; the default looks away."""

    name: ClassVar[str]
    history: History

    def fail(self, text: str) -> None:
        """Report that the promise was broken."""
        self.history.violate(self.name, text)

    def require(self, holds: bool, text: str) -> None:
        """Report unless it holds."""
        if not holds:
            self.fail(text)

    def on_shards(self, owner: str, epochs: Mapping[int, int]) -> None:
        """A server took the shards at these epochs."""

    def on_session(self, step: SessionStep) -> None:
        """A session's step was committed."""

    def on_workspace(self, step: WorkspaceStep) -> None:
        """A workspace's step was committed."""

    def on_heartbeats(self, owner: str, batch: Sequence[Heartbeat]) -> None:
        """Heartbeats became durable."""

    def on_acknowledged_heartbeat(self, workspace_id: str, sequence: int) -> None:
        """A device was told so."""

    def on_reply(self, reply: Reply) -> None:
        """A caller knows what became of its command."""

    def on_reading(self, life: str, session_id: str, clean_seconds: int) -> None:
        """A caller read the meter of a LIVE session."""

    def on_time(self, now_ms: int) -> None:
        """Called about once a second."""

    def on_end(self) -> None:
        """Called once, when everything must have finished."""
