"""The authorization graph as one server process sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import trio

from sightline.domain.errors import AuthzUnavailableError

if TYPE_CHECKING:
    from sightline.ports.relations import ObjectRef, RelationTuple, Staged, TupleUpdate
    from sightline.sim.faults import Faults
    from sightline.sim.store import Line
    from sightline.storage.identity_memory import MemoryRelations


@final
class FaultyRelations:
    """The Relations port over a graph in memory that outlives the server."""

    def __init__(self, inner: MemoryRelations, faults: Faults, line: Line) -> None:
        self._inner = inner
        self._faults = faults
        self._line = line

    async def _travel(self) -> None:
        await self._line.pass_through()
        await trio.sleep(self._faults.latency_s())
        await self._line.pass_through()
        if self._faults.hits(self._faults.rates.relations_refused):
            raise AuthzUnavailableError("simulated: the graph did not answer")

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        """Apply updates at once."""
        await self._travel()
        return await self._inner.write(updates, requires=requires)

    async def stage(self, updates: Sequence[TupleUpdate]) -> Staged:
        """Hand the updates to the caller's commit."""
        await self._travel()
        return await self._inner.stage(updates)

    async def check(
        self, resource: ObjectRef, relation: str, subject: ObjectRef, *, at_least: str | None = None
    ) -> bool:
        """Tell whether the edge stands."""
        await self._travel()
        return await self._inner.check(resource, relation, subject, at_least=at_least)

    async def read(
        self,
        *,
        resource_type: str,
        resource_id: str | None = None,
        subject: ObjectRef | None = None,
        at_least: str | None = None,
    ) -> tuple[RelationTuple, ...]:
        """List edges."""
        await self._travel()
        return await self._inner.read(
            resource_type=resource_type, resource_id=resource_id, subject=subject, at_least=at_least
        )

    def token_for(self, revision: int) -> str:
        """Make the token of a revision."""
        return self._inner.token_for(revision)
