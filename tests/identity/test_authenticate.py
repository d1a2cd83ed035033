"""Resolve the credential of a request to a principal."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from sightline.domain.access import ApiKeyPrincipal, Environment, Holder, Role, Scope, holder_of
from sightline.domain.errors import RefusedError, StoreUnavailableError
from sightline.domain.refusal import Refusal
from sightline.domain.value import replace
from sightline.identity import refusals
from sightline.identity.authenticate import Authenticator, AuthenticatorOptions
from sightline.identity.cookies import LIFETIME_MS
from tests.identity.world import Given, World

WORKSPACE = "9c2d41e7-1111-4111-8111-111111111111"


async def a_key(world: World) -> tuple[str, str]:
    minted = await world.keys.mint(
        WORKSPACE, created_by="0x", label="robot", environment="TEST", scopes=["sessions:read"]
    )
    return minted.record.key_id, minted.plaintext


async def a_cookie(world: World, workspace_id: str | None = None, role: Role | None = None) -> str:
    principal = await world.sessions.open(world.wallet().address, client_ip="203.0.113.7", user_agent="a browser")
    return "svc_session=" + world.cookies.encode(replace(principal, workspace_id=workspace_id, role=role))


async def refusal_of(world: World, headers: Mapping[str, str]) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        await world.authenticator.authenticate(Given(headers))
    return caught.value.refusal


async def test_a_key_becomes_a_principal_of_its_workspace(world: World) -> None:
    key_id, key = await a_key(world)
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert await world.authenticator.authenticate(Given({"authorization": f"{scheme} {key}"})) == ApiKeyPrincipal(
            workspace_id=WORKSPACE,
            key_id=key_id,
            scopes=frozenset({Scope.SESSIONS_READ}),
            environment=Environment.TEST,
        )


async def test_a_scope_that_is_inert_in_a_key_is_not_a_scope_of_its_principal(world: World) -> None:
    minted = await world.keys.mint(
        WORKSPACE, created_by="0x", label="old", environment="TEST", scopes=["sessions:read", "webhooks:write"]
    )
    old = replace(minted.record, inert_scopes=frozenset({Scope.WEBHOOKS_WRITE}))
    await world.store.add_key(old, world.hasher.digest(minted.plaintext), limit=2)
    principal = await world.authenticator.authenticate(Given({"authorization": f"Bearer {minted.plaintext}"}))
    assert isinstance(principal, ApiKeyPrincipal)
    assert principal.scopes == {Scope.SESSIONS_READ}


async def test_a_cookie_becomes_a_principal_of_its_wallet(world: World) -> None:
    principal = await world.authenticator.authenticate(Given({"cookie": await a_cookie(world, WORKSPACE, Role.ADMIN)}))
    assert (principal.workspace_id, principal.role) == (WORKSPACE, Role.ADMIN)
    assert principal.wallet_address == world.wallet().address


async def test_no_credential_is_refused(world: World) -> None:
    assert await refusal_of(world, {}) == refusals.MISSING_CREDENTIAL
    assert await refusal_of(world, {"cookie": "theme=dark"}) == refusals.MISSING_CREDENTIAL
    for empty in ("Bearer", "Bearer "):
        assert await refusal_of(world, {"authorization": empty}) == refusals.MISSING_CREDENTIAL


async def test_malformed_and_unknown_keys_are_refused_alike(world: World) -> None:
    _, key = await a_key(world)
    unknown = key[:-1] + ("1" if key[-1] != "1" else "2")
    for value in ("", f"Basic {key}", key):
        assert await refusal_of(world, {"authorization": value}) == refusals.NO_BEARER, value
    values = [
        "Bearer x",
        f"Bearer {unknown}",
        f"Bearer {key}x",
        f"Bearer {key},",
        "Bearer " + "x" * 5_000,
        "Bearer \x00",
        "Bearer é",
    ]
    for value in values:
        assert await refusal_of(world, {"authorization": value}) == refusals.INVALID_CREDENTIAL, value


async def test_the_header_wins_over_the_cookie_even_when_it_is_wrong(world: World) -> None:
    _, key = await a_key(world)
    cookie = await a_cookie(world)
    principal = await world.authenticator.authenticate(Given({"authorization": f"Bearer {key}", "cookie": cookie}))
    assert isinstance(principal, ApiKeyPrincipal)
    wrong = {"authorization": "Bearer nonsense", "cookie": cookie}
    assert await refusal_of(world, wrong) == refusals.INVALID_CREDENTIAL


async def test_an_expired_or_forged_cookie_is_refused(world: World) -> None:
    cookie = await a_cookie(world)
    assert await refusal_of(world, {"cookie": cookie[:-2]}) == refusals.EXPIRED_SESSION
    world.clock.at_ms += LIFETIME_MS
    assert await refusal_of(world, {"cookie": cookie}) == refusals.EXPIRED_SESSION


async def test_a_revoked_key_works_for_sixty_seconds_to_the_millisecond(world: World) -> None:
    key_id, key = await a_key(world)
    headers = {"authorization": f"Bearer {key}"}
    await world.authenticator.authenticate(Given(headers))
    await world.keys.revoke(WORKSPACE, key_id)
    world.clock.at_ms += 59_999
    await world.authenticator.authenticate(Given(headers))
    world.clock.at_ms += 1
    assert await refusal_of(world, headers) == refusals.REVOKED_KEY


async def test_a_revocation_is_seen_although_the_key_is_cached(world: World) -> None:
    key_id, key = await a_key(world)
    headers = {"authorization": f"Bearer {key}"}
    await world.keys.revoke(WORKSPACE, key_id)
    for _ in range(60):
        await world.authenticator.authenticate(Given(headers))
        world.clock.at_ms += 1_000
    assert await refusal_of(world, headers) == refusals.REVOKED_KEY


async def test_a_key_works_from_the_moment_it_is_minted(world: World) -> None:
    world.ids.count = 100
    _, key = await a_key(world)
    world.store._keys.clear()
    headers = {"authorization": f"Bearer {key}"}
    assert await refusal_of(world, headers) == refusals.INVALID_CREDENTIAL
    world.ids.count = 100
    assert await a_key(world)
    await world.authenticator.authenticate(Given(headers))


class CountingStore:
    """A store that counts the look-ups of keys and can be made unavailable."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.lookups, self.writes, self.is_down = inner, 0, 0, False

    async def key_of(self, digest: bytes) -> Any:
        self.lookups += 1
        if self.is_down:
            raise StoreUnavailableError
        return await self.inner.key_of(digest)

    async def mark_keys_used(self, used_at_ms: Mapping[str, int]) -> None:
        self.writes += 1
        if self.is_down:
            raise StoreUnavailableError
        await self.inner.mark_keys_used(used_at_ms)


