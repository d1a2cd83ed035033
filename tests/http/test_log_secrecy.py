"""What the server logs: a line per call (heartbeats are sampled), and no secret."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from sightline.system.logs import configure_logs
from tests.http.world import BERLIN, World, WorldOptions, data_of, open_world


@pytest.fixture
def quiet_logs() -> Iterator[io.StringIO]:
    """The log, as the server writes it, kept for reading."""
    stream = io.StringIO()
    handlers, level = logging.root.handlers[:], logging.root.level
    configure_logs("debug", stream)
    structlog.configure(cache_logger_on_first_use=False)  # or the next test would read this one's stream
    yield stream
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


async def test_a_full_run_leaves_no_secret_in_the_log(quiet_logs: io.StringIO, world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    proof = await world.signed(world.account(), "/api/v1/auth/wallet/challenge")
    await world.anyone.post("/api/v1/auth/wallet/login", proof | {"signature": "0x" + "ab" * 65})
    await operator.go_online()
    session = await world.request(consumer)
    path = f"/api/v1/sessions/{session['id']}"
    data_of(await consumer.key.post(f"{path}/dispatch"))
    started = data_of(await operator.key.post(f"{path}/start"))
    data_of(await operator.beat())
    world.video.show(session["id"], 1)
    await consumer.key.get(f"{path}/frame")
    await world.http.post(started["whipUrl"].removeprefix("http://video.test"), content=b"v=0")
    await consumer.key.get("/api/v1/me?key=" + consumer.plaintext)
    await consumer.key.get("/api/v1/" + consumer.plaintext)
    world.video.is_down = True
    await consumer.key.get(f"{path}/frame")
    data_of(await consumer.wallet.post(f"{path}/end"))

    text = quiet_logs.getvalue()
    publish_token = started["whipUrl"].rpartition("/")[2]
    secrets = {
        "consumer's key": consumer.plaintext,
        "operator's key": operator.plaintext,
        "consumer's cookie": consumer.cookie.partition("=")[2],
        "operator's cookie": operator.cookie.partition("=")[2],
        "signature": proof["signature"],
        "wrong signature": "ab" * 65,
        "nonce": proof["nonce"],
        "publish token": publish_token,
        "wallet's key": consumer.account.key.hex(),
    }
    assert text.count("http_call") > 20
    routes = {json.loads(line).get("route") for line in text.splitlines()}
    assert "/whip/{token}" in routes
    assert [name for name, secret in secrets.items() if secret in text] == []


async def test_each_call_is_one_json_line_with_its_principal(quiet_logs: io.StringIO, world: World) -> None:
    party = await world.party("CONSUMER")
    await party.key.having(x_request_id="by-key").get(party.path)
    await party.wallet.having(x_request_id="by-wallet").get(party.path)
    await world.anyone.having(x_request_id="by-nobody").get(party.path)
    lines = [json.loads(line) for line in quiet_logs.getvalue().splitlines()]
    calls = {line["request_id"]: line for line in lines if line["event"] == "http_call"}
    key_id = data_of(await party.key.get("/api/v1/me"))["keyId"]
    by_key, by_wallet, by_nobody = calls["by-key"], calls["by-wallet"], calls["by-nobody"]
    assert (by_key["key_id"], by_key["workspace_id"]) == (key_id, party.id)
    assert (by_wallet["wallet_address"], by_wallet["workspace_id"]) == (party.account.address, party.id)
    assert (by_nobody["status"], by_nobody["code"]) == (401, "NOT_AUTHENTICATED")
    for call in (by_key, by_wallet, by_nobody):
        assert (call["route"], call["method"]) == ("/api/v1/workspaces/{id}", "GET")
        assert call["duration_ms"] >= 0


@pytest.mark.parametrize(("every", "logged"), [(0, 0), (1, 6), (3, 2)])
async def test_one_in_n_successful_heartbeats_is_logged_and_every_refused_one(
    quiet_logs: io.StringIO, every: int, logged: int
) -> None:
    async with open_world(WorldOptions(log_heartbeat_every=every)) as world:
        operator = await world.party("SUPPLIER")
        for _ in range(6):
            data_of(await operator.beat())
        for _ in range(2):
            await operator.beat(lat=91)
    lines = [json.loads(line) for line in quiet_logs.getvalue().splitlines()]
    beats = [line for line in lines if line.get("route", "").endswith("/location")]
    assert [line["status"] for line in beats] == [200] * logged + [400] * 2
    assert all(line.get("one_in") == every for line in beats if line["status"] == 200 and every > 1)


async def test_access_lines_name_the_caller_s_address_and_the_session(quiet_logs: io.StringIO, world: World) -> None:
    consumer = await world.party("CONSUMER")
    session = await world.request(consumer)
    await consumer.key.get(f"/api/v1/sessions/{session['id']}")
    await consumer.key.get(f"/api/v1/settlements/{session['id']}")
    await consumer.key.get(consumer.path)
    lines = [json.loads(line) for line in quiet_logs.getvalue().splitlines() if '"http_call"' in line]
    assert {line["client_ip"] for line in lines} == {"127.0.0.1"}
    named = [line["route"] for line in lines if line.get("session_id") == session["id"]]
    assert named == ["/api/v1/sessions/{id}", "/api/v1/settlements/{sessionId}"]
    assert [line for line in lines if line["route"] == "/api/v1/workspaces/{id}" and "session_id" in line] == []


async def test_the_access_line_of_a_503_names_what_failed(quiet_logs: io.StringIO, world: World) -> None:
    consumer = await world.party("CONSUMER")
    world.relations.is_down = True
    assert (await consumer.key.post("/api/v1/sessions", BERLIN)).status_code == 503
    lines = [json.loads(line) for line in quiet_logs.getvalue().splitlines() if '"http_call"' in line]
    assert [bool(line["cause"]) for line in lines if line["status"] == 503] == [True]
    assert all("cause" not in line for line in lines if line["status"] < 500)
