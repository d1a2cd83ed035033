"""Workspaces over HTTP."""

from datetime import datetime
from typing import Any

import pytest

from tests.http.world import Client, World, data_of, error_of

CHALLENGE = "/api/v1/workspaces/challenge"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def test_a_new_supplier_is_offline_everywhere_and_other(world: World) -> None:
    account = world.account()
    workspace = await world.create_workspace(account, "SUPPLIER", slug="harbour-cams", name="  Harbour Cams ")
    assert workspace == {
        "id": workspace["id"],
        "slug": "harbour-cams",
        "name": "Harbour Cams",
        "walletAddress": account.address,
        "roles": ["SUPPLIER"],
        "availabilityState": "OFFLINE",
        "coverageLat": None,
        "coverageLng": None,
        "coverageRadiusMeters": None,
        "deviceKind": "OTHER",
        "lastSeenAt": None,
        "createdAt": workspace["createdAt"],
        "createdByWallet": account.address,
        "deletedAt": None,
        "passedOverUntil": None,
    }


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"slug": "A"}, "workspace:slug"),
        ({"slug": "ab"}, "workspace:slug"),
        ({"slug": "-abc"}, "workspace:slug"),
        ({"slug": "a" * 33}, "workspace:slug"),
        ({"name": "   "}, "workspace:name"),
        ({"name": "x" * 81}, "workspace:name"),
        ({"name": "a\u0000b"}, "workspace:name"),
        ({"roles": []}, "workspace:roles"),
        ({"roles": ["CONSUMER", "CONSUMER"]}, "workspace:roles"),
        ({"roles": ["ADMIN"]}, "workspace:roles"),
        ({"walletAddress": "me"}, "workspace:walletAddress"),
        ({"signature": 7}, "workspace:signature"),
    ],
)
async def test_creation_names_the_wrong_field(world: World, fields: dict[str, Any], detail: str) -> None:
    body = {"walletAddress": world.account().address, "nonce": "n", "signature": "0x", "slug": "abc", "name": "n"}
    answer = await world.anyone.post("/api/v1/workspaces", body | {"roles": ["CONSUMER"]} | fields)
    assert error_of(answer) == (400, "INVALID_INPUT", detail)


async def test_a_taken_slug_is_a_conflict(world: World) -> None:
    await world.create_workspace(world.account(), "CONSUMER", slug="taken")
    proof = await world.signed(world.account(), CHALLENGE)
    body = proof | {"slug": "taken", "name": "Again", "roles": ["CONSUMER"]}
    assert error_of(await world.anyone.post("/api/v1/workspaces", body)) == (409, "CONFLICT", "workspace:slug")


async def test_creation_repeated_with_its_key_gives_the_same_workspace(world: World) -> None:
    client = world.anyone.having(idempotency_key="create-1")
    proof = await world.signed(world.account(), CHALLENGE)
    body = proof | {"slug": "only-once", "name": "Once", "roles": ["CONSUMER"]}
    first = await client.post("/api/v1/workspaces", body)
    second = await client.post("/api/v1/workspaces", body)
    assert data_of(first) == data_of(second)
    assert first.json()["timestamp"] == second.json()["timestamp"]
    other = await client.post("/api/v1/workspaces", body | {"name": "Other"})
    assert error_of(other) == (409, "CONFLICT", "idempotency:mismatch")


async def test_a_wallet_lists_its_workspaces_with_its_role_and_a_key_cannot(world: World) -> None:
    party = await world.party("CONSUMER")
    second = await world.create_workspace(party.account, "SUPPLIER")
    listed = data_of(await party.wallet.get("/api/v1/workspaces"))
    assert {each["id"] for each in listed["items"]} == {party.id, second["id"]}
    assert {each["role"] for each in listed["items"]} == {"OWNER"}
    assert listed["nextCursor"] is None
    assert error_of(await party.key.get("/api/v1/workspaces"))[:2] == (401, "NOT_AUTHENTICATED")
    unselected = Client(world, {"cookie": await world.login(party.account)})
    assert len(data_of(await unselected.get("/api/v1/workspaces"))["items"]) == 2


async def test_a_workspace_is_read_by_its_own(world: World) -> None:
    party, other = await world.party("CONSUMER"), await world.party("CONSUMER")
    assert data_of(await party.key.get(party.path)) == party.workspace
    assert error_of(await party.key.get(other.path)) == (403, "NOT_AUTHORIZED", "workspace:mismatch")
    assert error_of(await party.key.get(f"/api/v1/workspaces/{UNKNOWN}")) == (404, "NOT_FOUND", None)
    assert error_of(await party.key.get("/api/v1/workspaces/seven"))[:2] == (400, "INVALID_INPUT")


