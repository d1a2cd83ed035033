"""More time for a LIVE session over HTTP: bounds, repeats, refusals, and what both parties see."""

import pytest

from sightline.actors.deps import ActorLimits
from tests.http.world import World, WorldOptions, data_of, error_of, open_world

SESSIONS = "/api/v1/sessions"
RATE = 1_250


async def a_live_path(world: World, **wishes: object):
    """Consumer, operator and the path of their LIVE session of 60 s."""
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.request(consumer, **{"maxDurationSeconds": 60, **wishes})
    path = f"{SESSIONS}/{session['id']}"
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    data_of(await operator.key.post(f"{path}/start"))
    return consumer, operator, path


async def test_duration_hold_and_end_grow_together_and_both_parties_see_it(world: World) -> None:
    consumer, operator, path = await a_live_path(world)
    before = data_of(await operator.key.get(path))
    extended = data_of(await consumer.key.post(f"{path}/extend", {"seconds": 600}))
    assert (extended["state"], extended["maxDurationSeconds"]) == ("LIVE", 660)
    assert extended["holdMicroUsdc"] == str(660 * RATE)
    seen = data_of(await operator.key.get(path))
    assert seen["maxDurationSeconds"] == 660
    assert seen["expiresAt"] == extended["expiresAt"] > before["expiresAt"]
    events = data_of(await consumer.key.get(f"{path}/meter/events"))["items"]
    [event] = [event for event in events if event["kind"] == "EXTENDED"]
    assert {fact["name"]: fact["value"] for fact in event["facts"]} == {
        "seconds": 600,
        "maxDurationSeconds": 660,
        "holdMicroUsdc": str(660 * RATE),
    }


async def test_a_repeat_with_the_same_key_extends_once_and_another_key_again(world: World) -> None:
    consumer, _, path = await a_live_path(world)
    for name, seconds in (("one", 70), ("one", 70), ("two", 80)):
        answer = await consumer.key.post(f"{path}/extend", {"seconds": 10}, headers={"idempotency-key": name})
        assert data_of(answer)["maxDurationSeconds"] == seconds
    assert data_of(await consumer.key.get(path))["maxDurationSeconds"] == 80


async def test_only_the_consumer_extends_and_only_while_live(world: World) -> None:
    consumer, operator, path = await a_live_path(world)
    stranger = await world.party("CONSUMER")
    for party in (operator, stranger):
        assert error_of(await party.key.post(f"{path}/extend", {"seconds": 10}))[:2] == (403, "NOT_AUTHORIZED")
    data_of(await consumer.key.post(f"{path}/end"))
    refused = await consumer.key.post(f"{path}/extend", {"seconds": 10})
    assert error_of(refused) == (409, "INVALID_STATE", "session:state")
    assert refused.json()["state"] == "ENDED"
    requested = await world.request(consumer)
    early = await consumer.key.post(f"{SESSIONS}/{requested['id']}/extend", {"seconds": 10})
    assert error_of(early) == (409, "INVALID_STATE", "session:state")


@pytest.mark.parametrize("seconds", [0, -1, 14_401, 1.5, "60", None])
async def test_seconds_are_a_whole_number_within_bounds(world: World, seconds: object) -> None:
    consumer, _, path = await a_live_path(world)
    refused = await consumer.key.post(f"{path}/extend", {"seconds": seconds})
    assert error_of(refused) == (400, "INVALID_INPUT", "session:duration")


async def test_a_session_lasts_at_most_four_hours_with_its_extensions(world: World) -> None:
    consumer, _, path = await a_live_path(world)
    refused = await consumer.key.post(f"{path}/extend", {"seconds": 14_341})
    assert error_of(refused) == (400, "INVALID_INPUT", "session:duration")
    assert "14340" in refused.json()["hint"]
    assert data_of(await consumer.key.post(f"{path}/extend", {"seconds": 14_340}))["maxDurationSeconds"] == 14_400


async def test_a_hold_above_the_callers_maximum_or_the_contracts_cap_extends_nothing() -> None:
    async with open_world(WorldOptions(limits=ActorLimits(session_cap_micro=100 * RATE))) as world:
        consumer, _, path = await a_live_path(world)
        above = await consumer.key.post(f"{path}/extend", {"seconds": 20, "maxHoldMicroUsdc": str(80 * RATE - 1)})
        assert error_of(above) == (409, "CONFLICT", "pricing:aboveMaximum")
        over = await consumer.key.post(f"{path}/extend", {"seconds": 41})
        assert error_of(over) == (400, "INVALID_INPUT", "session:cap")
        assert data_of(await consumer.key.get(path))["maxDurationSeconds"] == 60
        taken = await consumer.key.post(f"{path}/extend", {"seconds": 40, "maxHoldMicroUsdc": str(100 * RATE)})
        assert data_of(taken)["holdMicroUsdc"] == str(100 * RATE)


async def test_a_payment_is_refused_where_nothing_is_held(world: World) -> None:
    consumer, _, path = await a_live_path(world)
    payment = {"kind": "consent", "openBy": 2_000_000_000, "signature": "0x" + "ab" * 65}
    refused = await consumer.key.post(f"{path}/extend", {"seconds": 10, "payment": payment})
    assert error_of(refused) == (409, "INVALID_STATE", "session:escrow")
    terms = await consumer.key.get(f"{path}/extend/terms?seconds=10")
    assert error_of(terms) == (404, "NOT_FOUND", "session:escrow")
