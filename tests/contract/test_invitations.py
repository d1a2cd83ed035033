"""The contract of every store of invitations, tested on memory and on Postgres."""

from collections.abc import AsyncIterator

import pytest
import trio

from sightline.domain.access import Role
from sightline.domain.units import DAY_MS
from sightline.domain.value import replace
from sightline.ports.identity import Invitation, InvitationLimits, InvitationStore, NotInvited
from sightline.ports.relations import PreconditionFailedError, TupleUpdate, member_edge
from sightline.storage.postgres.operations.invitations import PostgresInvitations
from simulation.memory.identity import MemoryRelations
from simulation.memory.invitations import MemoryInvitations

from .conftest import Stored

NOW = 1_800_000_000_000
WORKSPACE, OTHER = "9c2d41e7-1111-4111-8111-111111111111", "00000000-2222-4222-8222-222222222222"
OWNER, STRANGER = "0x52908400098527886E0F7030069857D2E4169EE7", "0x8617E340B3D01FA5F11F306F4090FD50E238070D"
GUEST = "0xde709f2102306220921060314715629080e2fb77"
LIMITS = InvitationLimits()


@pytest.fixture
async def store(stored: Stored) -> AsyncIterator[InvitationStore]:
    if stored.database is not None:
        yield PostgresInvitations(stored.database)
        return
    assert isinstance(stored.relations, MemoryRelations)
    yield MemoryInvitations(stored.relations)


def an_invitation(number: int = 1, **changes: object) -> Invitation:
    invitation = Invitation(
        id=f"00000000-0000-4000-8000-{number:012}",
        workspace_id=WORKSPACE,
        wallet_address=GUEST,
        role=Role.VIEWER,
        invited_by=OWNER,
        created_at_ms=NOW + number,
        expires_at_ms=NOW + number + 7 * DAY_MS,
    )
    return replace(invitation, **changes)  # type: ignore[arg-type]


def a_wallet(number: int) -> str:
    return f"0x{number:040x}"


async def test_an_invitation_is_open_until_it_expires(store: InvitationStore) -> None:
    invitation = an_invitation()
    assert await store.invite(invitation, LIMITS) == invitation
    last_ms = invitation.expires_at_ms - 1
    assert await store.open_in(WORKSPACE, now_ms=last_ms) == (invitation,)
    assert await store.open_for(GUEST.upper().replace("0X", "0x"), now_ms=last_ms, limit=1) == (invitation,)
    assert await store.open_invitation(invitation.id, GUEST, now_ms=last_ms) == invitation
    assert await store.open_in(WORKSPACE, now_ms=last_ms + 1) == ()
    assert await store.open_for(GUEST, now_ms=last_ms + 1, limit=1) == ()
    assert await store.accept(invitation.id, GUEST, now_ms=last_ms + 1) is None
    assert await store.decline(invitation.id, GUEST, now_ms=last_ms + 1) is None
    assert await store.withdraw(WORKSPACE, GUEST, now_ms=last_ms + 1) is None


async def test_a_repeated_invitation_is_the_same_and_another_role_replaces_it(store: InvitationStore) -> None:
    first = an_invitation(1)
    await store.invite(first, LIMITS)
    assert await store.invite(an_invitation(2), LIMITS) == first
    higher = an_invitation(3, role=Role.OWNER)
    assert await store.invite(higher, LIMITS) == higher
    assert await store.open_in(WORKSPACE, now_ms=NOW + 4) == (higher,)
    assert await store.accept(first.id, GUEST, now_ms=NOW + 4) is None, "the wallet accepts the role that it was shown"


async def test_accepting_adds_the_edge_once_and_only_for_the_invited_wallet(
    store: InvitationStore, stored: Stored
) -> None:
    owner, guest = member_edge(WORKSPACE, OWNER, Role.OWNER), member_edge(WORKSPACE, GUEST, Role.VIEWER)
    await stored.relations.write([TupleUpdate(owner)])
    invitation = an_invitation()
    await store.invite(invitation, LIMITS)
    changes = {"updates": [TupleUpdate(guest)], "requires": [owner]}
    assert await store.accept(invitation.id, STRANGER, now_ms=NOW + 2, **changes) is None
    assert await stored.relations.read(resource_type="workspace", subject=guest.subject) == ()
    assert await store.accept(invitation.id, GUEST.lower(), now_ms=NOW + 2, **changes) == invitation
    assert await stored.relations.read(resource_type="workspace", subject=guest.subject) == (guest,)
    assert await store.accept(invitation.id, GUEST, now_ms=NOW + 2, **changes) is None
    assert await store.open_in(WORKSPACE, now_ms=NOW + 2) == ()


async def test_nothing_changes_when_the_inviter_is_no_owner_any_more(store: InvitationStore, stored: Stored) -> None:
    owner, guest = member_edge(WORKSPACE, OWNER, Role.OWNER), member_edge(WORKSPACE, GUEST, Role.VIEWER)
    invitation = an_invitation()
    await store.invite(invitation, LIMITS)
    with pytest.raises(PreconditionFailedError):
        await store.accept(invitation.id, GUEST, now_ms=NOW + 2, updates=[TupleUpdate(guest)], requires=[owner])
    assert await stored.relations.read(resource_type="workspace", subject=guest.subject) == ()
    assert await store.open_in(WORKSPACE, now_ms=NOW + 2) == (invitation,)


