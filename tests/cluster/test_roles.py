"""The roles of a server that was killed are taken by another one, which goes on with their work."""

from pathlib import Path

import httpx

from sightline.system.server_address_file import read_server_addresses
from tests.client.api import Api
from tests.cluster.servers import a_cluster
from tests.e2e.server import PLACE, Server, a_tenant, go_online, until


async def internal(server: Server, path: str) -> httpx.Response:
    addresses = read_server_addresses(server.directory / "data")
    assert addresses is not None
    async with httpx.AsyncClient(base_url=addresses.internal_url) as http:
        return await http.get(path)


async def test_a_session_is_settled_although_the_server_with_the_relayer_was_killed(data_directory: Path) -> None:
    with a_cluster(data_directory, 2) as cluster:
        await cluster.start()
        holds = [
            'owned_role{role="relayer"} 1' in (await internal(server, "/metrics")).text for server in cluster.servers
        ]
        assert sorted(holds) == [False, True]
        relayer, other = cluster.servers[holds.index(True)], cluster.servers[holds.index(False)]
        assert (await internal(other, "/readyz")).status_code == 200
        consumer = await a_tenant(relayer.url, "CONSUMER", "consumer")
        operator = await a_tenant(other.url, "SUPPLIER", "operator")
        await go_online(relayer.url, operator)
        async with Api(other.url, key=consumer.key) as watcher, Api(other.url, key=operator.key) as device:
            session_id = (await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600))["id"]
            await watcher.post(f"/sessions/{session_id}/dispatch")
            await device.post(f"/sessions/{session_id}/start")
            await relayer.kill()

            async def nodes() -> dict[str, object]:
                return dict((await internal(other, "/internal/nodes")).json()["data"])

            found = await until(nodes, lambda seen: len(seen["items"]) == 1 and not seen["unownedShards"], "moved")
            assert (found["items"][0]["shards"], len(found["items"][0]["roles"])) == (256, 4)
            assert (await watcher.post(f"/sessions/{session_id}/end"))["state"] == "ENDED"
            await until(lambda: watcher.get(f"/sessions/{session_id}"), lambda each: each["settlementTxHash"], "settled")
        await until(lambda: internal(other, "/readyz"), lambda answer: answer.status_code == 200, "ready")
