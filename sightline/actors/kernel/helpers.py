"""Slow work of an actor, done beside its turns; the outcome comes back as a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import trio

from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.supervision import judge
from sightline.actors.kernel.waitfor import turn_of
from sightline.domain.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sightline.actors.kernel.cell import Cell
    from sightline.actors.kernel.mailbox import Lane


@final
class Helpers:
    """The helpers of one actor since its last load.

    An outcome belongs to the memory that asked for it: a set that was cancelled delivers nothing any more, not even
    what waits in the mailbox already. Only an outcome whose own turn failed is handled again, first after the load.
    """

    __slots__ = ("_cell", "_scopes")

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._scopes: dict[trio.CancelScope, None] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    def spawn(
        self,
        work: Callable[[], Awaitable[Any]],
        on_value: Callable[[Any], Any],
        on_error: Callable[[Exception], Any],
        lane: Lane,
    ) -> None:
        """Start one; see `Context.spawn`."""
        cell = self._cell
        if len(self._scopes) >= cell.kind.options.helpers_max:
            message = f"{cell.ref} has {len(self._scopes)} helpers under way"
            raise InvariantError(message)
        scope = trio.CancelScope()
        self._scopes[scope] = None
        cell.kind.registry.start_helper(self._help, scope, work, on_value, on_error, lane)

    def cancel(self) -> None:
        """End all of them; none of them sends a message after this."""
        scopes, self._scopes = self._scopes, {}
        for scope in scopes:
            scope.cancel()

    async def _help(
        self,
        scope: trio.CancelScope,
        work: Callable[[], Awaitable[Any]],
        on_value: Callable[[Any], Any],
        on_error: Callable[[Exception], Any],
        lane: Lane,
    ) -> None:
        turn_of.set(None)
        message: Any = None
        failure: BaseExceptionGroup[BaseException] | None = None
        try:
            with scope:
                message = on_value(await work())
        except* Exception as group:  # noqa: BLE001  the error goes to the actor as a message
            failure = group
        finally:
            wanted = scope in self._scopes
            self._scopes.pop(scope, None)
        if failure is not None:
            message = on_error(judge(failure)[1])
        if wanted and message is not None and not scope.cancelled_caught:
            envelope = Envelope(message, self._cell.kind.now())
            envelope.origin = self
            self._cell.admit(envelope, lane, always=True)
