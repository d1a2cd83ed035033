"""The map of online operators, read from the dispatcher's index at most once every few seconds."""

from typing import Final, final

from sightline.actors.deps import DISPATCHER, Deps
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import CountCells, HasOperator
from sightline.actors.shards import DISPATCHER_ID
from sightline.actors.types import Answer
from sightline.domain.operator.coverage_map import CellBox, CoverageCells

FRESH_MS: Final = 5_000
"""The dispatcher counts all operators in one turn, some milliseconds for 10,000; hence not at each request."""


@final
class CoverageMap:
    """Answers where operators are, by cell."""

    def __init__(self, registry: Registry, deps: Deps) -> None:
        self._registry = registry
        self._deps = deps
        self._latest: Answer[CoverageCells] | None = None

    async def has_operator(self, lat: float, lng: float) -> bool:
        """Say whether an operator that covers the point could be dispatched now."""
        dispatcher = self._registry.ref(DISPATCHER, DISPATCHER_ID)
        asked = HasOperator(lat, lng, requires_coverage=True)
        found: bool = await dispatcher.ask(asked, timeout_s=self._deps.limits.ask_timeout_s)
        return found

    async def within(self, box: CellBox) -> Answer[CoverageCells]:
        """Return the operators per cell of a box; `at_ms` is when they were counted."""
        now_ms = self._deps.clock.now_ms()
        latest = self._latest
        if latest is None or not 0 <= now_ms - latest.at_ms < FRESH_MS:
            dispatcher = self._registry.ref(DISPATCHER, DISPATCHER_ID)
            cells: CoverageCells = await dispatcher.ask(
                CountCells(), timeout_s=self._deps.limits.ask_timeout_s, conflate_key="cells"
            )
            latest = self._latest = Answer(cells, now_ms)
        return Answer(latest.value.within(box), latest.at_ms)
