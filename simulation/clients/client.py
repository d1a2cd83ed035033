"""A simulated caller: sends commands through the broker and repeats them with one key until the outcome is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

import trio

from sightline.actors.types import Answer, Caller
from sightline.domain.errors import OutcomeUnknownError, RefusedError, SightlineError, UnavailableError
from sightline.domain.session.messages import Party
from sightline.domain.session.status import SessionStatus
from sightline.ports.store import IdempotencyKey
from simulation.history import CallReply

if TYPE_CHECKING:
    from sightline.actors.service.broker import Broker
    from sightline.actors.types import NewSession
    from simulation.world import World

TRIES: Final = 12
PAUSE_S: Final = 0.3

T = TypeVar("T")

Command: TypeAlias = "Callable[[Broker, Caller], Awaitable[Answer[object]]]"


@final
class Client:
    """A caller with one credential."""

    def __init__(self, world: World, name: str, workspace_id: str = "") -> None:
        self._world = world
        self._rng = world.rng(f"client/{name}")
        self.name = name
        self.workspace_id = workspace_id

    async def create(self, new: NewSession) -> CallReply:
        """Create a session."""
        return await self._command("create", None, lambda broker, caller: broker.create_session(caller, new))

    async def dispatch(self, session_id: str) -> CallReply:
        """Dispatch an operator to a session."""
        return await self._command("dispatch", session_id, lambda broker, caller: broker.dispatch(session_id, caller))

    async def accept(self, session_id: str) -> CallReply:
        """Accept a requested session."""
        own = self.workspace_id
        return await self._command("accept", session_id, lambda broker, caller: broker.accept(session_id, caller, own))

    async def start(self, session_id: str) -> CallReply:
        """Start a session."""
        return await self._command("start", session_id, lambda broker, caller: broker.start(session_id, caller))

    async def decline(self, session_id: str) -> CallReply:
        """Decline an assigned session."""
        return await self._command("decline", session_id, lambda broker, caller: broker.decline(session_id, caller))

    async def end(self, session_id: str) -> CallReply:
        """End a session."""
        sides = frozenset(Party)
        return await self._command("end", session_id, lambda broker, caller: broker.end(session_id, caller, sides))

    async def cancel(self, session_id: str) -> CallReply:
        """Cancel a requested session."""
        return await self._command("cancel", session_id, lambda broker, caller: broker.cancel(session_id, caller))

    async def cancel_all(self) -> CallReply:
        """Cancel all assignments."""
        return await self._command("cancel-all", None, lambda broker, caller: broker.cancel_all(caller))

    async def read(self, act: Callable[[Broker], Awaitable[T]]) -> T | None:
        """Read; None if the read fails now."""
        try:
            return await self._world.call(f"a read by {self.name}", act)
        except SightlineError:
            return None

    async def _command(self, what: str, session_id: str | None, act: Command) -> CallReply:
        key = IdempotencyKey(
            workspace_id=self.workspace_id,
            method="POST",
            path=f"/{what}/{session_id}",
            key=self._world.ids.uuid(),
            body_hash="same",
        )
        caller = Caller(workspace_id=self.workspace_id, idempotency=key)
        was_unknown = False
        for attempt in range(TRIES):
            try:
                answer = await self._world.call(f"{what} by {self.name}", lambda broker: act(broker, caller))
                return self._tell(what, session_id, key.key, "ok", answer.value, None, was_unknown)
            except RefusedError as error:
                if error.refusal.detail != "idempotency:inProgress":
                    detail = error.refusal.detail or error.refusal.code.value
                    return self._tell(what, session_id, key.key, "refused", None, detail, was_unknown)
            except OutcomeUnknownError:
                was_unknown = True
            except UnavailableError:
                pass
            await trio.sleep(PAUSE_S * (1 + self._rng.random()) * 1.6**attempt)
        return self._tell(what, session_id, key.key, "gave up", None, None, was_unknown)

    def _tell(
        self,
        what: str,
        session_id: str | None,
        key: str,
        outcome: str,
        value: object,
        detail: str | None,
        was_unknown: bool,
    ) -> CallReply:
        if session_id is None and isinstance(value, SessionStatus):
            session_id = value.terms.id
        reply = CallReply(
            who=self.name,
            what=what,
            session_id=session_id,
            key=key,
            outcome=outcome,
            value=value,
            detail=detail,
            was_unknown=was_unknown,
        )
        self._world.history.replied(reply)
        return reply
