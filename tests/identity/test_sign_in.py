"""Challenge, login, workspace selection, and the proof for a new workspace, with wallets that have a private key."""

import re
from collections.abc import Awaitable
from typing import Any

import pytest
import trio
from eth_account.messages import encode_defunct

from sightline.domain.access import Role
from sightline.domain.errors import AuthzUnavailableError, ChainUnavailableError, RefusedError
from sightline.domain.refusal import Refusal
from sightline.identity import refusals
from sightline.identity.cookies import LIFETIME_MS
from sightline.ports.identity import Purpose
from sightline.ports.relations import TupleUpdate, member_edge
from tests.identity.world import World


async def refusal_of(call: Awaitable[object]) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        await call
    return caught.value.refusal


async def signed_in(world: World, number: int = 1) -> Any:
    wallet = world.wallet(number)
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    return await world.sign_in.login(wallet.address, challenge.nonce, world.sign(wallet, challenge))


async def principal_of(world: World, signed: Any) -> Any:
    cookie = signed.set_cookie.partition(";")[0]
    return await world.authenticator.authenticate({"cookie": cookie})


async def test_the_text_is_eip_4361_to_the_last_byte(world: World) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address.lower(), Purpose.LOGIN)
    assert re.fullmatch(r"[0-9a-f]{32}", challenge.nonce)
    assert challenge.expires_at_ms == world.clock.at_ms + 300_000
    assert challenge.message == (
        "localhost:8080 wants you to sign in with your Ethereum account:\n"
        f"{wallet.address}\n"
        "\n"
        "Sign in to Sightline.\n"
        "\n"
        "URI: http://localhost:8080\n"
        "Version: 1\n"
        "Chain ID: 31337\n"
        f"Nonce: {challenge.nonce}\n"
        "Issued At: 2027-01-15T08:00:00.000Z\n"
        "Expiration Time: 2027-01-15T08:05:00.000Z"
    )


async def test_the_two_purposes_are_told_apart_by_who_signs(world: World) -> None:
    login, creation = [await world.sign_in.challenge("0x" + "ab" * 20, purpose) for purpose in Purpose]
    assert "Sign in to Sightline." in login.message
    assert "Create a Sightline workspace" in creation.message


@pytest.mark.parametrize("address", ["", "0x", "ab" * 20, "0x" + "ab" * 19, "0x" + "zz" * 20, "0x" + "ab" * 21])
async def test_what_is_no_address_gets_no_challenge(world: World, address: str) -> None:
    assert await refusal_of(world.sign_in.challenge(address, Purpose.LOGIN)) == refusals.BAD_ADDRESS


async def test_a_signature_starts_a_session_of_twelve_hours(world: World) -> None:
    signed = await signed_in(world)
    principal = await principal_of(world, signed)
    assert principal == signed.principal
    assert principal.wallet_address == world.wallet().address
    assert principal.expires_at_ms == world.clock.at_ms + LIFETIME_MS
    assert (principal.workspace_id, principal.role) == (None, None)


@pytest.mark.parametrize("is_upper", [True, False])
async def test_the_case_of_the_address_does_not_matter(world: World, is_upper: bool) -> None:
    wallet = world.wallet()
    asked, told = wallet.address.lower(), "0x" + wallet.address[2:].upper()
    if is_upper:
        asked, told = told, asked
    challenge = await world.sign_in.challenge(asked, Purpose.LOGIN)
    signed = await world.sign_in.login(told, challenge.nonce, world.sign(wallet, challenge))
    assert signed.principal.wallet_address == wallet.address


async def test_a_nonce_is_good_once(world: World) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    proof = (wallet.address, challenge.nonce, world.sign(wallet, challenge))
    await world.sign_in.login(*proof)
    assert await refusal_of(world.sign_in.login(*proof)) == refusals.BAD_NONCE


async def test_of_many_logins_at_once_with_one_nonce_one_succeeds(world: World) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    outcomes: list[str] = []

    async def login() -> None:
        try:
            await world.sign_in.login(wallet.address, challenge.nonce, world.sign(wallet, challenge))
            outcomes.append("in")
        except RefusedError as error:
            outcomes.append(str(error.refusal.detail))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(login)
    assert outcomes.count("in") == 1
    assert outcomes.count("auth:nonce") == 19


async def test_a_failed_proof_uses_the_nonce_up(world: World) -> None:
    wallet, stranger = world.wallet(1), world.wallet(2)
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    bad = world.sign_in.login(wallet.address, challenge.nonce, world.sign(stranger, challenge))
    assert await refusal_of(bad) == refusals.BAD_SIGNATURE
    good = world.sign_in.login(wallet.address, challenge.nonce, world.sign(wallet, challenge))
    assert await refusal_of(good) == refusals.BAD_NONCE


async def test_a_nonce_expires_after_five_minutes(world: World) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    world.clock.at_ms += 300_000
    late = world.sign_in.login(wallet.address, challenge.nonce, world.sign(wallet, challenge))
    assert await refusal_of(late) == refusals.BAD_NONCE


@pytest.mark.parametrize("wrong", ["", "0" * 32, "x" * 1_000, "é", "' OR 1=1 --", "\x00"])
async def test_an_unknown_nonce_is_refused(world: World, wrong: str) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    attempt = world.sign_in.login(wallet.address, wrong, world.sign(wallet, challenge))
    assert await refusal_of(attempt) == refusals.BAD_NONCE


