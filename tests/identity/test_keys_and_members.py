"""API keys and members of a workspace."""

from collections.abc import Awaitable
from typing import Any

import pytest
import trio

from sightline.domain.access import Role, Scope
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Refusal
from sightline.identity import refusals
from sightline.identity.key_codec import is_well_formed
from tests.identity.world import World

WORKSPACE = "9c2d41e7-1111-4111-8111-111111111111"


async def refusal_of(call: Awaitable[object]) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        await call
    return caught.value.refusal


def minting(world: World, **changes: object) -> Awaitable[Any]:
    request = {"created_by": "0xA", "label": "robot", "environment": "TEST", "scopes": ["sessions:read"]}
    return world.keys.mint(WORKSPACE, **(request | changes))


async def test_a_minted_key_is_shown_once_and_kept_as_a_digest(world: World) -> None:
    minted = await minting(world, label="  night watch ", scopes=["wallet:read", "sessions:read"])
    assert is_well_formed(minted.plaintext)
    assert minted.plaintext.startswith("svc_test_9c2d41_")
    record = minted.record
    assert (record.label, record.prefix) == ("night watch", "svc_test_9c2d41")
    assert record.scopes == {Scope.WALLET_READ, Scope.SESSIONS_READ}
    assert (record.created_at_ms, record.created_by_wallet) == (world.clock.at_ms, "0xA")
    assert (record.last_used_at_ms, record.revoked_at_ms, record.grace_ends_at_ms) == (None, None, None)
    assert minted.plaintext not in repr(vars(world.store))


@pytest.mark.parametrize("label", ["", "   ", "x" * 81])
async def test_a_label_has_1_to_80_characters(world: World, label: str) -> None:
    assert await refusal_of(minting(world, label=label)) == refusals.BAD_LABEL
    assert (await minting(world, label="x" * 80)).record.label == "x" * 80


@pytest.mark.parametrize("environment", ["LIVE", "test", "", "PROD"])
async def test_only_test_keys_are_minted(world: World, environment: str) -> None:
    assert await refusal_of(minting(world, environment=environment)) == refusals.BAD_ENVIRONMENT


@pytest.mark.parametrize(
    "scopes", [[], ["sessions:write"], ["wallet:read", "wallet:read"], ["wallet:read", ""], ["WALLET:READ"]]
)
async def test_scopes_are_different_names_of_the_table(world: World, scopes: list[str]) -> None:
    assert await refusal_of(minting(world, scopes=scopes)) == refusals.BAD_SCOPES


async def test_all_eight_scopes_may_be_given_planned_ones_too(world: World) -> None:
    minted = await minting(world, scopes=[scope.value for scope in Scope])
    assert minted.record.scopes == set(Scope)


async def test_the_51st_live_key_is_a_conflict_until_one_is_revoked(world: World) -> None:
    minted = [await minting(world) for _ in range(50)]
    assert await refusal_of(minting(world)) == refusals.KEY_LIMIT
    await world.keys.revoke(WORKSPACE, minted[0].record.key_id)
    assert await minting(world)


async def test_revoking_twice_answers_the_same(world: World) -> None:
    key_id = (await minting(world)).record.key_id
    first = await world.keys.revoke(WORKSPACE, key_id)
    assert first.revoked_at_ms == world.clock.at_ms
    assert first.grace_ends_at_ms == world.clock.at_ms + 60_000
    world.clock.at_ms += 30_000
    assert await world.keys.revoke(WORKSPACE, key_id) == first
    assert await world.keys.keys_in(WORKSPACE) == (first,)


async def test_a_key_of_another_workspace_is_not_found(world: World) -> None:
    key_id = (await minting(world)).record.key_id
    assert await refusal_of(world.keys.revoke(world.ids.uuid(), key_id)) == refusals.UNKNOWN_KEY


async def roles_in(world: World, workspace_id: str) -> list[tuple[str, Role]]:
    return [(each.wallet_address, each.role) for each in await world.members.members_of(workspace_id)]


async def test_members_come_and_change_and_go(world: World) -> None:
    owner, guest = world.wallet(1).address, world.wallet(2).address
    workspace_id = await world.workspace(owner)
    await world.joins(workspace_id, owner, guest.lower(), "VIEWER")
    assert await roles_in(world, workspace_id) == [(owner, Role.OWNER), (guest, Role.VIEWER)]
    await world.invitations.invite(workspace_id, guest, "ADMIN", invited_by=owner)
    assert await world.members.role_of(workspace_id, guest) is Role.ADMIN
    assert await roles_in(world, workspace_id) == [(owner, Role.OWNER), (guest, Role.ADMIN)]
    removed = await world.members.remove(workspace_id, guest.upper().replace("0X", "0x"))
    assert removed.role is Role.ADMIN
    assert await roles_in(world, workspace_id) == [(owner, Role.OWNER)]


async def test_removing_who_is_no_member_is_not_found(world: World) -> None:
    workspace_id = await world.workspace(world.wallet(1).address)
    stranger = world.wallet(2).address
    assert await refusal_of(world.members.remove(workspace_id, stranger)) == refusals.UNKNOWN_MEMBER


async def test_malformed_members_are_refused(world: World) -> None:
    workspace_id = await world.workspace(world.wallet(1).address)
    stranger = world.wallet(2).address
    owner, invite = world.wallet(1).address, world.invitations.invite
    assert await refusal_of(invite(workspace_id, "0x12", "ADMIN", invited_by=owner)) == refusals.BAD_ADDRESS
    assert await refusal_of(invite(workspace_id, stranger, "admin", invited_by=owner)) == refusals.BAD_ROLE
    assert await refusal_of(world.members.remove(workspace_id, "")) == refusals.BAD_ADDRESS


async def test_the_last_owner_can_neither_leave_nor_step_down(world: World) -> None:
    owner, other = world.wallet(1).address, world.wallet(2).address
    workspace_id = await world.workspace(owner)
    await world.joins(workspace_id, owner, other, "ADMIN")
    assert await refusal_of(world.members.remove(workspace_id, owner)) == refusals.LAST_OWNER
    assert await refusal_of(world.members.set_role(workspace_id, owner, "ADMIN")) == refusals.LAST_OWNER
    await world.members.set_role(workspace_id, owner, "OWNER")
    await world.members.set_role(workspace_id, other, "OWNER")
    await world.members.remove(workspace_id, owner)
    assert await roles_in(world, workspace_id) == [(other, Role.OWNER)]


async def test_of_owners_who_all_leave_at_once_one_stays(world: World) -> None:
    owners = [world.wallet(number).address for number in range(5)]
    workspace_id = await world.workspace(owners[0])
    for owner in owners[1:]:
        await world.joins(workspace_id, owners[0], owner, "OWNER")
    refused: list[Refusal] = []

    async def leave(owner: str) -> None:
        try:
            await world.members.remove(workspace_id, owner)
        except RefusedError as error:
            refused.append(error.refusal)

    async with trio.open_nursery() as nursery:
        for owner in owners:
            nursery.start_soon(leave, owner)
    assert refused == [refusals.LAST_OWNER]
    assert len(await roles_in(world, workspace_id)) == 1


async def test_a_workspace_that_is_gone_is_not_listed(world: World) -> None:
    owner = world.wallet(1).address
    kept, gone = await world.workspace(owner, "kept"), await world.workspace(owner, "gone")
    del world.directory.workspaces[gone]
    assert [each.workspace.id for each in await world.members.memberships_of(owner)] == [kept]
    assert await world.members.memberships_of(world.wallet(2).address) == ()
