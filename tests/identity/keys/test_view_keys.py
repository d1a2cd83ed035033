"""Keys of views that were paid by x402: they follow from the payment and the quote, open one session, and end."""

import pytest

from sightline.domain.access import ApiKeyPrincipal, opens_only
from sightline.domain.errors import RefusedError
from sightline.identity import refusals
from sightline.identity.api_keys import ViewKeys
from sightline.identity.key_codec import KeyHasher
from tests.identity.world import Given, World

PAYER = "0x52908400098527886E0F7030069857D2E4169EE7"
NONCE = "0x" + "ab" * 32


def keys_of(world: World, **changed: bool) -> ViewKeys:
    is_suspended = changed.get("is_suspended", False)
    return ViewKeys(world.store, world.hasher, world.clock, is_suspended=lambda _: is_suspended)


async def principal_of(world: World, key: str) -> ApiKeyPrincipal:
    principal = await world.authenticator.authenticate(Given({"authorization": f"Bearer {key}"}))
    assert isinstance(principal, ApiKeyPrincipal)
    return principal


async def test_a_view_key_names_its_session_and_ends_to_the_millisecond(world: World) -> None:
    keys = keys_of(world)
    session_id = keys.session_of(PAYER.lower(), NONCE, 0)
    ends_at_ms = world.clock.now_ms() + 1_000
    assert await keys.mint(session_id, "quote", payer=PAYER, ends_at_ms=ends_at_ms)
    assert await keys.mint(session_id, "quote", payer=PAYER, ends_at_ms=ends_at_ms + 5_000), "a repeat"
    key = await keys.find(session_id, "quote", PAYER.lower())
    assert key is not None
    principal = await principal_of(world, key)
    assert (principal.session_id, principal.workspace_id) == (session_id, keys.workspace_of(PAYER.lower()))
    assert opens_only(principal, session_id) is None
    for other in (keys.session_of(PAYER.lower(), NONCE, 1), None):
        refusal = opens_only(principal, other)
        assert refusal is not None
        assert refusal.detail == "apiKey:session"
    world.clock.at_ms += 999
    await principal_of(world, key)
    world.clock.at_ms += 1
    with pytest.raises(RefusedError) as ended:
        await principal_of(world, key)
    assert ended.value.refusal == refusals.REVOKED_KEY


async def test_another_quote_or_pepper_gives_no_key_of_the_session(world: World) -> None:
    keys = keys_of(world)
    session_id = keys.session_of(PAYER.lower(), NONCE, 0)
    assert await keys.mint(session_id, "quote", payer=PAYER, ends_at_ms=world.clock.now_ms() + 1_000)
    assert not await keys.mint(session_id, "another", payer=PAYER, ends_at_ms=world.clock.now_ms() + 1_000)
    assert await keys.find(session_id, "another", PAYER.lower()) is None
    stranger = ViewKeys(world.store, KeyHasher(b"another pepper..................."), world.clock)
    assert stranger.session_of(PAYER.lower(), NONCE, 0) != session_id
    assert stranger.seal("quoted") != keys.seal("quoted")
    assert await stranger.find(session_id, "quote", PAYER.lower()) is None


async def test_a_suspended_guest_gets_no_key(world: World) -> None:
    keys = keys_of(world, is_suspended=True)
    with pytest.raises(RefusedError) as refused:
        await keys.mint(keys.session_of(PAYER.lower(), NONCE, 0), "quote", payer=PAYER, ends_at_ms=1)
    assert refused.value.refusal == refusals.SUSPENDED