async def test_a_nonce_serves_its_own_wallet_only(world: World) -> None:
    wallet, stranger = world.wallet(1), world.wallet(2)
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    stolen = world.sign_in.login(stranger.address, challenge.nonce, world.sign(stranger, challenge))
    assert await refusal_of(stolen) == refusals.BAD_NONCE


@pytest.mark.parametrize(
    ("made_for", "used_for"),
    [(Purpose.LOGIN, Purpose.CREATE_WORKSPACE), (Purpose.CREATE_WORKSPACE, Purpose.LOGIN)],
)
async def test_a_nonce_serves_its_own_purpose_only(world: World, made_for: Purpose, used_for: Purpose) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, made_for)
    proof = (wallet.address, challenge.nonce, world.sign(wallet, challenge))
    assert await refusal_of(world.sign_in.prove(*proof, used_for)) == refusals.BAD_NONCE
    assert await world.sign_in.prove(*proof, made_for) == wallet.address


async def test_a_signature_of_another_text_is_refused(world: World) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    other = wallet.sign_message(encode_defunct(text=challenge.message + "\n")).signature
    attempt = world.sign_in.login(wallet.address, challenge.nonce, "0x" + bytes(other).hex())
    assert await refusal_of(attempt) == refusals.BAD_SIGNATURE


@pytest.mark.parametrize(
    "signature",
    ["", "0x", "zz", "0x0", "é", "0x" + "00" * 64, "0x" + "00" * 65, "0x" + "ff" * 65, "0x" + "11" * 9_000],
)
async def test_what_is_no_signature_is_refused(world: World, signature: str) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    attempt = world.sign_in.login(wallet.address, challenge.nonce, signature)
    assert await refusal_of(attempt) == refusals.BAD_SIGNATURE


async def test_a_signature_without_0x_is_read_too(world: World) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    bare = world.sign(wallet, challenge).removeprefix("0x")
    assert await world.sign_in.login(wallet.address, challenge.nonce, bare)


async def test_a_plain_key_never_asks_the_chain(world: World) -> None:
    world.chain.is_down = True
    await signed_in(world)
    assert world.chain.calls == 0


async def test_a_chain_out_of_reach_decides_nothing_and_costs_no_nonce(world: World) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    world.chain.is_down = True
    with pytest.raises(ChainUnavailableError):
        await world.sign_in.login(wallet.address, challenge.nonce, "0x" + "11" * 70)
    world.chain.is_down = False
    await world.sign_in.login(wallet.address, challenge.nonce, world.sign(wallet, challenge))


async def test_a_login_lists_the_wallet_s_workspaces_by_slug(world: World) -> None:
    address = world.wallet().address
    later = await world.workspace(address, "zebra")
    first = await world.workspace(world.wallet(2).address, "alpha")
    await world.relations.write([TupleUpdate(member_edge(first, address, Role.VIEWER))])
    signed = await signed_in(world)
    listed = [(each.workspace.id, each.workspace.slug, each.role) for each in signed.memberships]
    assert listed == [(first, "alpha", Role.VIEWER), (later, "zebra", Role.OWNER)]


async def test_selecting_puts_workspace_and_role_into_the_session_and_does_not_prolong_it(world: World) -> None:
    workspace_id = await world.workspace(world.wallet().address)
    principal = (await signed_in(world)).principal
    world.clock.at_ms += 3_600_000
    selected = await world.sign_in.select(principal, workspace_id)
    again = await principal_of(world, selected)
    assert (again.workspace_id, again.role) == (workspace_id, Role.OWNER)
    assert again.expires_at_ms == principal.expires_at_ms
    assert "Max-Age=39600" in selected.set_cookie


async def test_only_members_may_select(world: World) -> None:
    workspace_id = await world.workspace(world.wallet(1).address)
    stranger = (await signed_in(world, 2)).principal
    assert await refusal_of(world.sign_in.select(stranger, workspace_id)) == refusals.NOT_A_MEMBER
    assert await refusal_of(world.sign_in.select(stranger, world.ids.uuid())) == refusals.NOT_A_MEMBER


async def test_a_removed_member_loses_access_at_the_next_selection(world: World) -> None:
    owner, guest = world.wallet(1).address, world.wallet(2).address
    workspace_id = await world.workspace(owner)
    await world.joins(workspace_id, owner, guest, "ADMIN")
    selected = await world.sign_in.select((await signed_in(world, 2)).principal, workspace_id)
    await world.members.remove(workspace_id, guest)
    assert (await principal_of(world, selected)).role is Role.ADMIN
    assert await refusal_of(world.sign_in.select(selected.principal, workspace_id)) == refusals.NOT_A_MEMBER


async def test_a_graph_that_is_down_costs_no_nonce(world: World) -> None:
    wallet = world.wallet()
    challenge = await world.sign_in.challenge(wallet.address, Purpose.LOGIN)
    proof = (wallet.address, challenge.nonce, world.sign(wallet, challenge))
    memberships_of = world.members.memberships_of

    async def unavailable(address: str) -> Any:
        raise AuthzUnavailableError

    world.members.memberships_of = unavailable
    with pytest.raises(AuthzUnavailableError):
        await world.sign_in.login(*proof)
    world.members.memberships_of = memberships_of
    assert await world.sign_in.login(*proof)


async def test_nothing_secret_shows_in_a_repr(world: World) -> None:
    signed = await signed_in(world)
    assert signed.set_cookie.split("=", 1)[1][:20] not in repr(signed)
    minted = await world.keys.mint(
        world.ids.uuid(), created_by="0x", label="a", environment="TEST", scopes=["wallet:read"]
    )
    assert minted.plaintext not in repr(minted)
