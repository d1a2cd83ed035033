"""The dispatcher: one actor that knows every ONLINE operator and gives each session another one.

What it hands out it sets aside until the operator's workspace says what became of it, so that no two sessions are sent
to the same operator; what nobody speaks of for a while is taken back in. Its memory is an index of the store's, made
anew at every load: nothing of it is durable.
"""

from collections import deque
from typing import Final, final

from sightline.actors.deps import WORKSPACE, Deps
from sightline.actors.dispatch.operator_index import OperatorIndex
from sightline.actors.kernel.behaviour import Context
from sightline.actors.kernel.envelope import Envelope
from sightline.actors.messages import CountOperators, OperatorChanged, OperatorSeen, PickOperator
from sightline.domain.errors import InvariantError
from sightline.domain.operator.model import Workspace

RESERVED_MS: Final = 5_000
"""How long an operator that was handed out stays set aside without news."""


@final
class DispatcherActor:
    """Chooses operators."""

    def __init__(self, context: Context, deps: Deps) -> None:
        self._context = context
        self._deps = deps
        self._index = OperatorIndex()
        self._reserved: dict[str, tuple[int, Workspace]] = {}
        self._reservations: deque[tuple[int, str]] = deque()

    async def load(self) -> None:
        """Read every supplier that is ONLINE."""
        for workspace in await self._deps.store.suppliers():
            newer = self._context.registry.peek(WORKSPACE, workspace.id)
            self._index.put(newer if newer is not None else workspace)

    def snapshot(self) -> int:
        """How many operators can be picked now."""
        return len(self._index)

    def may_passivate(self) -> bool:
        """Never: it would forget what it set aside."""
        return False

    async def handle(self, envelope: Envelope) -> None:
        """Take one turn."""
        now_ms = self._context.clock.now_ms()
        self._take_back(now_ms)
        match envelope.message:
            case OperatorChanged(workspace=workspace):
                self._reserved.pop(workspace.id, None)
                self._index.put(workspace)
            case OperatorSeen(workspace_id=workspace_id):
                self._index.seen(workspace_id)
            case PickOperator() as pick:
                envelope.reply(self._pick(pick, now_ms))
            case CountOperators(lat=lat, lng=lng):
                envelope.reply(self._index.count_covering(lat, lng))
            case message:
                raise InvariantError(f"the dispatcher does not understand {type(message).__name__}")

    def _pick(self, pick: PickOperator, now_ms: int) -> str | None:
        limits = self._deps.limits

        def is_fresh(workspace: Workspace) -> bool:
            known = self._context.registry.peek(WORKSPACE, workspace.id)
            seen_ms = (known if known is not None else workspace).last_seen_at_ms
            return seen_ms is None or now_ms - seen_ms <= limits.seen_within_ms

        found = self._index.choose(
            pick.lat, pick.lng, mode=limits.dispatch_mode, excluded=pick.excluded, is_fresh=is_fresh
        )
        if found is None:
            return None
        self._index.remove(found.id)
        self._reserved[found.id] = (now_ms, found)
        self._reservations.append((now_ms, found.id))
        return found.id

    def _take_back(self, now_ms: int) -> None:
        while self._reservations and now_ms - self._reservations[0][0] >= RESERVED_MS:
            at_ms, workspace_id = self._reservations.popleft()
            reserved = self._reserved.get(workspace_id)
            if reserved is None or reserved[0] != at_ms:
                continue
            del self._reserved[workspace_id]
            known = self._context.registry.peek(WORKSPACE, workspace_id)
            self._index.put(known if known is not None else reserved[1])
