"""Idempotency-Key: a repeat is the same call, also where a plain repeat would be refused."""

import pytest
import trio
import trio.testing

from tests.http.world import BERLIN, Party, World, data_of, error_of

SESSIONS = "/api/v1/sessions"


async def prepared(world: World) -> tuple[Party, Party, str]:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online()
    return consumer, operator, f"{SESSIONS}/{(await world.request(consumer))['id']}"


async def test_every_transition_repeated_with_its_key_gives_its_answer_again(world: World) -> None:
    consumer, operator, path = await prepared(world)
    steps = [
        (consumer.key, "POST", f"{path}/dispatch"),
        (operator.key, "POST", f"{path}/start"),
        (consumer.key, "POST", f"{path}/end"),
        (operator.key, "POST", f"{SESSIONS}/cancel-all-assignments"),
    ]
    for number, (client, method, step) in enumerate(steps):
        keyed = client.having(idempotency_key=f"step {number}")
        first = await keyed.call(method, step)
        data_of(first)
        second = await keyed.call(method, step)
        assert second.json() == first.json(), step
    plain = await consumer.key.post(f"{path}/end")
    assert error_of(plain)[:2] == (409, "INVALID_STATE")


async def test_a_session_is_created_once(world: World) -> None:
    consumer = await world.party("CONSUMER")
    keyed = consumer.key.having(idempotency_key="create")
    first, second = await keyed.post(SESSIONS, BERLIN), await keyed.post(SESSIONS, BERLIN)
    assert data_of(first) == data_of(second)
    other = await keyed.post(SESSIONS, BERLIN | {"lat": 1})
    assert error_of(other) == (409, "CONFLICT", "idempotency:mismatch")
    assert len(data_of(await consumer.key.get(SESSIONS))["items"]) == 1
    stranger = await world.party("CONSUMER")
    assert data_of(await stranger.key.having(idempotency_key="create").post(SESSIONS, BERLIN)) != data_of(first)


async def test_a_refusal_is_not_kept(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    path = f"{SESSIONS}/{(await world.request(consumer))['id']}/dispatch"
    keyed = consumer.key.having(idempotency_key="dispatch")
    assert error_of(await keyed.post(path))[:2] == (503, "UNAVAILABLE")
    await operator.go_online()
    assert data_of(await keyed.post(path))["state"] == "ASSIGNED"


async def test_a_heartbeat_repeated_with_its_key_is_no_conflict(world: World) -> None:
    operator = await world.party("SUPPLIER")
    body = BERLIN | {"sequence": 5}
    keyed = operator.key.having(idempotency_key="beat")
    first = await keyed.post(f"{operator.path}/location", body)
    second = await keyed.post(f"{operator.path}/location", body)
    assert data_of(first) == data_of(second)
    plain = await operator.key.post(f"{operator.path}/location", body)
    assert error_of(plain) == (409, "CONFLICT", "location:sequence")


async def test_a_repeated_change_that_changed_nothing_stays_without_effect(world: World) -> None:
    operator = await world.party("SUPPLIER")
    await operator.go_online()
    keyed = operator.key.having(idempotency_key="online")
    first = data_of(await keyed.patch(operator.path, {"availabilityState": "ONLINE"}))
    data_of(await operator.key.patch(operator.path, {"availabilityState": "OFFLINE"}))
    assert data_of(await keyed.patch(operator.path, {"availabilityState": "ONLINE"})) == first
    assert data_of(await operator.key.get(operator.path))["availabilityState"] == "OFFLINE"


async def test_members_revocation_and_changes_are_replayed_too(world: World) -> None:
    operator, helper = await world.party("SUPPLIER"), world.account()
    body = {"walletAddress": helper.address, "role": "ADMIN"}
    keyed = operator.wallet.having(idempotency_key="k")
    assert data_of(await keyed.post(f"{operator.path}/members", body))["role"] == "ADMIN"
    assert data_of(await keyed.post(f"{operator.path}/members", body))["role"] == "ADMIN"
    removal = f"{operator.path}/members/{helper.address}"
    assert data_of(await keyed.delete(removal)) == data_of(await keyed.delete(removal))
    change = {"availabilityState": "ONLINE"}
    assert data_of(await keyed.patch(operator.path, change)) == data_of(await keyed.patch(operator.path, change))
    key_id = data_of(await operator.key.get("/api/v1/me"))["keyId"]
    revoke = f"{operator.path}/api-keys/{key_id}/revoke"
    assert data_of(await keyed.post(revoke)) == data_of(await keyed.post(revoke))


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_bad_key_is_named(world: World, key: str) -> None:
    consumer = await world.party("CONSUMER")
    answer = await consumer.key.having(idempotency_key=key).post(SESSIONS, BERLIN)
    assert error_of(answer) == (400, "INVALID_INPUT", "idempotency:key")


async def test_a_call_whose_client_has_left_is_finished_and_can_be_asked_for_again(world: World) -> None:
    consumer, operator, path = await prepared(world)
    host, _, port = world.base_url.removeprefix("http://").rpartition(":")
    head = f"POST {path}/dispatch HTTP/1.1\r\nhost: {host}\r\nidempotency-key: left\r\n"
    request = head + f"authorization: {consumer.key.headers['authorization']}\r\ncontent-length: 0\r\n\r\n"
    stream = await trio.open_tcp_stream(host, int(port))
    await stream.send_all(request.encode())
    await stream.aclose()
    with trio.fail_after(60):
        while (session := data_of(await consumer.key.get(path)))["state"] != "ASSIGNED":
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert session["operatorWorkspaceId"] == operator.id
    again = data_of(await consumer.key.having(idempotency_key="left").post(f"{path}/dispatch"))
    assert (again["state"], again["assignedAt"]) == ("ASSIGNED", session["assignedAt"])
