"""Grants: each code and each refresh token is used once, by its own client; a second use ends the access."""

import pytest

from sightline.domain.access import ApiKeyPrincipal, KeyLimits
from sightline.domain.errors import RefusedError
from sightline.domain.units import DAY_MS, HOUR_MS, MicroUsdc
from sightline.identity.api_keys import GRANT_CACHE_MS
from sightline.identity.oauth.clients import OAuthClient
from sightline.identity.oauth.grants import CODE_MS, REUSE_MS, Grants, MemberConsent, TokenPair, challenge_of
from sightline.identity.oauth.requests import AGENT_SCOPES, AuthorizationRequest, OAuthError
from tests.identity.world import World

VERIFIER = "a verifier that is long enough for the rule of RFC 7636"
CLIENT = OAuthClient(client_id="the client", name="Agent", redirect_uris=("http://127.0.0.1/cb",))
REQUEST = AuthorizationRequest(
    client_id=CLIENT.client_id,
    redirect_uri="http://127.0.0.1:3000/cb",
    state=None,
    challenge=challenge_of(VERIFIER),
    scopes=AGENT_SCOPES,
    resource="https://sightline.test/mcp",
)
USUAL = {
    "client_id": CLIENT.client_id,
    "redirect_uri": REQUEST.redirect_uri,
    "verifier": VERIFIER,
    "resource": REQUEST.resource,
}


class GrantWorld:
    """A workspace whose owner allows a client."""

    def __init__(self) -> None:
        self.world = world = World()
        self.clock = world.clock
        self.grants = Grants(world.store.grants, world.keys, world.hasher, world.clock, world.ids)
        self.owner = world.wallet().address
        self.workspace_id = ""

    async def allow(self, limits: KeyLimits | None = None) -> str:
        if not self.workspace_id:
            self.workspace_id = await self.world.workspace(self.owner)
        consent = MemberConsent(workspace_id=self.workspace_id, allowed_by=self.owner, days=30, limits=limits)
        return await self.grants.allow(consent, REQUEST, CLIENT)

    async def exchange(self, code: str, **changes: str | None) -> TokenPair:
        return await self.grants.exchange(code, **(USUAL | changes))  # type: ignore[arg-type]

    async def principal(self, token: str) -> ApiKeyPrincipal:
        found = await self.world.authenticator.authenticate({"authorization": f"Bearer {token}"})
        assert isinstance(found, ApiKeyPrincipal)
        return found

    async def is_refused(self, token: str) -> str | None:
        with pytest.raises(RefusedError) as refused:
            await self.principal(token)
        return refused.value.refusal.detail


@pytest.fixture
def granting() -> GrantWorld:
    return GrantWorld()


async def test_a_code_gives_a_key_of_its_workspace_with_an_end_and_the_limits_of_the_member(
    granting: GrantWorld,
) -> None:
    limits = KeyLimits(per_day=MicroUsdc(2_000_000))
    pair = await granting.exchange(await granting.allow(limits))
    principal = await granting.principal(pair.access_token)
    assert (principal.workspace_id, principal.limits, principal.scopes) == (
        granting.workspace_id,
        limits,
        frozenset(AGENT_SCOPES),
    )
    (key,) = await granting.world.keys.keys_in(granting.workspace_id)
    assert (key.key_id, key.label, key.created_by_wallet) == (principal.key_id, "Agent", granting.owner)
    assert key.expires_at_ms == granting.clock.now_ms() + 30 * DAY_MS
    assert pair.expires_in_s == 3_600
    assert await granting.is_refused(pair.refresh_token) == "auth:credential", "a refresh token opens nothing"
    granting.clock.at_ms += HOUR_MS
    assert await granting.is_refused(pair.access_token) == "auth:expired"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"client_id": "another"}, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:3001/cb"}, "invalid_grant"),
        ({"verifier": VERIFIER + "."}, "invalid_grant"),
        ({"resource": "https://other.test/mcp"}, "invalid_target"),
    ],
)
async def test_a_code_is_of_no_use_with_another_client_redirect_verifier_or_resource(
    granting: GrantWorld, changes: dict[str, str], error: str
) -> None:
    code = await granting.allow()
    with pytest.raises(OAuthError, match=error):
        await granting.exchange(code, **changes)
    assert await granting.principal((await granting.exchange(code)).access_token), "the code itself is still good"


