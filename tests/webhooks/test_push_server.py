"""Web Push of a real server to a push service of the test, which holds the key pair of the browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.api import Api
from tests.e2e.server import PLACE, Server, a_tenant, go_online, until
from tests.webhooks.push_browser import PushBrowser, claims_of
from tests.webhooks.receiver import Answer, Received, open_receiver


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory, env={"SIGHTLINE_WEBHOOK_ALLOW_LOOPBACK": "true"})
    yield made
    made.end()


async def test_an_assignment_reaches_the_operators_browser_encrypted_and_a_browser_that_is_gone_is_forgotten(
    server: Server,
) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    phone, tablet = PushBrowser(), PushBrowser(auth=b"another secret..")
    gone = Answer(410)

    def answer(received: Received) -> Answer:
        return gone if received.path == "/tablet-capability" else Answer(201)

    async with (
        open_receiver(answer) as push_service,
        Api(server.url, key=consumer.key) as watcher,
        Api(server.url, key=operator.key) as device,
    ):
        server_key = (await device.get("/push-subscriptions"))["serverKey"]
        for path, browser in (("/phone-capability", phone), ("/tablet-capability", tablet)):
            await device.post("/push-subscriptions", endpoint=push_service.url(path), keys=browser.keys)
        await go_online(server.url, operator)
        session_id = (
            await watcher.post(
                "/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600, instructions="Ring at Miller's"
            )
        )["id"]
        await watcher.post(f"/sessions/{session_id}/dispatch")
        await push_service.wait_until(lambda got: len(got.received) == 2)

        by_path = {each.path: each for each in push_service.received}
        told = by_path["/phone-capability"]
        assert json.loads(phone.decrypt(told.content)) == {
            "sessionId": session_id,
            "lat": round(PLACE[0], 2),
            "lng": round(PLACE[1], 2),
            "maxDurationSeconds": 600,
        }
        assert claims_of(told.headers["authorization"], server_key)["aud"] == push_service.url("")
        assert (told.headers["urgency"], told.headers["content-encoding"]) == ("high", "aes128gcm")
        assert 0 < int(told.headers["ttl"]) <= 60

        left = await until(
            lambda: device.get("/push-subscriptions"), lambda seen: len(seen["items"]) == 1, "the tablet is forgotten"
        )
        await device.call("DELETE", f"/push-subscriptions/{left['items'][0]['id']}")
        assert len(push_service.received) == 2, "neither is sent twice"
    assert "capability" not in server.log()
