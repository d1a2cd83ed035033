"""The suspended workspaces, whose calls every server refuses."""

from collections.abc import Callable
from typing import Final, final

import trio

from sightline.ports.administration import AdminStore, Suspension
from sightline.ports.clock import Clock
from sightline.ports.identity import RecordWithdrawal, Withdrawal, WithdrawalKind

LOAD_EVERY_S: Final = 5.0
"""A suspension by another server takes effect after this."""


@final
class Suspensions:
    """Keeps the suspended workspaces in memory.

    A suspension takes effect at once on the server that was asked, and on each other server with its next `load`.
    Call `watch` for ever.
    """

    def __init__(self, store: AdminStore, clock: Clock, record: RecordWithdrawal) -> None:
        self._store = store
        self._clock = clock
        self._record = record
        self._suspended: dict[str, Suspension] = {}
        self.on_changed: Callable[[], None] = lambda: None
        """Called after this server has changed a suspension."""
        self._wake = trio.Event()
        self._changes = 0
        """Suspensions and their ends by this server."""

    async def load(self) -> None:
        """Read the suspensions. Call it before the first call is answered."""
        while True:
            changes = self._changes
            suspended = {each.workspace_id: each for each in await self._store.suspensions()}
            if changes == self._changes:  # otherwise what was read may be older than what this server did meanwhile
                self._suspended = suspended
                return

    async def watch(self) -> None:
        """Read the suspensions, then wait for LOAD_EVERY_S, or until `wake`."""
        self._wake = trio.Event()
        await self.load()
        with trio.move_on_after(LOAD_EVERY_S):
            await self._wake.wait()

    def wake(self) -> None:
        """Read the suspensions now, because another server has changed one."""
        self._wake.set()

    def is_suspended(self, workspace_id: str) -> bool:
        """Whether calls of the workspace are refused."""
        return workspace_id in self._suspended

    def of(self, workspace_id: str) -> Suspension | None:
        """The suspension of a workspace; None if it is not suspended."""
        return self._suspended.get(workspace_id)

    @property
    def workspace_ids(self) -> list[str]:
        """The suspended workspaces."""
        return list(self._suspended)

    async def add(self, suspension: Suspension) -> None:
        """Suspend a workspace; an earlier suspension stays as it is."""
        await self._store.suspend(suspension)
        await self._record(
            Withdrawal(
                kind=WithdrawalKind.SUSPENSION,
                at_ms=suspension.at_ms,
                workspace_id=suspension.workspace_id,
                state=suspension.reason or "suspended",
                actor=suspension.actor,
            )
        )
        self._changes += 1
        self._suspended.setdefault(suspension.workspace_id, suspension)
        self.on_changed()

    async def remove(self, workspace_id: str) -> bool:
        """End a suspension. False if there is none in the database."""
        was_suspended = await self._store.unsuspend(workspace_id)
        lifted_at_ms = self._clock.now_ms()
        await self._record(Withdrawal(kind=WithdrawalKind.SUSPENSION, at_ms=lifted_at_ms, workspace_id=workspace_id))
        self._changes += 1
        self._suspended.pop(workspace_id, None)
        self.on_changed()
        return was_suspended
