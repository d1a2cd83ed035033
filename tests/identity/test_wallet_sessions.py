"""Wallet sessions: a cookie is accepted only while its sign-in is open."""

import pytest

from sightline.domain.access import WalletPrincipal
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Refusal
from sightline.domain.value import replace
from sightline.identity import refusals
from sightline.identity.wallet_sessions import WalletSessions
from tests.identity.world import IDLE_MS, Given, World


async def sign_in(world: World, user_agent: str = "a browser") -> WalletPrincipal:
    return await world.sessions.open(world.wallet().address, client_ip="203.0.113.7", user_agent=user_agent)


async def call_with(world: World, principal: WalletPrincipal) -> None:
    cookie = "svc_session=" + world.cookies.encode(principal)
    assert await world.authenticator.authenticate(Given({"cookie": cookie})) == principal


async def refusal_of(world: World, principal: WalletPrincipal) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        await call_with(world, principal)
    return caught.value.refusal


async def test_an_ended_sign_in_is_refused_at_once_and_others_go_on(world: World) -> None:
    lost, kept = await sign_in(world), await sign_in(world)
    await call_with(world, lost)
    await world.sessions.end(lost.wallet_address, lost.session_id)
    assert await refusal_of(world, lost) == refusals.EXPIRED_SESSION
    await call_with(world, kept)


async def test_another_process_refuses_an_ended_sign_in_within_five_seconds(world: World) -> None:
    principal = await sign_in(world)
    await call_with(world, principal)
    other_process = WalletSessions(world.store, world.clock, world.ids)
    await other_process.end(principal.wallet_address, principal.session_id)
    world.clock.at_ms += 5_000
    assert await refusal_of(world, principal) == refusals.EXPIRED_SESSION


async def test_another_server_that_is_told_refuses_an_ended_sign_in_at_once(world: World) -> None:
    other = WalletSessions(world.store, world.clock, world.ids)
    principal = await sign_in(world)
    await other.require_open(principal)
    world.sessions.on_ended = other.forget
    await world.sessions.end(principal.wallet_address, principal.session_id)
    with pytest.raises(RefusedError):
        await other.require_open(principal)


async def test_a_sign_in_without_requests_ends_after_the_idle_timeout(world: World) -> None:
    principal = await sign_in(world)
    world.clock.at_ms += IDLE_MS - 1
    await call_with(world, principal)
    world.clock.at_ms += IDLE_MS - 1
    await call_with(world, principal)
    await world.authenticator.flush()
    world.clock.at_ms += IDLE_MS
    assert await refusal_of(world, principal) == refusals.EXPIRED_SESSION


async def test_a_signed_cookie_without_a_stored_sign_in_is_refused(world: World) -> None:
    principal = replace(await sign_in(world), session_id="00000000-0000-4000-8000-00000000dead")
    assert await refusal_of(world, principal) == refusals.EXPIRED_SESSION


async def test_open_sign_ins_are_listed_with_their_last_use(world: World) -> None:
    laptop, phone = await sign_in(world, "laptop"), await sign_in(world, "phone")
    world.clock.at_ms += 60_000
    await call_with(world, phone)
    listed = {each.user_agent: each for each in await world.sessions.open_of(laptop.wallet_address.lower())}
    assert set(listed) == {"laptop", "phone"}
    assert listed["phone"].last_used_at_ms == world.clock.at_ms
    assert listed["laptop"].last_used_at_ms == world.clock.at_ms - 60_000
    await world.sessions.end(laptop.wallet_address, laptop.session_id)
    assert [each.user_agent for each in await world.sessions.open_of(laptop.wallet_address)] == ["phone"]


async def test_idle_sign_ins_are_not_listed(world: World) -> None:
    principal = await sign_in(world)
    world.clock.at_ms += IDLE_MS
    assert await world.sessions.open_of(principal.wallet_address) == ()


async def test_a_wallet_cannot_end_the_sign_in_of_another(world: World) -> None:
    principal = await sign_in(world)
    with pytest.raises(RefusedError) as caught:
        await world.sessions.end(world.wallet(2).address, principal.session_id)
    assert caught.value.refusal == refusals.UNKNOWN_WALLET_SESSION
    await call_with(world, principal)


async def test_a_long_user_agent_is_cut(world: World) -> None:
    principal = await sign_in(world, "x" * 5_000)
    (listed,) = await world.sessions.open_of(principal.wallet_address)
    assert listed.user_agent == "x" * 200
