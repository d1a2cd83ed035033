"""What anybody may read."""

from tests.http.fakes import CHAIN
from tests.http.world import World, data_of, error_of


async def test_health_says_public_and_v1(world: World) -> None:
    data = data_of(await world.anyone.get("/api/v1/health"))
    assert data == {"ok": True, "surface": "public", "version": "v1", "buildSha": "unknown"}


async def test_config_shows_our_own_rpc_endpoint_where_the_node_is_private(world: World) -> None:
    data = data_of(await world.anyone.get("/api/v1/config"))
    assert data == {
        "environment": "TEST",
        "chainId": CHAIN.chain_id,
        "chainName": CHAIN.chain_name,
        "rpcUrl": f"{world.base_url}/rpc",
        "explorerUrl": CHAIN.explorer_url,
        "usdcAddress": CHAIN.usdc_address,
        "settlementAddress": CHAIN.settlement_address,
        "isEscrow": False,
        "clipSeconds": 0,
        "frameSigning": "request",
    }
    answer = await world.http.post(data["rpcUrl"], json={"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"})
    assert answer.json()["result"] == "0x7a69"


async def test_an_unknown_path_is_404_with_and_without_a_credential(world: World) -> None:
    party = await world.party("CONSUMER")
    for client in (world.anyone, party.key):
        assert error_of(await client.get("/api/v1/nothing")) == (404, "NOT_FOUND", "route:unknown")


async def test_wallets_and_agents_publish_through_whip_without_a_credential(world: World) -> None:
    headers = {"content-type": "application/sdp"}
    answer = await world.http.post("/whip/some-token", content=b"v=0 offer", headers=headers)
    assert (answer.status_code, answer.content) == (201, b"v=0 answer")
    assert answer.headers["location"] == f"{world.base_url}/whip/t/r1"
    await world.http.request("PATCH", "/whep/other/r2", content=b"candidate", headers={"if-match": '"e"'})
    first, second = world.video.signals
    assert (first.kind, first.method, first.token, first.resource, first.body) == (
        "whip",
        "POST",
        "some-token",
        None,
        b"v=0 offer",
    )
    assert (second.kind, second.method, second.resource, second.headers["if-match"]) == ("whep", "PATCH", "r2", '"e"')
