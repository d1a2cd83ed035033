"""Invitations in memory, for simulation and tests. They pass the same contract suite as the Postgres adapter."""

from collections.abc import Sequence
from typing import final

import trio

from sightline.domain.units import DAY_MS
from sightline.ports.identity import Invitation, InvitationEnd, InvitationLimits, NotInvited
from sightline.ports.relations import PreconditionFailedError, RelationTuple, TupleUpdate
from simulation.memory.identity import MemoryRelations


@final
class MemoryInvitations:
    """Stores invitations in a dictionary."""

    def __init__(self, relations: MemoryRelations) -> None:
        """Create an empty store that writes the edges of accepted invitations to `relations`."""
        self._relations = relations
        self._all: dict[str, Invitation] = {}
        self._ended: dict[str, tuple[InvitationEnd, int]] = {}

    async def invite(self, invitation: Invitation, limits: InvitationLimits) -> Invitation | NotInvited:
        """Store an invitation within the limits."""
        await trio.lowlevel.checkpoint()
        now_ms = invitation.created_at_ms
        (open_now,) = self._open_of(invitation.workspace_id, invitation.wallet_address, now_ms) or (None,)
        if open_now is not None and open_now.role is invitation.role:
            return open_now
        if self._has_declined(invitation, now_ms - limits.declined_ms):
            return NotInvited.DECLINED
        if open_now is None and len(self._open_of(invitation.workspace_id, None, now_ms)) >= limits.open_max:
            return NotInvited.WORKSPACE_LIMIT
        of_inviter = [each for each in self._all.values() if _same(each.invited_by, invitation.invited_by)]
        if sum(each.created_at_ms > now_ms - DAY_MS for each in of_inviter) >= limits.inviter_day_max:
            return NotInvited.INVITER_LIMIT
        if open_now is not None:
            self._ended[open_now.id] = (InvitationEnd.WITHDRAWN, now_ms)
        self._all[invitation.id] = invitation
        return invitation

    async def open_in(self, workspace_id: str, *, now_ms: int) -> tuple[Invitation, ...]:
        """List the open invitations of a workspace."""
        await trio.lowlevel.checkpoint()
        return self._open_of(workspace_id, None, now_ms)

    async def open_for(self, address: str, *, now_ms: int, limit: int) -> tuple[Invitation, ...]:
        """List the open invitations of a wallet."""
        await trio.lowlevel.checkpoint()
        return self._open_of(None, address, now_ms)[:limit]

    async def open_invitation(self, invitation_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """Find an open invitation."""
        await trio.lowlevel.checkpoint()
        found = self._open_of(None, address, now_ms)
        return next((each for each in found if each.id == invitation_id), None)

    async def accept(
        self, invitation_id: str, address: str, *, now_ms: int,
        updates: Sequence[TupleUpdate] = (), requires: Sequence[RelationTuple] = (),
    ) -> Invitation | None:  # fmt: skip
        """End an invitation and write edges."""
        invitation = await self.open_invitation(invitation_id, address, now_ms=now_ms)
        if invitation is None:
            return None
        if not self._relations.has_all(requires):
            raise PreconditionFailedError
        self._ended[invitation.id] = (InvitationEnd.ACCEPTED, now_ms)
        if updates:
            self._relations.apply(updates)
        return invitation

    async def accepted_invitation(self, invitation_id: str, address: str) -> Invitation | None:
        """Find an accepted invitation."""
        await trio.lowlevel.checkpoint()
        found = self._all.get(invitation_id)
        is_accepted = self._ended.get(invitation_id, (None, 0))[0] is InvitationEnd.ACCEPTED
        return found if found is not None and is_accepted and _same(found.wallet_address, address) else None

    async def reopen(self, invitation_id: str) -> None:
        """Open an accepted invitation again."""
        await trio.lowlevel.checkpoint()
        if self._ended.get(invitation_id, (None, 0))[0] is InvitationEnd.ACCEPTED:
            del self._ended[invitation_id]

    async def decline(self, invitation_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """End an invitation of a wallet."""
        invitation = await self.open_invitation(invitation_id, address, now_ms=now_ms)
        if invitation is not None:
            self._ended[invitation.id] = (InvitationEnd.DECLINED, now_ms)
        return invitation

    async def withdraw(self, workspace_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """End the invitation of a wallet to a workspace."""
        await trio.lowlevel.checkpoint()
        for invitation in self._open_of(workspace_id, address, now_ms):
            self._ended[invitation.id] = (InvitationEnd.WITHDRAWN, now_ms)
            return invitation
        return None

    async def withdraw_of(self, workspace_id: str, inviter: str, *, now_ms: int) -> None:
        """End the invitations of an inviter."""
        await trio.lowlevel.checkpoint()
        for invitation in self._open_of(workspace_id, None, now_ms):
            if _same(invitation.invited_by, inviter):
                self._ended[invitation.id] = (InvitationEnd.WITHDRAWN, now_ms)

    def _open_of(self, workspace_id: str | None, address: str | None, now_ms: int) -> tuple[Invitation, ...]:
        found = (
            each
            for each in self._all.values()
            if each.id not in self._ended
            and each.expires_at_ms > now_ms
            and workspace_id in {None, each.workspace_id}
            and (address is None or _same(each.wallet_address, address))
        )
        return tuple(sorted(found, key=lambda each: (each.created_at_ms, each.id)))

    def _has_declined(self, invitation: Invitation, after_ms: int) -> bool:
        for each in self._all.values():
            end, at_ms = self._ended.get(each.id, (None, 0))
            is_known = each.workspace_id == invitation.workspace_id or _same(each.invited_by, invitation.invited_by)
            is_recent = end is InvitationEnd.DECLINED and at_ms > after_ms
            if is_recent and is_known and _same(each.wallet_address, invitation.wallet_address):
                return True
        return False


def _same(address: str, other: str) -> bool:
    return address.lower() == other.lower()
