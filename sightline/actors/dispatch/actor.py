"""The dispatcher: one actor that indexes every ONLINE operator and picks one for each dispatch.

A picked operator is reserved until its workspace reports a change, so that two sessions are not sent to the same
operator; a reservation expires after `RESERVED_MS`. The index copies the store's rows and is rebuilt at every load.
"""

from collections import deque
from typing import Final, assert_never, final

from sightline.actors.deps import WORKSPACE, Deps
from sightline.actors.dispatch.operator_index import OperatorIndex
from sightline.actors.kernel import Context, Envelope
from sightline.actors.messages import (
    CountCells,
    CountOperators,
    DispatcherMessage,
    OperatorChanged,
    OperatorSeen,
    PickOperator,
)
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Operator

RESERVED_MS: Final = 5_000
"""Lifetime of a reservation."""


@final
class DispatcherActor:
    """Chooses operators."""

    def __init__(self, context: Context[DispatcherMessage], deps: Deps) -> None:
        self._context = context
        self._deps = deps
        self._index = OperatorIndex(deps.limits.seen_within_ms)
        self._reserved: dict[str, tuple[int, Workspace]] = {}
        self._reservations: deque[tuple[int, str]] = deque()

    async def load(self) -> None:
        """Index every supplier that is ONLINE."""
        for workspace in await self._deps.store.suppliers():
            self._index.put(self._newest(workspace), self._context.clock.now_ms())

    def snapshot(self) -> int:
        """How many operators can be picked now."""
        return len(self._index)

    def may_passivate(self) -> bool:
        """Never: it would forget the reservations."""
        return False

    async def handle(self, envelope: Envelope[DispatcherMessage]) -> None:
        """Take one turn."""
        now_ms = self._context.clock.now_ms()
        self._expire_reservations(now_ms)
        self._index.expire(now_ms, lambda workspace: self._newest(workspace).last_seen_at_ms)
        message = envelope.message
        match message:
            case OperatorChanged(workspace=workspace):
                self._reserved.pop(workspace.id, None)
                self._index.put(workspace, now_ms)
            case OperatorSeen(workspace_id=workspace_id):
                self._index.seen(workspace_id, now_ms)
            case PickOperator():
                envelope.reply(message, self._pick(message, now_ms))
            case CountOperators(lat=lat, lng=lng):
                envelope.reply(message, self._index.count_covering(lat, lng))
            case CountCells():
                envelope.reply(message, self._index.coverage_cells())
            case _:
                assert_never(message)

    def _pick(self, pick: PickOperator, now_ms: int) -> Operator | None:
        mode = self._deps.limits.dispatch_mode
        found = self._index.choose(pick.lat, pick.lng, mode=mode, excluded=pick.excluded)
        if found is None:
            return None
        self._index.remove(found.id)
        self._reserved[found.id] = (now_ms, found)
        self._reservations.append((now_ms, found.id))
        return found.as_operator()

    def _expire_reservations(self, now_ms: int) -> None:
        while self._reservations and now_ms - self._reservations[0][0] >= RESERVED_MS:
            at_ms, workspace_id = self._reservations.popleft()
            reserved = self._reserved.get(workspace_id)
            if reserved is None or reserved[0] != at_ms:
                continue
            del self._reserved[workspace_id]
            self._index.put(self._newest(reserved[1]), now_ms)

    def _newest(self, workspace: Workspace) -> Workspace:
        """The workspace as its actor last published it, else the given copy."""
        known = self._context.registry.peek(WORKSPACE, workspace.id)
        return known if known is not None else workspace
