"""Attacks on the market: hold the operators, make them OFFLINE, move the price, make the service pay."""

from typing import Any

from tests.attack.catalogue import attack
from tests.attack.target import Target
from tests.e2e.server import PLACE, Tenant

QUOTE = f"/pricing/quote?lat={PLACE[0]}&lng={PLACE[1]}&durationSeconds=60"


async def request_session(target: Target, consumer: Tenant, place: tuple[float, float] = PLACE) -> Any:
    body = {"lat": place[0], "lng": place[1], "maxDurationSeconds": 60}
    answer = await target.call("POST", "/sessions", consumer.key, body)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


@attack("H5", "One OFFLINE supplier accepts every tenant's request")
async def hoarding_supplier(target: Target) -> str:
    hoarder = await target.tenant("SUPPLIER")
    accepted = 0
    for _ in range(5):
        session = await request_session(target, await target.tenant("CONSUMER"))
        answer = await target.call(
            "POST", f"/sessions/{session['id']}/accept", hoarder.key, {"operatorWorkspaceId": hoarder.workspace_id}
        )
        accepted += answer.status_code == 200
    assert accepted <= 3, f"{accepted} of 5 accepted"
    await target.call("POST", "/sessions/cancel-all-assignments", hoarder.key)
    return f"{accepted} of 5 accepted, then 409"


@attack("H5", "One workspace without funds makes every operator BUSY by dispatch")
async def occupying_consumer(target: Target) -> str:
    place = (10.0, 10.0)
    operators = [await target.operator(place) for _ in range(5)]
    consumer = await target.tenant("CONSUMER")
    statuses = []
    for _ in operators:
        session = await request_session(target, consumer, place)
        statuses.append((await target.call("POST", f"/sessions/{session['id']}/dispatch", consumer.key)).status_code)
    for operator in operators:
        await target.call("POST", "/sessions/cancel-all-assignments", operator.key)
    assert statuses.count(200) <= 3, statuses
    assert set(statuses) <= {200, 429}, statuses
    return f"{statuses.count(200)} of 5 dispatched, then 429"


@attack("M7", "Five free requests of one workspace move the price")
async def price_by_requests(target: Target) -> str:
    place_quote = QUOTE.replace(str(PLACE[0]), "20.0").replace(str(PLACE[1]), "20.0")
    buyer, crowd = await target.tenant("CONSUMER"), await target.tenant("CONSUMER")
    before = (await target.call("GET", place_quote, buyer.key)).json()["data"]
    for _ in range(5):
        await request_session(target, crowd, (20.0, 20.0))
    after = (await target.call("GET", place_quote, buyer.key)).json()["data"]
    assert after["demandFactor"] == before["demandFactor"], (before["demandFactor"], after["demandFactor"])
    return f"demand factor stays {after['demandFactor']}"


@attack("M4", "A session without any proof is charged")
async def charge_without_proof(target: Target) -> str:
    consumer, operator = await target.tenant("CONSUMER"), await target.operator()
    started = await target.live_session(consumer, operator)
    path = f"/sessions/{started['session']['id']}"
    ended = (await target.call("POST", f"{path}/end", operator.key)).json()["data"]
    assert (ended["cleanSeconds"], ended["chargedMicroUsdc"]) == (0, "0"), ended["chargedMicroUsdc"]
    return "charged 0"
