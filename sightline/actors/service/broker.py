"""The broker: what callers of the actors use. Holds no state; every answer comes from an actor, from what an actor has
published, or from one indexed query."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, final

from sightline.actors.deps import COMMAND_TIMEOUT_S, SESSION, WORKSPACE, Deps
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import (
    AcceptSession,
    CancelSession,
    CreateSession,
    CreateWorkspace,
    DispatchSession,
    EndSession,
    GetWorkspace,
    PatchWorkspace,
    ReportHeartbeat,
    ReportHeartbeats,
    StartSession,
)
from sightline.actors.refusals import NOT_PARTY
from sightline.actors.service.idempotency import Replays
from sightline.actors.service.live_updates import LiveUpdates
from sightline.actors.service.look_up import LookUp
from sightline.actors.service.pricing import Pricing
from sightline.actors.service.reads import Reads
from sightline.actors.types import Answer, Caller, HeartbeatReport, NewSession, NewWorkspace
from sightline.actors.workspace.cancel_assignments import assignments_to_drop, drop_assignment
from sightline.actors.workspace.reports import record_of
from sightline.domain.errors import RefusedError, SightlineError
from sightline.domain.operator.machine import Patch
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.messages import Party
from sightline.domain.session.model import Terms
from sightline.domain.units import MicroUsdc
from sightline.ports.store import IdempotencyKey

CREATE_TIMEOUT_S: Final = 10.0
RELEASE_TIMEOUT_S: Final = 2.0

NOT_CONSUMER: Final = Refusal(Code.NOT_AUTHORIZED, "session:notConsumer", "The workspace is not a CONSUMER")


@final
class Broker:
    """What Sightline does for its callers: their commands itself, all else by its parts.

    Attributes:
        reads: Sessions and workspaces as they now stand.
        pricing: What a point costs.
        updates: What changes, as it changes.
    """

    def __init__(self, registry: Registry, deps: Deps) -> None:
        self._registry = registry
        self._deps = deps
        self._replays = Replays(deps.store, deps.relations)
        self._look_up = LookUp(registry, deps)
        self.reads = Reads(registry, deps, self._look_up)
        self.pricing = Pricing(registry, deps)
        self.updates = LiveUpdates(deps.watchers, self._look_up, self.reads)

    # Sessions.

    async def create_session(self, caller: Caller, new: NewSession) -> Answer:
        """Create a session at the quoted rate, or at the spot rate."""
        workspace = await self._look_up.require_workspace(caller.workspace_id)
        if not workspace.is_consumer:
            raise RefusedError(NOT_CONSUMER)

        async def create() -> Answer:
            rate = await self.pricing.rate_for(caller.workspace_id, new)
            hold = MicroUsdc(rate * new.max_duration_s)
            terms = Terms(
                id=self._deps.ids.uuid(),
                consumer_workspace_id=caller.workspace_id,
                payer_address=workspace.wallet_address,
                lat=new.lat,
                lng=new.lng,
                radius_m=new.radius_m,
                max_duration_s=new.max_duration_s,
                wait_timeout_s=new.wait_timeout_s,
                rate=rate,
                hold=hold,
                platform_fee_bps=self._deps.limits.platform_fee_bps,
                quote_id=new.quote_id,
                instructions=new.instructions,
                metadata_json=new.metadata_json,
                created_at_ms=self._now(),
            )
            is_enforced = self._deps.limits.funds_policy == "enforced"
            return await self._ask_session(terms.id, CreateSession(terms, caller, is_enforced))

        return await self._once(caller, create)

    async def dispatch(self, session_id: str, caller: Caller) -> Answer:
        """Assign the longest-idle operator."""

        async def dispatch() -> Answer:
            await self._look_up.require_session(session_id)
            workspace = await self._look_up.require_workspace(caller.workspace_id)
            if not workspace.is_consumer:
                raise RefusedError(NOT_CONSUMER)
            return await self._ask_session(session_id, DispatchSession(caller))

        return await self._once(caller, dispatch)

    async def accept(self, session_id: str, caller: Caller, operator_workspace_id: str) -> Answer:
        """Assign the caller's own workspace."""

        async def accept() -> Answer:
            await self._look_up.require_session(session_id)
            if operator_workspace_id != caller.workspace_id:
                raise RefusedError(NOT_PARTY)
            await self._look_up.require_operator(caller.workspace_id)
            return await self._ask_session(session_id, AcceptSession(caller))

        return await self._once(caller, accept)

    async def start(self, session_id: str, caller: Caller) -> Answer:
        """Go live."""

        async def start() -> Answer:
            await self._look_up.require_session(session_id)
            await self._look_up.require_operator(caller.workspace_id)
            return await self._ask_session(session_id, StartSession(caller))

        return await self._once(caller, start)

    async def end(self, session_id: str, caller: Caller, sides: frozenset[Party]) -> Answer:
        """Hang up, for one of the sides that the credential may speak for."""

        async def end() -> Answer:
            answer = await self._ask_session(session_id, EndSession(caller, sides))
            await self._await_release(answer.data["operatorWorkspaceId"])
            return answer

        return await self._once(caller, end)

    async def cancel(self, session_id: str, caller: Caller) -> Answer:
        """Withdraw a request."""
        return await self._once(caller, lambda: self._ask_session(session_id, CancelSession(caller)))

    async def cancel_all(self, caller: Caller) -> Answer:
        """Drop every assignment of the caller's workspace."""

        async def cancel_all() -> Answer:
            await self._look_up.require_operator(caller.workspace_id)
            wanted = await assignments_to_drop(self._deps, caller)
            dropped = [
                session_id
                for session_id in wanted
                if await drop_assignment(self._registry, self._deps, session_id, caller)
            ]
            await self._await_release(caller.workspace_id)
            answer = Answer({"count": len(dropped), "cancelled": dropped}, self._now())
            if caller.idempotency is not None:
                await self._deps.store.record_idempotent(record_of(caller.idempotency, answer))
            return answer

        return await self._once(caller, cancel_all)

    # Workspaces.

    async def create_workspace(self, new: NewWorkspace, idempotency: IdempotencyKey | None = None) -> Answer:
        """Create a workspace; its wallet becomes the OWNER."""
        workspace_id = self._deps.ids.uuid()
        caller = Caller(workspace_id=workspace_id, idempotency=idempotency)
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def create() -> Answer:
            answer: Answer = await workspace.ask(CreateWorkspace(new, caller), timeout_s=CREATE_TIMEOUT_S)
            return answer

        return await self._once(caller, create)

    async def patch_workspace(self, workspace_id: str, caller: Caller, patch: Patch) -> Answer:
        """Change a workspace."""
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def change() -> Answer:
            answer: Answer = await workspace.ask(PatchWorkspace(patch, caller), timeout_s=COMMAND_TIMEOUT_S)
            return answer

        return await self._once(caller, change)

    async def heartbeat(self, workspace_id: str, report: HeartbeatReport, key: IdempotencyKey | None = None) -> Answer:
        """Take one heartbeat; it is durable when this returns, and with it the answer, if the call has a key."""
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def take() -> Answer:
            answer: Answer = await workspace.ask(
                ReportHeartbeat(report, key), timeout_s=self._deps.limits.ask_timeout_s, conflate_key="heartbeat"
            )
            return answer

        return await take() if key is None else await self._replays.once(key, take)

    async def heartbeats(
        self, workspace_id: str, reports: Sequence[HeartbeatReport], key: IdempotencyKey | None = None
    ) -> Answer:
        """Take several heartbeats in order; those that were accepted are durable when this returns."""
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def take() -> Answer:
            answer: Answer = await workspace.ask(
                ReportHeartbeats(tuple(reports), key), timeout_s=self._deps.limits.ask_timeout_s
            )
            return answer

        return await take() if key is None else await self._replays.once(key, take)

    # Helpers.

    def _now(self) -> int:
        return self._deps.clock.now_ms()

    async def _once(self, caller: Caller, act: Callable[[], Awaitable[Answer]]) -> Answer:
        if caller.idempotency is None:
            return await act()
        return await self._replays.once(caller.idempotency, act)

    async def _ask_session(self, session_id: str, command: Any) -> Answer:
        answer: Answer = await self._registry.ref(SESSION, session_id).ask(command, timeout_s=COMMAND_TIMEOUT_S)
        return answer

    async def _await_release(self, workspace_id: str) -> None:
        """Let the operator's workspace take in what its session has just told it, so that a reader sees it free."""
        with suppress(SightlineError):
            await self._registry.ref(WORKSPACE, workspace_id).ask(GetWorkspace(), timeout_s=RELEASE_TIMEOUT_S)
