"""The same interface over the database that the server uses."""

import httpx
import trio

from sightline.storage.database.bridge import Database
from tests.http.world import BERLIN, Client, World, data_of, error_of, on_postgres, open_world

SESSIONS = "/api/v1/sessions"
ODD = 'quotes " and \\ and \u2028, emoji \U0001f6a2, a tab \t'


async def test_a_session_lives_its_life_on_postgres(database: Database) -> None:
    async with open_world(storage=await on_postgres(database)) as world:
        await live_a_life(world)


async def live_a_life(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online(coverageLat=52.5, coverageLng=13.4, coverageRadiusMeters=20_000)
    data_of(await operator.beat(capturedAt="2020-01-01T00:00:00Z", source="GPS", altitudeMeters=-3.5))
    items = [BERLIN | {"sequence": sequence} for sequence in (50, 50, 51)]
    verdicts = data_of(await operator.key.post(f"{operator.path}/locations", {"items": items}))["items"]
    assert [each["ok"] for each in verdicts] == [True, False, True]
    quote = data_of(await consumer.key.get("/api/v1/pricing/quote?lat=52.52&lng=13.405&durationSeconds=600"))
    keyed = consumer.key.having(idempotency_key="create " + "k" * 200)
    body = BERLIN | {"quoteId": quote["quoteId"], "instructions": ODD, "metadata": {ODD: [ODD, 1e-7, 2**53]}}
    session = data_of(await keyed.post(SESSIONS, body))
    assert data_of(await keyed.post(SESSIONS, body)) == session
    assert session["metadata"] == body["metadata"]
    again = await consumer.key.post(SESSIONS, body)
    assert error_of(again) == (409, "INVALID_STATE", "pricing:quoteConsumed")
    path = f"{SESSIONS}/{session['id']}"
    assigned = data_of(await consumer.key.having(idempotency_key="d").post(f"{path}/dispatch"))
    assert data_of(await consumer.key.having(idempotency_key="d").post(f"{path}/dispatch")) == assigned
    data_of(await operator.key.post(f"{path}/start"))
    for _ in range(3):
        world.clock.advance(4)
        data_of(await operator.beat(sequence=100 + next(operator.sequence), sessionId=session["id"]))
        world.video.show(session["id"], 1)
        assert (await consumer.key.get(f"{path}/frame")).status_code == 200
    ended = data_of(await consumer.wallet.post(f"{path}/end"))
    assert ended["cleanSeconds"] >= 12
    settlement = data_of(await operator.key.get(f"/api/v1/settlements/{session['id']}"))
    assert settlement["state"] == "PENDING"
    assert settlement["payload"]["chargeableSeconds"] == ended["cleanSeconds"]
    wallet = data_of(await consumer.key.get("/api/v1/wallet"))
    assert wallet["heldMicroUsdc"] == ended["chargedMicroUsdc"]
    assert data_of(await consumer.key.get("/api/v1/wallet/events"))["items"] == []
    second = await world.request(consumer)
    pages = [data_of(await consumer.key.get(f"{SESSIONS}?limit=1"))]
    pages.append(data_of(await consumer.key.get(f"{SESSIONS}?limit=1&cursor={pages[0]['nextCursor']}")))
    assert [page["items"][0]["id"] for page in pages] == [second["id"], session["id"]]
    keys = data_of(await consumer.wallet.get(f"{consumer.path}/api-keys"))["items"]
    assert keys[0]["lastUsedAt"] is None
    await world.authenticator.flush()
    keys = data_of(await consumer.wallet.get(f"{consumer.path}/api-keys"))["items"]
    assert keys[0]["lastUsedAt"] is not None


async def test_twenty_creations_at_once_never_spend_more_than_their_key_may(database: Database) -> None:
    async with open_world(storage=await on_postgres(database)) as world:
        party = await world.party("CONSUMER")
        hold = int((await world.request(party, maxDurationSeconds=60))["holdMicroUsdc"])
        limits = {"perDayMicroUsdc": str(7 * hold + hold // 2)}
        body = {"label": "agent", "environment": "TEST", "scopes": ["sessions:create"], "limits": limits}
        minted = data_of(await party.wallet.post(f"{party.path}/api-keys", body))
        assert minted["limits"] == {"perSessionMicroUsdc": None, **limits}
        client = Client(world, {"authorization": f"Bearer {minted['plaintext']}"})
        answers: list[httpx.Response] = []

        async def create() -> None:
            answers.append(await client.post(SESSIONS, BERLIN | {"maxDurationSeconds": 60}))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(create)
        refused = [answer for answer in answers if answer.status_code != 200]
        assert [error_of(answer)[1:] for answer in refused] == [("INSUFFICIENT_CREDIT", "apiKey:spendLimit")] * 13
        assert {answer.json()["remainingMicroUsdc"] for answer in refused} == {str(hold // 2)}
        wallet = data_of(await party.key.get("/api/v1/wallet"))
        assert wallet["heldMicroUsdc"] == str(8 * hold)
