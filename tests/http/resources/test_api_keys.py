"""API keys over HTTP."""

import re
from typing import Any

import pytest

from tests.http.world import BERLIN, Client, Party, World, data_of, error_of

UNKNOWN = "00000000-0000-4000-8000-000000000000"
BODY = {"label": "agent", "environment": "TEST", "scopes": ["sessions:read"]}


async def test_the_plaintext_is_shown_once_and_works(world: World) -> None:
    party = await world.party("CONSUMER")
    minted = data_of(await party.wallet.post(f"{party.path}/api-keys", BODY))
    assert re.fullmatch(f"svc_test_{party.id[:6]}_[0-9A-Za-z]{{43}}", minted["plaintext"])
    assert minted["prefix"]
    assert minted["plaintext"].startswith(minted["prefix"])
    listed = data_of(await party.wallet.get(f"{party.path}/api-keys"))["items"]
    assert listed[0] == {key: value for key, value in minted.items() if key != "plaintext"}
    assert all("plaintext" not in each for each in listed)
    client = Client(world, {"authorization": f"Bearer {minted['plaintext']}"})
    assert data_of(await client.get("/api/v1/me"))["keyId"] == minted["keyId"]


async def test_a_revoked_key_works_for_its_grace_and_no_longer(world: World) -> None:
    party = await world.party("CONSUMER")
    minted = data_of(await party.wallet.post(f"{party.path}/api-keys", BODY))
    client = Client(world, {"authorization": f"Bearer {minted['plaintext']}"})
    path = f"{party.path}/api-keys/{minted['keyId']}/revoke"
    revoked = data_of(await party.wallet.post(path))
    assert revoked["revokedAt"]
    assert revoked["gracePeriodEnd"] > revoked["revokedAt"]
    world.clock.advance(50)
    assert data_of(await party.wallet.post(path)) == revoked | {"lastUsedAt": None}
    data_of(await client.get("/api/v1/me"))
    world.clock.advance(11)
    assert error_of(await client.get("/api/v1/me")) == (401, "REVOKED_API_KEY", "apiKey:revoked")


async def revoked(world: World) -> tuple[Party, Client, str]:
    """A workspace, one of its keys that was used and then revoked, and the path of the key."""
    party = await world.party("CONSUMER")
    minted = data_of(await party.wallet.post(f"{party.path}/api-keys", BODY))
    client = Client(world, {"authorization": f"Bearer {minted['plaintext']}"})
    path = f"{party.path}/api-keys/{minted['keyId']}"
    data_of(await party.wallet.post(f"{path}/revoke"))
    data_of(await client.get("/api/v1/me"))
    return party, client, path


async def test_a_key_that_is_kept_during_its_grace_works_on_without_a_gap(world: World) -> None:
    party, client, path = await revoked(world)
    world.clock.advance(40)
    data_of(await client.get("/api/v1/me"))  # read again, and cached with its end
    world.clock.advance(19)
    kept = data_of(await party.wallet.post(f"{path}/keep"))
    assert (kept["revokedAt"], kept["gracePeriodEnd"]) == (None, None)
    assert data_of(await party.wallet.post(f"{path}/keep"))["revokedAt"] is None, "a repeat answers the same"
    world.clock.advance(5)
    data_of(await client.get("/api/v1/me"))
    again = data_of(await party.wallet.post(f"{path}/revoke"))
    assert again["revokedAt"]
    world.clock.advance(60)
    assert error_of(await client.get("/api/v1/me")) == (401, "REVOKED_API_KEY", "apiKey:revoked")


async def test_a_key_cannot_be_kept_after_its_grace(world: World) -> None:
    party, client, path = await revoked(world)
    world.clock.advance(60)
    assert error_of(await party.wallet.post(f"{path}/keep")) == (409, "INVALID_STATE", "apiKey:revoked")
    assert error_of(await client.get("/api/v1/me")) == (401, "REVOKED_API_KEY", "apiKey:revoked")
    unknown = await party.wallet.post(f"{party.path}/api-keys/{UNKNOWN}/keep")
    assert error_of(unknown) == (404, "NOT_FOUND", "apiKey:unknown")


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"environment": "LIVE"}, "apiKey:environment"),
        ({"label": ""}, "apiKey:label"),
        ({"label": "x" * 81}, "apiKey:label"),
        ({"scopes": []}, "apiKey:scopes"),
        ({"scopes": ["sessions:read", "sessions:read"]}, "apiKey:scopes"),
        ({"scopes": ["everything"]}, "apiKey:scopes"),
    ],
)
async def test_a_wrong_key_request_names_the_field(world: World, change: dict[str, Any], detail: str) -> None:
    party = await world.party("CONSUMER")
    answer = await party.wallet.post(f"{party.path}/api-keys", BODY | change)
    assert error_of(answer) == (400, "INVALID_INPUT", detail)


