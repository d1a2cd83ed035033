"""The authorization graph is down: 503 AUTHZ_ERROR, and nothing is half done."""

from tests.http.world import BERLIN, Client, World, data_of, error_of

DOWN = (503, "AUTHZ_ERROR")


async def test_no_operator_is_left_busy_by_a_dispatch_that_could_not_be_written(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online()
    path = f"/api/v1/sessions/{(await world.request(consumer))['id']}"
    world.relations.is_down = True
    answer = await consumer.key.post(f"{path}/dispatch")
    assert error_of(answer)[:2] == DOWN
    assert answer.headers["retry-after"]
    own = {"operatorWorkspaceId": operator.id}
    assert error_of(await operator.key.post(f"{path}/accept", own))[:2] == DOWN
    assert data_of(await consumer.key.get(path))["state"] == "REQUESTED"
    assert data_of(await operator.key.get(operator.path))["availabilityState"] == "ONLINE"
    world.relations.is_down = False
    assert data_of(await consumer.key.post(f"{path}/dispatch"))["operatorWorkspaceId"] == operator.id


async def test_nothing_is_created_and_a_proof_stays_good(world: World) -> None:
    consumer, account = await world.party("CONSUMER"), world.account()
    proof = await world.signed(account, "/api/v1/workspaces/challenge")
    body = proof | {"slug": "later", "name": "Later", "roles": ["CONSUMER"]}
    world.relations.is_down = True
    assert error_of(await consumer.key.post("/api/v1/sessions", BERLIN))[:2] == DOWN
    assert error_of(await world.anyone.post("/api/v1/workspaces", body))[:2] == DOWN
    world.relations.is_down = False
    assert data_of(await consumer.key.get("/api/v1/sessions"))["items"] == []
    assert data_of(await world.anyone.post("/api/v1/workspaces", body))["slug"] == "later"


async def test_people_cannot_sign_in_select_or_list_but_selected_ones_go_on(world: World) -> None:
    party, account = await world.party("CONSUMER"), world.account()
    proof = await world.signed(account, "/api/v1/auth/wallet/challenge")
    unselected = Client(world, {"cookie": await world.login(party.account)})
    world.relations.is_down = True
    assert error_of(await world.anyone.post("/api/v1/auth/wallet/login", proof))[:2] == DOWN
    assert error_of(await unselected.post("/api/v1/auth/workspace/select", {"workspaceId": party.id}))[:2] == DOWN
    assert error_of(await unselected.get("/api/v1/workspaces"))[:2] == DOWN
    assert error_of(await party.wallet.get(f"{party.path}/members"))[:2] == DOWN
    data_of(await party.wallet.get(party.path))
    data_of(await party.key.get("/api/v1/me"))
    world.relations.is_down = False
    data_of(await world.anyone.post("/api/v1/auth/wallet/login", proof))
