"""Operator heartbeats over HTTP: one, many, and a WebSocket."""

from typing import Any

import pytest

from sightline.http.budgets import RateLimits
from sightline.http.schemas.base import iso
from sightline.http.services import ResourceOptions
from tests.http.socket_client import RefusedSocketError, SocketClosedByServerError, open_socket
from tests.http.world import BERLIN, World, WorldOptions, data_of, error_of, open_world

FULL = BERLIN | {
    "sequence": 1,
    "accuracyMeters": 3.5,
    "headingDegrees": 0,
    "speedMps": 1.5,
    "altitudeMeters": -12,
    "batteryPercent": 88,
    "source": "FUSED",
    "isMock": False,
}


async def test_a_heartbeat_is_seen_and_leaves_availability_alone(world: World) -> None:
    operator = await world.party("SUPPLIER")
    data = data_of(await operator.key.post(f"{operator.path}/location", FULL))
    assert (data["id"], data["availabilityState"]) == (operator.id, "OFFLINE")
    assert data["lastSeenAt"] is not None
    stored = await world.store.latest_heartbeat(operator.id)
    assert stored is not None
    assert (stored.sequence, stored.fix.accuracy_m, stored.battery_percent) == (1, 3.5, 88)


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"lat": 91}, "location:lat"),
        ({"lng": "13"}, "location:lng"),
        ({"sequence": -1}, "location:sequence"),
        ({"sequence": 9_007_199_254_740_992}, "location:sequence"),
        ({"sequence": "1.0"}, "location:sequence"),
        ({"sequence": None}, "location:sequence"),
        ({"accuracyMeters": 100_001}, "location:accuracyMeters"),
        ({"headingDegrees": 360}, "location:headingDegrees"),
        ({"speedMps": 1_001}, "location:speedMps"),
        ({"altitudeMeters": -501}, "location:altitudeMeters"),
        ({"batteryPercent": 101}, "location:batteryPercent"),
        ({"capturedAt": "now"}, "location:capturedAt"),
        ({"source": "STARS"}, "location:source"),
        ({"isMock": "no"}, "location:isMock"),
        ({"sessionId": "x"}, "location:sessionId"),
    ],
)
async def test_a_wrong_heartbeat_names_the_field(world: World, fields: dict[str, Any], detail: str) -> None:
    operator = await world.party("SUPPLIER")
    answer = await operator.key.post(f"{operator.path}/location", FULL | fields)
    assert error_of(answer) == (400, "INVALID_INPUT", detail)


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence": "9007199254740991"},
        {"sequence": 0, "headingDegrees": None, "speedMps": None, "source": None, "isMock": None, "sessionId": None},
        {"headingDegrees": 359.999, "accuracyMeters": 0, "altitudeMeters": 20_000, "speedMps": 1_000},
        {"capturedAt": "2020-01-01T00:00:00+02:00"},
    ],
)
async def test_what_is_within_bounds_is_taken(world: World, fields: dict[str, Any]) -> None:
    operator = await world.party("SUPPLIER")
    data_of(await operator.key.post(f"{operator.path}/location", FULL | fields))


@pytest.mark.parametrize("count", [100, 101, 200])
async def test_as_many_stored_heartbeats_as_are_allowed_in_a_call_pass_its_rate_limit(count: int) -> None:
    async with open_world(WorldOptions(rate_limits=RateLimits())) as world:
        operator = await world.party("SUPPLIER")
        items = [BERLIN | {"sequence": number} for number in range(1, count + 1)]
        taken = data_of(await operator.key.post(f"{operator.path}/locations", {"items": items}))
        assert all(each["ok"] for each in taken["items"])
        soon = await operator.key.post(f"{operator.path}/location", BERLIN | {"sequence": count + 1})
        assert error_of(soon) == (429, "RATE_LIMITED", "rate:location"), "the batch took a token for each ten"
        assert 1 <= int(soon.headers["retry-after"]) <= 3


async def test_a_sequence_may_be_2_to_the_31_above_the_last_and_the_owner_can_reset_it(world: World) -> None:
    operator = await world.party("SUPPLIER")
    data_of(await operator.beat(sequence=10))
    jumped = await operator.beat(sequence=11 + 2**31)
    assert error_of(jumped) == (400, "INVALID_INPUT", "location:sequence")
    assert "one, 10" in jumped.json()["hint"]
    data_of(await operator.beat(sequence=10 + 2**31))
    items = [BERLIN | {"sequence": 11 + 2**31}, BERLIN | {"sequence": 2**53 - 1}]
    batch = data_of(await operator.key.post(f"{operator.path}/locations", {"items": items}))
    assert [each["ok"] for each in batch["items"]] == [True, False]
    for _ in range(2):  # a second reset changes nothing
        data_of(await operator.wallet.post(f"{operator.path}/location/reset"))
    data_of(await operator.beat(sequence=3))
    refused = await operator.beat(sequence=3)
    assert (error_of(refused)[0], refused.json()["lastSequence"]) == (409, 3)
    recorded = await world.store.latest_heartbeat(operator.id)
    assert recorded is not None
    assert recorded.sequence == 12 + 2**31 + 3  # those recorded before the reset stay below


