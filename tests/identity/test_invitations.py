"""Nobody becomes a member without its consent, and nobody comes back by an invitation of its own."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio

from sightline.domain.access import Role
from sightline.domain.errors import AuthzUnavailableError, RefusedError
from sightline.identity import refusals
from sightline.identity.invitations import LIFETIME_MS, SHOWN_MAX, Invitations
from sightline.identity.members import Members
from sightline.ports.identity import Withdrawal
from sightline.ports.relations import RelationTuple, TupleUpdate
from simulation.memory.invitations import MemoryInvitations
from tests.identity.test_keys_and_members import refusal_of
from tests.identity.world import World, a_workspace

OWNER, GUEST, OTHER = 1, 2, 3


@pytest.fixture
def owner(world: World) -> str:
    return world.wallet(OWNER).address


@pytest.fixture
def guest(world: World) -> str:
    return world.wallet(GUEST).address


async def invite(world: World, workspace_id: str, guest: str, owner: str, role: str = "ADMIN") -> str:
    invited = await world.invitations.invite(workspace_id, guest, role, invited_by=owner)
    assert invited.invitation is not None
    return invited.invitation.id


async def test_an_invited_wallet_has_no_role_until_it_accepts(world: World, owner: str, guest: str) -> None:
    workspace_id = await world.workspace(owner)
    invitation_id = await invite(world, workspace_id, guest, owner)
    assert await world.members.role_of(workspace_id, guest) is None
    assert await world.members.memberships_of(guest) == ()
    listed = await world.invitations.members_of(workspace_id)
    assert [(each.wallet_address, each.invitation is None) for each in listed] == [(owner, True), (guest, False)]
    (received,) = await world.invitations.received(guest)
    assert (received.workspace.id, received.invitation.role, received.invitation.invited_by) == (
        workspace_id, Role.ADMIN, owner,
    )  # fmt: skip
    assert (await world.invitations.accept(guest, invitation_id)).role is Role.ADMIN
    assert await world.members.role_of(workspace_id, guest) is Role.ADMIN
    assert await world.invitations.received(guest) == ()
    assert [each.invitation for each in await world.invitations.members_of(workspace_id)] == [None, None]


async def test_a_repeated_acceptance_answers_with_the_membership_while_the_wallet_is_a_member(
    world: World, owner: str, guest: str
) -> None:
    workspace_id = await world.workspace(owner)
    invitation_id = await invite(world, workspace_id, guest, owner)
    first = await world.invitations.accept(guest, invitation_id)
    assert await world.invitations.accept(guest, invitation_id) == first
    await world.invitations.remove(workspace_id, guest)
    assert await refusal_of(world.invitations.accept(guest, invitation_id)) == refusals.UNKNOWN_INVITATION


async def test_an_invitation_can_neither_be_accepted_by_another_nor_after_its_end(
    world: World, owner: str, guest: str
) -> None:
    workspace_id = await world.workspace(owner)
    invitation_id = await invite(world, workspace_id, guest, owner)
    stranger = world.wallet(OTHER).address
    for wallet, wait_ms in ((stranger, 0), (guest, LIFETIME_MS)):
        world.clock.at_ms += wait_ms
        assert await refusal_of(world.invitations.accept(wallet, invitation_id)) == refusals.UNKNOWN_INVITATION
        assert await refusal_of(world.invitations.decline(wallet, invitation_id)) == refusals.UNKNOWN_INVITATION
    withdrawn = await invite(world, workspace_id, guest, owner)
    assert (await world.invitations.remove(workspace_id, guest)).invitation is not None
    assert await refusal_of(world.invitations.accept(guest, withdrawn)) == refusals.UNKNOWN_INVITATION
    assert await refusal_of(world.invitations.remove(workspace_id, guest)) == refusals.UNKNOWN_MEMBER


async def test_an_owner_who_is_removed_or_demoted_cannot_come_back_by_its_own_invitation(
    world: World, owner: str, guest: str
) -> None:
    workspace_id, second = await world.workspace(owner), world.wallet(OTHER).address
    for end in ("removed", "demoted"):
        await world.joins(workspace_id, owner, guest, "OWNER")
        invitation_id = await invite(world, workspace_id, second, guest, "OWNER")
        if end == "removed":
            await world.invitations.remove(workspace_id, guest)
        else:
            await world.invitations.invite(workspace_id, guest, "VIEWER", invited_by=owner)
        assert await refusal_of(world.invitations.accept(second, invitation_id)) == refusals.UNKNOWN_INVITATION, end


async def test_an_invitation_that_a_restore_brings_back_is_void_when_its_inviter_was_removed(
    world: World, owner: str, guest: str
) -> None:
    workspace_id, second = await world.workspace(owner), world.wallet(OTHER).address
    await world.joins(workspace_id, owner, guest, "OWNER")
    invitation_id = await invite(world, workspace_id, second, guest, "OWNER")
    await world.members.remove(workspace_id, guest)  # as the file of withdrawals does, without its invitations
    assert await refusal_of(world.invitations.accept(second, invitation_id)) == refusals.UNKNOWN_INVITATION


async def test_a_member_gets_another_role_at_once(world: World, owner: str, guest: str) -> None:
    workspace_id = await world.workspace(owner)
    await world.joins(workspace_id, owner, guest, "VIEWER")
    changed = await world.invitations.invite(workspace_id, guest, "OWNER", invited_by=owner)
    assert (changed.role, changed.invitation) == (Role.OWNER, None)
    assert await world.members.role_of(workspace_id, guest) is Role.OWNER


async def test_a_role_is_never_given_to_who_is_no_member(world: World, owner: str, guest: str) -> None:
    workspace_id = await world.workspace(owner)
    assert await refusal_of(world.members.set_role(workspace_id, guest, "OWNER")) == refusals.UNKNOWN_MEMBER
    assert await world.members.role_of(workspace_id, guest) is None


async def test_a_flood_of_invitations_displaces_no_earlier_one_and_a_later_one_is_found_by_its_id(
    world: World, owner: str, guest: str
) -> None:
    before = await world.workspace(owner, "before")
    first = await invite(world, before, guest, owner)
    for number in range(10, 10 + SHOWN_MAX + 30):
        attacker = world.wallet(number).address
        world.clock.at_ms += 1
        await invite(world, await world.workspace(attacker, f"flood-{number}"), guest, attacker)
    world.clock.at_ms += 1
    late = await invite(world, await world.workspace(owner, "late"), guest, owner)
    listed = [each.invitation.id for each in await world.invitations.received(guest)]
    assert len(listed) == SHOWN_MAX
    assert listed[0] == first
    assert late not in listed
    assert (await world.invitations.received_invitation(guest, late)).workspace.slug == "late"
    assert (await world.invitations.accept(guest, late)).workspace.slug == "late"


async def test_who_declines_is_left_alone_by_that_inviter(world: World, owner: str, guest: str) -> None:
    workspace_id = await world.workspace(owner)
    await world.invitations.decline(guest, await invite(world, workspace_id, guest, owner))
    assert await world.invitations.received(guest) == ()
    again = world.invitations.invite(workspace_id, guest, "VIEWER", invited_by=owner)
    assert await refusal_of(again) == refusals.INVITATION_DECLINED


async def test_invitations_of_suspended_and_deleted_workspaces_are_not_shown(
    world: World, owner: str, guest: str
) -> None:
    workspace_id, gone = await world.workspace(owner, "bad"), await world.workspace(owner, "gone")
    invitations = Invitations(
        MemoryInvitations(world.relations),
        world.members,
        world.relations,
        world.directory.by_ids,
        world.clock,
        world.ids,
        is_suspended=lambda each: each == workspace_id,
    )
    for each in (workspace_id, gone):
        invited = await invitations.invite(each, guest, "ADMIN", invited_by=owner)
        del world.directory.workspaces[gone]
        assert invited.invitation is not None
        assert await refusal_of(invitations.accept(guest, invited.invitation.id)) == refusals.UNKNOWN_INVITATION
        world.directory.workspaces[gone] = a_workspace(gone, "gone", owner)
    assert [each.workspace.slug for each in await invitations.received(guest)] == ["gone"]


async def test_acceptance_and_withdrawal_are_recorded_for_a_restore(world: World, owner: str, guest: str) -> None:
    recorded: list[str] = []

    async def record(withdrawal: Withdrawal) -> None:
        assert (withdrawal.workspace_id, withdrawal.subject) == (workspace_id, guest.lower())
        recorded.append(withdrawal.state)

    workspace_id = await world.workspace(owner)
    members = Members(world.relations, world.directory.by_ids, world.clock, record=record)
    world.invitations = Invitations(
        MemoryInvitations(world.relations), members, world.relations, world.directory.by_ids, world.clock, world.ids
    )
    await invite(world, workspace_id, guest, owner)
    assert recorded == []
    await world.invitations.remove(workspace_id, guest)
    assert recorded == [""]
    await world.joins(workspace_id, owner, guest, "ADMIN")
    assert recorded == ["", "ADMIN"]


class ApartRelations:
    """An external graph: the one in memory, that can be unavailable."""

    def __init__(self, world: World) -> None:
        self.graph = world.relations
        self.is_down = False
        self.writes = 0

    @property
    def is_external(self) -> bool:
        return True

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        if self.is_down:
            raise AuthzUnavailableError
        self.writes += 1
        return await self.graph.write(updates, requires=requires)

    def __getattr__(self, name: str) -> object:
        return getattr(self.graph, name)


async def test_with_an_external_graph_an_acceptance_that_failed_can_be_repeated_and_many_at_once_write_one_edge(
    world: World, owner: str, guest: str
) -> None:
    apart = ApartRelations(world)
    world.invitations = Invitations(
        MemoryInvitations(world.relations), world.members, apart, world.directory.by_ids, world.clock, world.ids
    )
    workspace_id = await world.workspace(owner)
    invitation_id = await invite(world, workspace_id, guest, owner)
    apart.is_down = True
    with pytest.raises(AuthzUnavailableError):
        await world.invitations.accept(guest, invitation_id)
    assert await world.members.role_of(workspace_id, guest) is None
    apart.is_down = False

    async def accept() -> None:
        with suppress(RefusedError):  # of those that find the row ended before the edge is written
            assert (await world.invitations.accept(guest, invitation_id)).role is Role.ADMIN

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(accept)
    assert apart.writes == 1
    assert (await world.invitations.accept(guest, invitation_id)).role is Role.ADMIN
    assert await world.members.role_of(workspace_id, guest) is Role.ADMIN
    await world.joins(workspace_id, owner, world.wallet(OTHER).address, "OWNER")