def an_authenticator(world: World, **options: int) -> tuple[CountingStore, Authenticator]:
    store = CountingStore(world.store)
    chosen = AuthenticatorOptions(**options)
    return store, Authenticator(store, world.cookies, world.sessions, world.hasher, world.clock, chosen)  # type: ignore[arg-type]


async def test_a_busy_key_is_looked_up_every_thirty_seconds_only(world: World) -> None:
    _, key = await a_key(world)
    store, authenticator = an_authenticator(world)
    for _ in range(100):
        await authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
        world.clock.at_ms += 1_000
    assert store.lookups == 4


async def test_a_clock_that_steps_back_does_not_keep_a_key_cached(world: World) -> None:
    _, key = await a_key(world)
    store, authenticator = an_authenticator(world)
    await authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
    world.clock.at_ms -= 3_600_000
    await authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
    assert store.lookups == 2


async def test_the_key_cache_is_bounded(world: World) -> None:
    store, authenticator = an_authenticator(world, keys_cached_max=3)
    keys = [(await a_key(world))[1] for _ in range(5)]
    for key in keys:
        await authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
    assert len(authenticator._recent_keys._entries) == 3
    await authenticator.authenticate(Given({"authorization": f"Bearer {keys[-1]}"}))
    assert store.lookups == 5


