"""Invitations: a wallet becomes a member of a workspace only after it has accepted (ADR 0182).

Until then no edge of the authorization graph exists, so an invited wallet has no role anywhere. An invitation is valid
while its inviter is an OWNER: a removed OWNER cannot come back by an invitation that it has sent to another wallet.

A wallet is shown its 20 oldest open invitations, so new ones do not displace one that was there before. An invitation
beyond them is read and accepted by its id, which the OWNER gets and passes on: refusing it instead would let strangers
keep others from inviting a wallet.
"""

from collections.abc import Callable, Sequence
from typing import Final, final

from sightline.domain.access import Role
from sightline.domain.addresses import parse_address, shown_address
from sightline.domain.errors import RefusedError, UnavailableError
from sightline.domain.refusal import Refusal
from sightline.domain.units import DAY_MS
from sightline.identity import refusals
from sightline.identity.members import Members, parse_member
from sightline.ports.clock import Clock
from sightline.ports.identity import (
    FindWorkspaces,
    Invitation,
    InvitationLimits,
    InvitationStore,
    Member,
    Membership,
    NotInvited,
    ReceivedInvitation,
)
from sightline.ports.ids import Ids
from sightline.ports.relations import PreconditionFailedError, Relations, TupleUpdate, member_edge

LIFETIME_MS: Final = 7 * DAY_MS
SHOWN_MAX: Final = 20
"""Open invitations that a wallet is shown."""
_REFUSALS: Final[dict[NotInvited, Refusal]] = {
    NotInvited.WORKSPACE_LIMIT: refusals.INVITATION_LIMIT,
    NotInvited.INVITER_LIMIT: refusals.INVITER_LIMIT,
    NotInvited.DECLINED: refusals.INVITATION_DECLINED,
}


