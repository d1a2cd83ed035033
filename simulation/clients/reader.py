"""A simulated reader: asks any server for sessions and workspaces, and expects what was acknowledged before."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from sightline.domain.errors import SightlineError

if TYPE_CHECKING:
    from simulation.world import World


@final
class Reader:
    """Reads at random; a read that returns less than was acknowledged before it began is a violation."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._rng = world.rng(f"reader/{name}")

    async def run(self) -> None:
        """Read until the world ends."""
        while True:
            await trio.sleep(self._rng.random())
            try:
                await (self._read_session() if self._rng.random() < 0.5 else self._read_workspace())
            except SightlineError:
                continue

    async def _read_session(self) -> None:
        history = self._world.history
        if not history.truth.acknowledged:
            return
        session_id = self._rng.choice(list(history.truth.acknowledged)[-10:])
        least, party = history.truth.acknowledged[session_id], history.sessions[session_id].terms.consumer_workspace_id
        session = await self._world.call(
            "a read", lambda broker: broker.reads.require_session_as_party(session_id, party)
        )
        if session.version < least:
            history.violate("fresh reads", f"{session_id} was read at version {session.version}; {least} was answered")

    async def _read_workspace(self) -> None:
        history = self._world.history
        if not history.truth.acknowledged_beats:
            return
        workspace_id = self._rng.choice(list(history.truth.acknowledged_beats))
        least = history.truth.acknowledged_beats[workspace_id]
        answer = await self._world.call("a read", lambda broker: broker.reads.read_workspace(workspace_id))
        newest = answer.value.last_sequence
        if newest < least:
            history.violate("fresh reads", f"{workspace_id} was read at heartbeat {newest}; {least} was answered")