async def test_a_supplier_changes_everything_that_is_its_own(world: World) -> None:
    party = await world.party("SUPPLIER")
    change = {
        "name": "  New name ",
        "availabilityState": "ONLINE",
        "coverageLat": 52.12345678,
        "coverageLng": 13,
        "coverageRadiusMeters": 1500,
        "deviceKind": "DRONE",
    }
    changed = data_of(await party.key.patch(party.path, change))
    assert changed | {"roles": ["SUPPLIER"]} == party.workspace | change | {
        "name": "New name",
        "coverageLat": 52.123457,
    }
    assert data_of(await party.wallet.get(party.path)) == changed
    assert data_of(await party.key.patch(party.path, change)) == changed


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "workspace:empty"),
        ({"colour": "red"}, "workspace:empty"),
        ({"name": ""}, "workspace:name"),
        ({"name": None}, "workspace:name"),
        ({"availabilityState": "BUSY"}, "workspace:availabilityState"),
        ({"coverageLat": 1}, "workspace:coverage"),
        ({"coverageLat": 91, "coverageLng": 1}, "workspace:coverageLat"),
        ({"coverageLat": 1, "coverageLng": "1"}, "workspace:coverageLng"),
        ({"coverageRadiusMeters": 0}, "workspace:coverageRadiusMeters"),
        ({"coverageRadiusMeters": 100_001}, "workspace:coverageRadiusMeters"),
        ({"deviceKind": "TOASTER"}, "workspace:deviceKind"),
        ([], "workspace:body"),
    ],
)
async def test_a_wrong_change_names_the_field(world: World, body: Any, detail: str) -> None:
    party = await world.party("SUPPLIER")
    assert error_of(await party.key.patch(party.path, body)) == (400, "INVALID_INPUT", detail)


async def test_a_consumer_may_rename_itself_and_nothing_else(world: World) -> None:
    party = await world.party("CONSUMER")
    assert data_of(await party.key.patch(party.path, {"name": "Renamed"}))["name"] == "Renamed"
    answer = await party.key.patch(party.path, {"availabilityState": "ONLINE"})
    assert error_of(answer)[:2] == (403, "NOT_AUTHORIZED")


async def test_availability_cannot_change_while_busy(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await world.live(consumer, operator)
    answer = await operator.key.patch(operator.path, {"availabilityState": "OFFLINE"})
    assert error_of(answer) == (409, "INVALID_STATE", "workspace:busy")
    data_of(await operator.key.patch(operator.path, {"name": "Still renamable"}))


async def test_members_come_and_go_but_an_owner_stays(world: World) -> None:
    party, helper = await world.party("CONSUMER"), world.account()
    path = f"{party.path}/members"
    viewer = await party.join(helper, "VIEWER")
    assert data_of(await viewer.get("/api/v1/me"))["role"] == "VIEWER"
    assert error_of(await viewer.get(path))[:2] == (403, "NOT_AUTHORIZED")
    roles = [each["role"] for each in data_of(await party.wallet.get(path))["items"]]
    assert roles == ["OWNER", "VIEWER"]
    data_of(await party.wallet.delete(f"{path}/{helper.address.lower()}"))
    assert error_of(await party.wallet.delete(f"{path}/{helper.address}")) == (404, "NOT_FOUND", "workspace:member")
    last = await party.wallet.delete(f"{path}/{party.account.address}")
    assert error_of(last) == (409, "INVALID_STATE", "workspace:lastOwner")
    wrong = await party.wallet.post(path, {"walletAddress": helper.address, "role": "KING"})
    assert error_of(wrong) == (400, "INVALID_INPUT", "member:role")


async def test_an_operator_that_did_not_start_is_told_until_when_it_is_passed_over(world: World) -> None:
    operator = await world.party("SUPPLIER")
    assert data_of(await operator.key.get(operator.path))["passedOverUntil"] is None
    session = await world.miss_start(await world.party("CONSUMER"), operator)
    told = data_of(await operator.key.get(operator.path))["passedOverUntil"]
    changed = data_of(await operator.key.patch(operator.path, {"name": "Renamed"}))
    assert changed["passedOverUntil"] == told is not None
    left_s = (datetime.fromisoformat(told).timestamp() * 1000 - world.clock.now_ms()) / 1000
    assert 0 < left_s <= 60
    accept = f"/api/v1/sessions/{session['id']}/accept"
    refused = await operator.key.post(accept, {"operatorWorkspaceId": operator.id})
    assert error_of(refused)[:2] == (409, "INVALID_STATE")
    world.clock.advance(60)
    assert data_of(await operator.key.get(operator.path))["passedOverUntil"] is None


async def test_an_operator_that_is_offline_is_not_said_to_be_passed_over(world: World) -> None:
    operator = await world.party("SUPPLIER")
    await world.miss_start(await world.party("CONSUMER"), operator)
    offline = data_of(await operator.key.patch(operator.path, {"availabilityState": "OFFLINE"}))
    online = data_of(await operator.key.patch(operator.path, {"availabilityState": "ONLINE"}))
    assert offline["passedOverUntil"] is None
    assert online["passedOverUntil"] is not None
