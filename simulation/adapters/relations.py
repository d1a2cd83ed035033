"""The authorization graph as one server process sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import trio

from sightline.domain.errors import AuthzUnavailableError
from sightline.ports.relations import OPERATOR_WORKSPACE, Staged, TupleUpdate

if TYPE_CHECKING:
    from sightline.ports.relations import ObjectRef, RelationTuple
    from simulation.adapters.store import Process
    from simulation.faults import Faults
    from simulation.memory.identity import MemoryRelations


@final
class FaultyRelations:
    """The Relations port over an in-memory graph that survives crashes of the server.

    With `is_external` the graph is a separate system, like SpiceDB: edges are written before the row they belong to,
    and removed again if the row is not committed.
    """

    def __init__(self, inner: MemoryRelations, faults: Faults, process: Process, *, is_external: bool) -> None:
        self._inner = inner
        self._faults = faults
        self._process = process
        self._is_external = is_external

    async def _travel(self) -> None:
        await self._process.pass_through()
        await trio.sleep(self._faults.latency_s())
        await self._process.pass_through()
        if self._faults.hits(self._faults.rates.relations_refused):
            raise AuthzUnavailableError("simulated: the graph did not answer")

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        """Apply updates at once."""
        await self._travel()
        return await self._inner.write(updates, requires=requires)

    @property
    def is_external(self) -> bool:
        """What the world was set up with."""
        return self._is_external

    async def stage(self, updates: Sequence[TupleUpdate]) -> Staged:
        """Give the updates to the caller's commit, or write them now; another operator's edge is removed."""
        await self._travel()
        if not self._is_external:
            return await self._inner.stage(updates)
        put = {update.edge for update in updates if update.edge.relation == OPERATOR_WORKSPACE}
        others: list[TupleUpdate] = []
        for session in sorted({edge.resource for edge in put}):
            found = await self._inner.read(resource_type=session.type, resource_id=session.id)
            others += [
                TupleUpdate(e, present=False) for e in found if e.relation == OPERATOR_WORKSPACE and e not in put
            ]
        token = await self._inner.write([*updates, *others])
        await self._process.pass_through()
        return Staged(token=token, undo=tuple(update.inverse() for update in updates))

    async def check(
        self, resource: ObjectRef, relation: str, subject: ObjectRef, *, at_least: str | None = None
    ) -> bool:
        """Return whether the edge exists."""
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
        """Return the token of a revision."""
        return self._inner.token_for(revision)
