"""A simulated caller without idempotency keys: creates workspaces, and expects none where it was told that none is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import trio

from sightline.actors.types import NewWorkspace
from sightline.domain.errors import SightlineError, UnavailableError
from sightline.domain.operator.model import WorkspaceRole
from simulation.clients.device import create

if TYPE_CHECKING:
    from simulation.world import World


@final
class Founder:
    """Creates about a workspace a second, each with another slug."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._rng = world.rng(f"founder/{name}")
        self._name = name

    async def run(self) -> None:
        """Create workspaces until the world ends."""
        number = 0
        while True:
            await trio.sleep(self._rng.random() * 1.5)
            number += 1
            slug = f"{self._name}-{number}"
            wallet = f"0x{self._rng.getrandbits(160):040x}"
            new = NewWorkspace(wallet_address=wallet, slug=slug, name=slug, roles=(WorkspaceRole.CONSUMER,))
            try:
                await self._world.call("a sign-up", partial(create, new))
            except UnavailableError:
                self._world.history.had_no_effect(slug)
            except SightlineError:
                continue
