"""Members of workspaces, stored as edges of the authorization graph only.

A wallet becomes a member by creating a workspace, or by accepting an invitation (`invitations`).

Every workspace keeps at least one OWNER. A change that removes an OWNER requires, when it is written, that another
OWNER's edge exists. If a concurrent change removed that edge, the decision is repeated with the new state of the graph.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

from sightline.domain.access import Role
from sightline.domain.addresses import parse_address, shown_address
from sightline.domain.errors import AuthzUnavailableError, RefusedError
from sightline.identity import refusals
from sightline.ports.clock import Clock
from sightline.ports.identity import (
    FindWorkspaces,
    Member,
    Membership,
    RecordWithdrawal,
    Withdrawal,
    WithdrawalKind,
    record_nothing,
)
from sightline.ports.relations import (
    ROLE_OF_RELATION,
    WORKSPACE,
    PreconditionFailedError,
    Relations,
    RelationTuple,
    TupleUpdate,
    member_edge,
    wallet_ref,
)

_ATTEMPTS_MAX: Final = 5
_POWER: Final = {role: power for power, role in enumerate(Role)}


@final
class Members:
    """Lists and removes members, and changes their roles."""

    def __init__(
        self,
        relations: Relations,
        find_workspaces: FindWorkspaces,
        clock: Clock | None = None,
        *,
        record: RecordWithdrawal = record_nothing,
    ) -> None:
        """Create the service. `record` needs a clock."""
        self._clock = clock
        self._record = record
        self._relations = relations
        self._find_workspaces = find_workspaces

    async def members_of(self, workspace_id: str) -> tuple[Member, ...]:
        """List members, owners first, then by address."""
        edges = await self._relations.read(resource_type=WORKSPACE, resource_id=workspace_id)
        roles = _strongest((edge.subject.id, ROLE_OF_RELATION[edge.relation]) for edge in _memberships(edges))
        members = (
            Member(workspace_id=workspace_id, wallet_address=shown_address(address), role=role)
            for address, role in roles.items()
        )
        return tuple(sorted(members, key=lambda each: (_POWER[each.role], each.wallet_address.lower())))

    async def role_of(self, workspace_id: str, address: str) -> Role | None:
        """Return the wallet's current role, or None."""
        roles = await self._roles_of(address, workspace_id)
        return roles.get(workspace_id)

    async def memberships_of(self, address: str) -> tuple[Membership, ...]:
        """List the workspaces that a wallet can access, by slug."""
        roles = await self._roles_of(address)
        workspaces = await self._find_workspaces(tuple(roles)) if roles else ()
        return tuple(Membership(each, roles[each.id]) for each in sorted(workspaces, key=lambda each: each.slug))

    async def set_role(self, workspace_id: str, address: str, role: str) -> Member:
        """Change the role of a member.

        Raises:
            RefusedError: INVALID_INPUT; NOT_FOUND if the wallet is not a member; INVALID_STATE if the workspace would
                have no OWNER.
            AuthzUnavailableError: The graph did not answer.
        """
        shown, wanted = parse_member(address, role)
        await self._change(workspace_id, shown, wanted)
        return Member(workspace_id=workspace_id, wallet_address=shown, role=wanted)

    async def remove(self, workspace_id: str, address: str) -> Member:
        """Remove a member. Sign-ins that selected this workspace last until their cookie expires.

        Returns:
            The member as it was.

        Raises:
            RefusedError: INVALID_INPUT; NOT_FOUND if the wallet is not a member; INVALID_STATE for the last OWNER.
            AuthzUnavailableError: The graph did not answer.
        """
        shown = parse_address(address)
        if shown is None:
            raise RefusedError(refusals.BAD_ADDRESS)
        role = await self._change(workspace_id, shown, None)
        return Member(workspace_id=workspace_id, wallet_address=shown, role=role)

    async def _change(self, workspace_id: str, address: str, wanted: Role | None) -> Role:
        """Set the role of a member to `wanted`, or remove it; returns the earlier role."""
        for _ in range(_ATTEMPTS_MAX):
            members = {member.wallet_address: member.role for member in await self.members_of(workspace_id)}
            before = members.get(address)
            if before is None:
                raise RefusedError(refusals.UNKNOWN_MEMBER)
            requires = _what_must_stand(workspace_id, members, address, wanted)
            updates = [TupleUpdate(member_edge(workspace_id, address, role), present=role is wanted) for role in Role]
            try:
                await self._relations.write(updates, requires=requires)
            except PreconditionFailedError:
                continue
            await self.record(workspace_id, address, wanted)
            return before
        raise AuthzUnavailableError("the members of this workspace are being changed concurrently; retry")

    async def record(self, workspace_id: str, address: str, role: Role | None) -> None:
        """Record, where a restore finds it, the role that the wallet has now; None: it is not a member."""
        if self._clock is not None:
            await self._record(
                Withdrawal(
                    kind=WithdrawalKind.MEMBER,
                    at_ms=self._clock.now_ms(),
                    workspace_id=workspace_id,
                    subject=address.lower(),
                    state="" if role is None else role.name,
                )
            )

    async def _roles_of(self, address: str, workspace_id: str | None = None) -> dict[str, Role]:
        """Return the wallet's role in this workspace, or in each of its workspaces."""
        edges = await self._relations.read(
            resource_type=WORKSPACE, resource_id=workspace_id, subject=wallet_ref(address)
        )
        return _strongest((edge.resource.id, ROLE_OF_RELATION[edge.relation]) for edge in _memberships(edges))


def parse_member(address: str, role: str) -> tuple[str, Role]:
    """Return the address in EIP-55 form, and the role. Raises RefusedError (INVALID_INPUT)."""
    shown, parsed = parse_address(address), Role.__members__.get(role)
    if shown is None:
        raise RefusedError(refusals.BAD_ADDRESS)
    if parsed is None:
        raise RefusedError(refusals.BAD_ROLE)
    return shown, parsed


def _what_must_stand(
    workspace_id: str, members: dict[str, Role], address: str, wanted: Role | None
) -> tuple[RelationTuple, ...]:
    """Return the edges that a change requires: the member's own, and another OWNER's if this wallet stops being one.

    The own edge keeps a member that was removed meanwhile from coming back without an invitation.
    """
    own = member_edge(workspace_id, address, members[address])
    if members[address] is not Role.OWNER or wanted is Role.OWNER:
        return (own,) if wanted is not None else ()
    others = [other for other, role in members.items() if role is Role.OWNER and other != address]
    if not others:
        raise RefusedError(refusals.LAST_OWNER)
    return (member_edge(workspace_id, others[0], Role.OWNER), own)


def _memberships(edges: Sequence[RelationTuple]) -> list[RelationTuple]:
    return [edge for edge in edges if edge.relation in ROLE_OF_RELATION]


def _strongest(pairs: Iterable[tuple[str, Role]]) -> dict[str, Role]:
    """Return the strongest of several roles."""
    found: dict[str, Role] = {}
    for name, role in pairs:
        if name not in found or _POWER[role] < _POWER[found[name]]:
            found[name] = role
    return found