async def test_a_key_is_neither_accepted_nor_refused_while_the_store_is_down(world: World) -> None:
    _, key = await a_key(world)
    store, authenticator = an_authenticator(world)
    store.is_down = True
    with pytest.raises(StoreUnavailableError):
        await authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))


async def test_last_uses_are_written_in_batches_and_survive_a_failed_write(world: World) -> None:
    key_id, key = await a_key(world)
    store, authenticator = an_authenticator(world)
    for _ in range(50):
        await authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
    store.is_down = True
    await authenticator.flush()
    store.is_down = False
    await authenticator.flush()
    await authenticator.flush()
    assert store.writes == 2
    (record,) = await world.keys.keys_in(WORKSPACE)
    assert (record.key_id, record.last_used_at_ms) == (key_id, world.clock.at_ms)


async def test_last_uses_are_written_every_five_seconds_and_at_the_end(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    _, key = await a_key(world)
    store, authenticator = an_authenticator(world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        await authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
        await trio.sleep(5.5)
        assert store.writes == 1
        world.clock.at_ms += 5_500
        await authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
        nursery.cancel_scope.cancel()
    assert store.writes == 2
    (record,) = await world.keys.keys_in(WORKSPACE)
    assert record.last_used_at_ms == world.clock.at_ms


async def refusal_of_holder(world: World, holder: Holder) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        await world.authenticator.principal_of(holder)
    return caught.value.refusal


async def test_a_key_is_known_by_its_ids_until_its_grace_ends(world: World) -> None:
    key_id, key = await a_key(world)
    principal = await world.authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
    holder = holder_of(principal)
    assert holder == Holder(is_key=True, credential_id=key_id, workspace_id=WORKSPACE)
    assert await world.authenticator.principal_of(holder) == principal
    await world.keys.revoke(WORKSPACE, key_id)
    world.clock.at_ms += 59_999
    assert await world.authenticator.principal_of(holder) == principal
    world.clock.at_ms += 1
    assert await refusal_of_holder(world, holder) == refusals.REVOKED_KEY
    assert (
        await refusal_of_holder(world, replace(holder, credential_id=world.ids.uuid())) == refusals.INVALID_CREDENTIAL
    )
    assert await refusal_of_holder(world, replace(holder, workspace_id=world.ids.uuid())) == refusals.INVALID_CREDENTIAL


async def test_a_sign_in_is_known_by_its_ids_until_it_ends(world: World) -> None:
    principal = await world.authenticator.authenticate(Given({"cookie": await a_cookie(world, WORKSPACE, Role.ADMIN)}))
    holder = holder_of(principal)
    assert await world.authenticator.principal_of(holder) == replace(principal, role=None)
    unknown = replace(holder, credential_id=world.ids.uuid())
    assert await refusal_of_holder(world, unknown) == refusals.EXPIRED_SESSION
    await world.sessions.end(principal.wallet_address, principal.session_id)
    assert await refusal_of_holder(world, holder) == refusals.EXPIRED_SESSION


async def test_a_sign_in_that_is_too_old_is_no_longer_known(world: World) -> None:
    principal = await world.authenticator.authenticate(Given({"cookie": await a_cookie(world, WORKSPACE, Role.ADMIN)}))
    holder = holder_of(principal)
    for _ in range(12):  # used all the time
        world.clock.at_ms += LIFETIME_MS // 12 - 1
        await world.authenticator.principal_of(holder)
    world.clock.at_ms += 12
    assert await refusal_of_holder(world, holder) == refusals.EXPIRED_SESSION
