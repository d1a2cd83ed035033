"""Attacks on the market: hold the operators, make them OFFLINE, move the price, make the service pay."""

from typing import Any

import trio

from sightline.chain.contracts.abi import call_data
from tests.attack.catalogue import Kind, attack
from tests.attack.rows.money.on_the_chain import a_funded_tenant, signed
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


@attack(
    "A5",
    "One workspace without funds holds every operator",
    before="BROKEN: 5 of 5 sessions were created, 3 of them dispatched at a time",
)
async def occupying_consumer(target: Target) -> str:
    place = (10.0, 10.0)
    operators = [await target.operator(place) for _ in range(5)]
    consumer = await target.tenant("CONSUMER")
    body = {"lat": place[0], "lng": place[1], "maxDurationSeconds": 14_400}
    created = [await target.call("POST", "/sessions", consumer.key, body) for _ in operators]
    held = [answer.json()["data"]["id"] for answer in created if answer.status_code == 200]
    for session_id in held:
        await target.call("POST", f"/sessions/{session_id}/dispatch", consumer.key)
    for operator in operators:
        await target.call("POST", "/sessions/cancel-all-assignments", operator.key)
    assert len(held) == 1, f"{len(held)} of 5 sessions created"
    assert {answer.json().get("detail") for answer in created[1:]} == {"wallet:unfunded"}
    return "1 of 5 sessions created, then 402"


@attack(
    "A5",
    "Operators that never react keep a request from an honest one",
    Kind.WAIT,
    before="BROKEN: after 60 s the request was with the first of them",
)
async def silent_operators(target: Target) -> str:
    place = (30.0, 30.0)
    for _ in range(3):
        await target.operator(place)
    honest = await target.operator(place)
    consumer = await target.tenant("CONSUMER")
    path = f"/sessions/{(await request_session(target, consumer, place))['id']}"
    started = trio.current_time()
    await target.call("POST", f"{path}/dispatch", consumer.key)
    chosen = None
    with trio.move_on_after(100):
        while chosen != honest.workspace_id:
            await trio.sleep(0.5)
            chosen = (await target.call("GET", path, consumer.key)).json()["data"]["operatorWorkspaceId"]
    assert chosen == honest.workspace_id, "after 100 s the request is with another operator"
    return f"the fourth operator had the request after {trio.current_time() - started:.0f} s"


@attack("M7", "Five free requests of one workspace move the price")
async def price_by_requests(target: Target) -> str:
    place_quote = QUOTE.replace(str(PLACE[0]), "20.0").replace(str(PLACE[1]), "20.0")
    buyer, crowd = await target.tenant("CONSUMER"), await target.tenant("CONSUMER")
    before = (await target.call("GET", place_quote, buyer.key)).json()["data"]
    body = {"lat": 20.0, "lng": 20.0, "maxDurationSeconds": 60}
    for _ in range(5):
        await target.call("POST", "/sessions", crowd.key, body)
    after = (await target.call("GET", place_quote, buyer.key)).json()["data"]
    assert after["demandFactor"] == before["demandFactor"], (before["demandFactor"], after["demandFactor"])
    return f"demand factor stays {after['demandFactor']}"


@attack(
    "B2", "Four wallets with 0.002 USDC raise the price by requests of a second", before="BROKEN: demand factor 1.6"
)
async def price_by_dust(target: Target) -> str:
    quote = QUOTE.replace(str(PLACE[0]), "40.0").replace(str(PLACE[1]), "40.0")
    config = (await target.call("GET", "/config")).json()["data"]
    crowd = [await a_funded_tenant(target, micro=2_000) for _ in range(4)]
    approval = "0x" + call_data("approve(address,uint256)", [config["settlementAddress"], 2_000]).hex()
    for each in crowd:
        raw = signed(each.wallet.private_key, 0, config["usdcAddress"], data=approval, gas=80_000)
        assert '"result"' in (await target.rpc("eth_sendRawTransaction", raw)).text
    for each in crowd:
        while (  # noqa: ASYNC110  the reading of a wallet tells nobody
            await target.call("GET", "/wallet", each.key)
        ).json()["data"]["availableMicroUsdc"] != "2000":
            await trio.sleep(0.1)
        body = {"lat": 40.0, "lng": 40.0, "maxDurationSeconds": 1}
        assert (await target.call("POST", "/sessions", each.key, body)).status_code == 200
    buyer = await target.tenant("CONSUMER")
    factor = (await target.call("GET", quote, buyer.key)).json()["data"]["demandFactor"]
    assert factor == 1, f"demand factor {factor}"
    return "demand factor stays 1"


@attack("M4", "A session without any proof is charged")
async def charge_without_proof(target: Target) -> str:
    consumer, operator = await target.tenant("CONSUMER"), await target.operator()
    started = await target.live_session(consumer, operator)
    path = f"/sessions/{started['session']['id']}"
    ended = (await target.call("POST", f"{path}/end", operator.key)).json()["data"]
    assert (ended["cleanSeconds"], ended["chargedMicroUsdc"]) == (0, "0"), ended["chargedMicroUsdc"]
    return "charged 0"