async def test_sequences_rise_and_the_conflict_names_the_last(world: World) -> None:
    operator = await world.party("SUPPLIER")
    data_of(await operator.beat(sequence=41))
    for sequence in (41, 40, 0):
        answer = await operator.beat(sequence=sequence)
        assert error_of(answer) == (409, "CONFLICT", "location:sequence")
        assert "41" in answer.json()["hint"]
    data_of(await operator.beat(sequence=1_000))


async def test_a_fix_from_the_future_is_refused(world: World) -> None:
    operator = await world.party("SUPPLIER")
    captured = iso(world.clock.now_ms() + 60_000)
    answer = await operator.beat(capturedAt=captured)
    assert error_of(answer) == (400, "INVALID_INPUT", "location:capturedAt")


async def test_a_session_that_is_not_live_here_is_409(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    other = await world.request(consumer)
    assert error_of(await operator.beat(sessionId=other["id"]))[:2] == (409, "INVALID_STATE")
    session = await world.live(consumer, operator)
    data_of(await operator.beat(sessionId=session["id"]))


async def test_only_a_supplier_reports_and_only_for_itself(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    assert error_of(await consumer.beat())[:2] == (403, "NOT_AUTHORIZED")
    answer = await operator.key.post(f"{consumer.path}/location", FULL)
    assert error_of(answer) == (403, "NOT_AUTHORIZED", "workspace:mismatch")


async def test_each_heartbeat_of_a_batch_is_judged_by_itself(world: World) -> None:
    operator = await world.party("SUPPLIER")
    items = [BERLIN | {"sequence": sequence} for sequence in (1, 3, 2, 4)]
    data = data_of(await operator.key.post(f"{operator.path}/locations", {"items": items}))
    assert [(each["sequence"], each["ok"]) for each in data["items"]] == [(1, True), (3, True), (2, False), (4, True)]
    assert data["items"][2]["code"] == "CONFLICT"
    assert data["workspace"]["id"] == operator.id
    for bad in ([], [BERLIN], [BERLIN | {"sequence": number} for number in range(201)]):
        answer = await operator.key.post(f"{operator.path}/locations", {"items": bad})
        assert error_of(answer) == (400, "INVALID_INPUT", "location:items")


async def test_heartbeats_over_a_websocket_are_acknowledged_once_durable(world: World) -> None:
    operator = await world.party("SUPPLIER")
    path = f"{operator.path}/location/stream"
    async with open_socket(world.base_url, path, operator.key.headers) as socket:
        assert await socket.ask(BERLIN | {"sequence": 1}) == {"sequence": 1, "ok": True}
        stored = await world.store.latest_heartbeat(operator.id)
        assert stored is not None
        assert stored.sequence == 1
        refused = await socket.ask(BERLIN | {"sequence": 1})
        assert (refused["ok"], refused["code"], refused["detail"]) == (False, "CONFLICT", "location:sequence")
        wrong = await socket.ask({"lat": 1})
        assert (wrong["sequence"], wrong["detail"]) == (None, "location:lng")
        assert (await socket.ask("not json"))["detail"] == "body:json"
        assert await socket.ask(BERLIN | {"sequence": 2}) == {"sequence": 2, "ok": True}


async def test_a_websocket_needs_credential_scope_and_origin(world: World) -> None:
    operator = await world.party("SUPPLIER")
    path = f"{operator.path}/location/stream"
    reader = await operator.mint("sessions:read")
    foreign = operator.wallet.headers | {"origin": "https://evil.example"}
    for headers, status, code in (
        ({}, 401, "NOT_AUTHENTICATED"),
        (reader.headers, 403, "NOT_AUTHORIZED"),
        (foreign, 403, "NOT_AUTHORIZED"),
    ):
        with pytest.raises(RefusedSocketError) as refused:
            async with open_socket(world.base_url, path, headers):
                pass
        assert (refused.value.status, refused.value.envelope["code"]) == (status, code)
    own = operator.wallet.headers | {"origin": world.base_url}
    async with open_socket(world.base_url, path, own) as socket:
        assert (await socket.ask(BERLIN | {"sequence": 1}))["ok"]


async def test_a_websocket_for_another_workspace_is_closed_with_the_reason(world: World) -> None:
    operator, other = await world.party("SUPPLIER"), await world.party("SUPPLIER")
    async with open_socket(world.base_url, f"{other.path}/location/stream", operator.key.headers) as socket:
        with pytest.raises(SocketClosedByServerError) as closed:
            await socket.receive()
    assert (closed.value.code, closed.value.reason) == (1008, "NOT_AUTHORIZED workspace:mismatch")


async def test_a_websocket_ends_at_its_lifetime_so_that_its_credential_is_checked_again() -> None:
    async with open_world(WorldOptions(resources=ResourceOptions(stream_lifetime_ms=200))) as world:
        operator = await world.party("SUPPLIER")
        path = f"{operator.path}/location/stream"
        async with open_socket(world.base_url, path, operator.key.headers) as socket:
            with pytest.raises(SocketClosedByServerError) as closed:
                await socket.receive()
        assert closed.value.code == 1000
