"""The main job over HTTP, from two fresh wallets to a settlement that waits for the chain."""

from tests.http.world import BERLIN, World, data_of, error_of


async def test_a_session_goes_from_quote_to_settlement(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online(coverageLat=52.5, coverageLng=13.4, coverageRadiusMeters=20_000)
    data_of(await operator.beat())
    quote = data_of(await consumer.key.get("/api/v1/pricing/quote?lat=52.52&lng=13.405&durationSeconds=600"))
    session = await world.request(consumer, quoteId=quote["quoteId"], metadata={"order": 17})
    assert session["state"] == "REQUESTED"
    assert session["ratePerSecondMicroUsdc"] == quote["ratePerSecondMicroUsdc"]
    path = f"/api/v1/sessions/{session['id']}"
    assigned = data_of(await consumer.key.post(f"{path}/dispatch"))
    assert (assigned["state"], assigned["operatorWorkspaceId"]) == ("ASSIGNED", operator.id)
    assert assigned["consistencyToken"]
    started = data_of(await operator.key.post(f"{path}/start"))
    assert started["session"]["state"] == "LIVE"
    assert started["whipUrl"].startswith("http://video.test/whip/")
    assert error_of(await consumer.key.get(f"{path}/frame")) == (404, "FRAME_NOT_AVAILABLE", "frame:notDecoded")
    world.video.show(session["id"], 1)
    frame = await consumer.key.get(f"{path}/frame")
    assert (frame.status_code, frame.headers["content-type"]) == (200, "image/jpeg")
    token = data_of(await consumer.key.get(f"{path}/viewer-token"))
    played = data_of(await consumer.key.get(path))["whepUrl"]
    assert token == {"videoBackendRef": started["videoBackendRef"], "whepUrl": played}
    settlement = data_of(await consumer.key.get(f"/api/v1/settlements/{session['id']}"))
    assert settlement["state"] == "NOT_READY"
    ended = data_of(await consumer.key.post(f"{path}/end"))
    assert (ended["state"], ended["endReason"]) == ("ENDED", "CONSUMER_ENDED")
    meter = data_of(await operator.key.get(f"{path}/meter"))
    assert meter["chargedMicroUsdc"] == ended["chargedMicroUsdc"]
    settlement = data_of(await operator.key.get(f"/api/v1/settlements/{session['id']}"))
    assert settlement["state"] == "PENDING"
    assert settlement["payload"]["from"] == consumer.account.address
    wallet = data_of(await consumer.key.get("/api/v1/wallet"))
    assert wallet["walletAddress"] == consumer.account.address
    listed = data_of(await consumer.wallet.get("/api/v1/sessions"))
    assert [each["id"] for each in listed["items"]] == [session["id"]]
    assert listed["items"][0]["requestedLat"] == BERLIN["lat"]