@final
class Invitations:
    """Invites wallets, and removes members and invitations. Every method may raise AuthzUnavailableError."""

    def __init__(
        self,
        store: InvitationStore,
        members: Members,
        relations: Relations,
        find_workspaces: FindWorkspaces,
        clock: Clock,
        ids: Ids,
        *,
        is_suspended: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_suspended` answers whether a workspace is suspended: its invitations are not shown."""
        self._store = store
        self._members = members
        self._relations = relations
        self._find_workspaces = find_workspaces
        self._clock = clock
        self._ids = ids
        self._is_suspended = is_suspended

    async def members_of(self, workspace_id: str) -> tuple[Member, ...]:
        """List members, owners first, then invited wallets."""
        members = await self._members.members_of(workspace_id)
        known = {member.wallet_address for member in members}
        invitations = await self._store.open_in(workspace_id, now_ms=self._clock.now_ms())
        return (*members, *(_invited(each) for each in invitations if each.wallet_address not in known))

    async def invite(self, workspace_id: str, address: str, role: str, *, invited_by: str) -> Member:
        """Invite a wallet; a member gets the role at once. An open invitation with another role is replaced.

        Raises:
            RefusedError: INVALID_INPUT; INVALID_STATE if the workspace would have no OWNER; CONFLICT if a limit is
                reached, or the wallet has declined lately.
        """
        shown, wanted = parse_member(address, role)
        if await self._members.role_of(workspace_id, shown) is not None:
            member = await self._members.set_role(workspace_id, shown, role)
            if wanted is not Role.OWNER:
                await self._store.withdraw_of(workspace_id, shown, now_ms=self._clock.now_ms())
            return member
        now_ms = self._clock.now_ms()
        invitation = Invitation(
            id=self._ids.uuid(),
            workspace_id=workspace_id,
            wallet_address=shown,
            role=wanted,
            invited_by=shown_address(invited_by),
            created_at_ms=now_ms,
            expires_at_ms=now_ms + LIFETIME_MS,
        )
        stored = await self._store.invite(invitation, InvitationLimits())
        if isinstance(stored, NotInvited):
            raise RefusedError(_REFUSALS[stored])
        return _invited(stored)

    async def remove(self, workspace_id: str, address: str) -> Member:
        """Withdraw an invitation, or remove a member.

        Returns:
            The member as it was.

        Raises:
            RefusedError: INVALID_INPUT; NOT_FOUND if the wallet is neither invited nor a member; INVALID_STATE for the
                last OWNER.
        """
        shown = parse_address(address)
        if shown is None:
            raise RefusedError(refusals.BAD_ADDRESS)
        withdrawn = await self._store.withdraw(workspace_id, shown, now_ms=self._clock.now_ms())
        if withdrawn is not None and await self._members.role_of(workspace_id, shown) is None:
            await self._members.record(workspace_id, shown, None)
            return _invited(withdrawn)
        removed = await self._members.remove(workspace_id, shown)
        await self._store.withdraw_of(workspace_id, shown, now_ms=self._clock.now_ms())
        return removed

    async def received(self, address: str) -> tuple[ReceivedInvitation, ...]:
        """List the open invitations of a wallet, oldest first: at most 20."""
        found = await self._store.open_for(address, now_ms=self._clock.now_ms(), limit=SHOWN_MAX)
        return await self._with_workspaces(found)

    async def received_invitation(self, address: str, invitation_id: str) -> ReceivedInvitation:
        """Find an open invitation of a wallet, also one that `received` does not list.

        Raises:
            RefusedError: NOT_FOUND.
        """
        invitation = await self._store.open_invitation(invitation_id, address, now_ms=self._clock.now_ms())
        received = await self._with_workspaces(() if invitation is None else (invitation,))
        if not received:
            raise RefusedError(refusals.UNKNOWN_INVITATION)
        return received[0]

    async def accept(self, address: str, invitation_id: str) -> Membership:
        """Make the wallet a member. A repeated call answers with the membership, while the wallet is a member.

        Raises:
            RefusedError: NOT_FOUND if there is no such invitation, also if its inviter is no OWNER any more.
        """
        if (earlier := await self._membership_by(invitation_id, address)) is not None:
            return earlier
        received = await self.received_invitation(address, invitation_id)
        invitation = received.invitation
        workspace_id = invitation.workspace_id
        try:
            accepted = await self._accepted(invitation)
        except PreconditionFailedError:
            accepted = None
        if accepted is None:
            if (at_once := await self._membership_by(invitation_id, address)) is not None:
                return at_once
            raise RefusedError(refusals.UNKNOWN_INVITATION)
        await self._members.record(workspace_id, invitation.wallet_address, invitation.role)
        return Membership(received.workspace, invitation.role)

    async def decline(self, address: str, invitation_id: str) -> ReceivedInvitation:
        """End an invitation; its workspace and its inviter cannot invite this wallet again for 24 hours.

        Raises:
            RefusedError: NOT_FOUND.
        """
        received = await self.received_invitation(address, invitation_id)
        if await self._store.decline(invitation_id, address, now_ms=self._clock.now_ms()) is None:
            raise RefusedError(refusals.UNKNOWN_INVITATION)
        await self._members.record(received.workspace.id, received.invitation.wallet_address, None)
        return received

    async def _membership_by(self, invitation_id: str, address: str) -> Membership | None:
        """The membership that this wallet has because it accepted the invitation, with its present role."""
        accepted = await self._store.accepted_invitation(invitation_id, address)
        if accepted is None:
            return None
        role = await self._members.role_of(accepted.workspace_id, address)
        received = await self._with_workspaces((accepted,))
        return None if role is None or not received else Membership(received[0].workspace, role)

    async def _accepted(self, invitation: Invitation) -> Invitation | None:
        """End the invitation and add the member's edge, while the edge of the inviter exists."""
        workspace_id, address = invitation.workspace_id, invitation.wallet_address
        update = TupleUpdate(member_edge(workspace_id, address, invitation.role))
        inviter = member_edge(workspace_id, invitation.invited_by, Role.OWNER)
        now_ms = self._clock.now_ms()
        if not self._relations.is_external:
            return await self._store.accept(invitation.id, address, now_ms=now_ms, updates=[update], requires=[inviter])
        # With an external graph the row ends first, so that of two acceptances one writes the edge. A crash in between
        # uses the invitation up.
        accepted = await self._store.accept(invitation.id, address, now_ms=now_ms)
        if accepted is not None:
            try:
                await self._relations.write([update], requires=[inviter])
            except UnavailableError:
                await self._store.reopen(invitation.id)
                raise
        return accepted

    async def _with_workspaces(self, invitations: Sequence[Invitation]) -> tuple[ReceivedInvitation, ...]:
        """Add the workspaces; leaves out those that are deleted or suspended."""
        wanted = tuple({each.workspace_id for each in invitations if not self._is_suspended(each.workspace_id)})
        found = {each.id: each for each in (await self._find_workspaces(wanted) if wanted else ())}
        return tuple(
            ReceivedInvitation(invitation=each, workspace=found[each.workspace_id])
            for each in invitations
            if each.workspace_id in found
        )


def _invited(invitation: Invitation) -> Member:
    return Member(
        workspace_id=invitation.workspace_id,
        wallet_address=invitation.wallet_address,
        role=invitation.role,
        invitation=invitation,
    )