async def test_a_code_ends_after_a_minute_and_its_grant_with_it(granting: GrantWorld) -> None:
    code = await granting.allow()
    granting.clock.at_ms += CODE_MS
    with pytest.raises(OAuthError, match="expired"):
        await granting.exchange(code)
    (key,) = await granting.world.keys.keys_in(granting.workspace_id)
    assert key.expires_at_ms == granting.clock.now_ms()


async def test_a_code_that_is_used_twice_ends_its_tokens(granting: GrantWorld) -> None:
    code = await granting.allow()
    pair = await granting.exchange(code)
    with pytest.raises(OAuthError, match="invalid_grant"):
        await granting.exchange(code)
    granting.clock.at_ms += GRANT_CACHE_MS
    assert await granting.is_refused(pair.access_token) == "apiKey:revoked"
    with pytest.raises(OAuthError, match="revoked"):
        await granting.grants.refresh(pair.refresh_token, client_id=CLIENT.client_id)


async def test_a_refresh_token_gives_new_tokens_of_the_same_key(granting: GrantWorld) -> None:
    pair = await granting.exchange(await granting.allow())
    first = await granting.principal(pair.access_token)
    granting.clock.at_ms += HOUR_MS
    again = await granting.grants.refresh(pair.refresh_token, client_id=CLIENT.client_id)
    assert (await granting.principal(again.access_token)).key_id == first.key_id, "its limits go on counting"
    with pytest.raises(OAuthError, match="invalid_grant"):
        await granting.grants.refresh(again.access_token, client_id=CLIENT.client_id)
    with pytest.raises(OAuthError, match="invalid_grant"):
        await granting.grants.refresh(again.refresh_token, client_id="another")
    granting.clock.at_ms += 30 * DAY_MS
    with pytest.raises(OAuthError, match="ended"):
        await granting.grants.refresh(again.refresh_token, client_id=CLIENT.client_id)


async def test_a_refresh_token_may_be_repeated_for_30_seconds_and_then_ends_the_access(granting: GrantWorld) -> None:
    pair = await granting.exchange(await granting.allow())
    lost = await granting.grants.refresh(pair.refresh_token, client_id=CLIENT.client_id)
    granting.clock.at_ms += REUSE_MS - 1
    repeated = await granting.grants.refresh(pair.refresh_token, client_id=CLIENT.client_id)
    assert await granting.principal(repeated.access_token)
    granting.clock.at_ms += 1
    with pytest.raises(OAuthError, match="used before"):
        await granting.grants.refresh(pair.refresh_token, client_id=CLIENT.client_id)
    granting.clock.at_ms += GRANT_CACHE_MS
    for token in (lost.access_token, repeated.access_token):
        assert await granting.is_refused(token) == "apiKey:revoked"


async def test_a_member_revokes_a_grant_like_a_key_and_its_client_by_a_token(granting: GrantWorld) -> None:
    for by_client in (False, True):
        pair = await granting.exchange(await granting.allow())
        principal = await granting.principal(pair.access_token)
        if by_client:
            await granting.grants.revoke(pair.refresh_token, client_id="another")
            await granting.grants.revoke("svc_unknown", client_id=CLIENT.client_id)
            assert await granting.principal(pair.access_token)
            await granting.grants.revoke(pair.refresh_token, client_id=CLIENT.client_id)
        else:
            await granting.world.keys.revoke(granting.workspace_id, principal.key_id)
        granting.clock.at_ms += GRANT_CACHE_MS
        assert await granting.is_refused(pair.access_token) == "apiKey:revoked"


async def test_grants_that_have_ended_leave_room_for_new_keys(granting: GrantWorld) -> None:
    for _ in range(50):
        await granting.allow()
    with pytest.raises(RefusedError, match="CONFLICT"):
        await granting.allow()
    granting.clock.at_ms += CODE_MS
    await granting.allow()


def test_tokens_are_not_shown_by_repr() -> None:
    pair = TokenPair(access_token="svc_test_secret", refresh_token="svc_test_secret", expires_in_s=1, scopes=())
    assert "secret" not in repr(pair)