async def test_keys_cannot_touch_keys(world: World) -> None:
    party = await world.party("CONSUMER")
    refused = (403, "NOT_AUTHORIZED", "apiKey:walletSessionRequired")
    assert error_of(await party.key.get(f"{party.path}/api-keys")) == refused
    assert error_of(await party.key.post(f"{party.path}/api-keys", BODY)) == refused
    assert error_of(await party.key.post(f"{party.path}/api-keys/{UNKNOWN}/revoke")) == refused


async def test_minting_is_never_replayed(world: World) -> None:
    party = await world.party("CONSUMER")
    client = party.wallet.having(idempotency_key="mint-1")
    data_of(await client.post(f"{party.path}/api-keys", BODY))
    again = await client.post(f"{party.path}/api-keys", BODY)
    assert error_of(again) == (409, "CONFLICT", "idempotency:notReplayable")
    other = await client.post(f"{party.path}/api-keys", BODY | {"label": "other"})
    assert error_of(other)[:2] == (409, "CONFLICT")
    assert len(data_of(await party.wallet.get(f"{party.path}/api-keys"))["items"]) == 2


async def test_a_key_of_another_workspace_is_not_found(world: World) -> None:
    party, other = await world.party("CONSUMER"), await world.party("CONSUMER")
    key_id = data_of(await other.key.get("/api/v1/me"))["keyId"]
    answer = await party.wallet.post(f"{party.path}/api-keys/{key_id}/revoke")
    assert error_of(answer)[:2] == (404, "NOT_FOUND")
    answer = await party.wallet.post(f"{other.path}/api-keys/{key_id}/revoke")
    assert error_of(answer) == (403, "NOT_AUTHORIZED", "workspace:mismatch")


async def test_a_workspace_has_at_most_fifty_live_keys(world: World) -> None:
    party = await world.party("CONSUMER")
    for _ in range(49):
        data_of(await party.wallet.post(f"{party.path}/api-keys", BODY))
    answer = await party.wallet.post(f"{party.path}/api-keys", BODY)
    assert error_of(answer) == (409, "CONFLICT", "apiKey:limit")


SPENDING = BODY | {"scopes": ["sessions:create", "sessions:read"]}
SESSIONS = "/api/v1/sessions"


async def limited(world: World, party: Party, **limits: str) -> Client:
    """A key with these limits."""
    minted = data_of(await party.wallet.post(f"{party.path}/api-keys", SPENDING | {"limits": limits}))
    return Client(world, {"authorization": f"Bearer {minted['plaintext']}"})


async def test_the_limits_of_a_key_are_shown(world: World) -> None:
    party = await world.party("CONSUMER")
    await limited(world, party, perDayMicroUsdc="5000000")
    listed = data_of(await party.wallet.get(f"{party.path}/api-keys"))["items"]
    assert listed[0]["limits"] == {"perSessionMicroUsdc": None, "perDayMicroUsdc": "5000000"}
    assert listed[1]["limits"] is None


@pytest.mark.parametrize(
    "limits",
    [{}, {"perSessionMicroUsdc": "-1"}, {"perDayMicroUsdc": 5}, {"perDay": "5"}, {"perDayMicroUsdc": "1.5"}, "all"],
)
async def test_limits_that_limit_nothing_are_refused(world: World, limits: object) -> None:
    party = await world.party("CONSUMER")
    answer = await party.wallet.post(f"{party.path}/api-keys", SPENDING | {"limits": limits})
    assert error_of(answer) == (400, "INVALID_INPUT", "apiKey:limits")


async def test_a_key_creates_no_session_that_may_cost_more_than_its_limit(world: World) -> None:
    party = await world.party("CONSUMER")
    hold = int((await world.request(party, maxDurationSeconds=60))["holdMicroUsdc"])
    client = await limited(world, party, perSessionMicroUsdc=str(hold), perDayMicroUsdc=str(2 * hold + 1))
    answer = await client.post(SESSIONS, BERLIN | {"maxDurationSeconds": 61})
    assert error_of(answer) == (402, "INSUFFICIENT_CREDIT", "apiKey:spendLimit")
    assert answer.json()["remainingMicroUsdc"] == str(hold)
    first, _ = [data_of(await client.post(SESSIONS, BERLIN | {"maxDurationSeconds": 60})) for _ in range(2)]
    keyed = client.having(idempotency_key="third")
    answer = await keyed.post(SESSIONS, BERLIN | {"maxDurationSeconds": 60})
    assert error_of(answer) == (402, "INSUFFICIENT_CREDIT", "apiKey:spendLimit")
    assert answer.json()["remainingMicroUsdc"] == "1"
    data_of(await client.delete(f"{SESSIONS}/{first['id']}"))
    third = data_of(await keyed.post(SESSIONS, BERLIN | {"maxDurationSeconds": 60}))
    assert data_of(await keyed.post(SESSIONS, BERLIN | {"maxDurationSeconds": 60})) == third
    data_of(await party.key.post(SESSIONS, BERLIN | {"maxDurationSeconds": 14_400}))