async def test_a_declined_wallet_is_not_asked_again_by_that_workspace_or_inviter_for_a_day(
    store: InvitationStore,
) -> None:
    invitation = an_invitation()
    await store.invite(invitation, LIMITS)
    assert await store.decline(invitation.id, STRANGER, now_ms=NOW + 2) is None
    assert await store.decline(invitation.id, GUEST, now_ms=NOW + 2) == invitation
    assert await store.open_for(GUEST, now_ms=NOW + 2, limit=9) == ()
    for again in (an_invitation(3, invited_by=STRANGER), an_invitation(4, workspace_id=OTHER)):
        assert await store.invite(again, LIMITS) is NotInvited.DECLINED
    other = an_invitation(5, invited_by=STRANGER, workspace_id=OTHER)
    assert await store.invite(other, LIMITS) == other
    later = an_invitation(6, created_at_ms=NOW + 2 + DAY_MS, expires_at_ms=NOW + 9 * DAY_MS)
    assert await store.invite(later, LIMITS) == later


async def test_open_invitations_of_a_workspace_are_bounded_under_concurrent_calls(store: InvitationStore) -> None:
    limits = InvitationLimits(open_max=3, inviter_day_max=50)
    results: list[object] = []

    async def invite(number: int) -> None:
        results.append(await store.invite(an_invitation(number, wallet_address=a_wallet(number)), limits))

    async with trio.open_nursery() as nursery:
        for number in range(1, 9):
            nursery.start_soon(invite, number)
    assert results.count(NotInvited.WORKSPACE_LIMIT) == 5
    (gone, *_) = await store.open_in(WORKSPACE, now_ms=NOW + 9)
    assert await store.withdraw(WORKSPACE, gone.wallet_address, now_ms=NOW + 9) == gone
    assert isinstance(await store.invite(an_invitation(20, wallet_address=a_wallet(20)), limits), Invitation)


async def test_invitations_of_one_inviter_are_bounded_in_all_its_workspaces_also_after_they_ended(
    store: InvitationStore,
) -> None:
    limits = InvitationLimits(inviter_day_max=2)
    for number, workspace_id in ((1, WORKSPACE), (2, OTHER)):
        assert isinstance(await store.invite(an_invitation(number, workspace_id=workspace_id), limits), Invitation)
        await store.withdraw(workspace_id, GUEST, now_ms=NOW + 3)
    assert await store.invite(an_invitation(4), limits) is NotInvited.INVITER_LIMIT
    tomorrow = an_invitation(5, created_at_ms=NOW + 2 + DAY_MS, expires_at_ms=NOW + 9 * DAY_MS)
    assert isinstance(await store.invite(tomorrow, limits), Invitation)


async def test_a_wallet_is_listed_its_oldest_invitations(store: InvitationStore) -> None:
    made = []
    for number in range(1, 6):
        workspace_id = f"00000000-3333-4333-8333-{number:012}"
        invitation = an_invitation(number, workspace_id=workspace_id, invited_by=a_wallet(number))
        made.append(await store.invite(invitation, LIMITS))
    assert await store.open_for(GUEST, now_ms=NOW + 9, limit=3) == tuple(made[:3])


async def test_the_invitations_of_a_former_owner_are_withdrawn(store: InvitationStore) -> None:
    kept = an_invitation(1, invited_by=STRANGER)
    await store.invite(kept, LIMITS)
    await store.invite(an_invitation(2, wallet_address=a_wallet(2)), LIMITS)
    await store.withdraw_of(WORKSPACE, OWNER.lower(), now_ms=NOW + 3)
    assert await store.open_in(WORKSPACE, now_ms=NOW + 3) == (kept,)


async def test_an_accepted_invitation_is_found_by_the_wallet_that_accepted_it(store: InvitationStore) -> None:
    accepted, declined = an_invitation(1), an_invitation(2, wallet_address=OWNER)
    for each in (accepted, declined):
        await store.invite(each, LIMITS)
    assert await store.accepted_invitation(accepted.id, GUEST) is None
    await store.accept(accepted.id, GUEST, now_ms=NOW + 3)
    await store.decline(declined.id, OWNER, now_ms=NOW + 3)
    assert await store.accepted_invitation(accepted.id, GUEST.lower()) == accepted
    assert await store.accepted_invitation(accepted.id, OWNER) is None
    assert await store.accepted_invitation(declined.id, OWNER) is None


async def test_only_an_accepted_invitation_is_opened_again(store: InvitationStore) -> None:
    accepted, declined = an_invitation(1), an_invitation(2, wallet_address=OWNER)
    for each in (accepted, declined):
        await store.invite(each, LIMITS)
    await store.accept(accepted.id, GUEST, now_ms=NOW + 3)
    await store.decline(declined.id, OWNER, now_ms=NOW + 3)
    for each in (accepted, declined):
        await store.reopen(each.id)
    assert await store.open_in(WORKSPACE, now_ms=NOW + 4) == (accepted,)
