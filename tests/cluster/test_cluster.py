"""Several servers form one service: any of them answers, and any of them may die."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.api import Api
from tests.cluster.servers import Cluster, a_cluster
from tests.e2e.server import PLACE, a_tenant, go_online, until


@pytest.fixture
def pair(data_directory: Path) -> Iterator[Cluster]:
    with a_cluster(data_directory, 2) as cluster:
        yield cluster


async def test_a_consumer_at_one_server_and_an_operator_at_another_hold_a_session(pair: Cluster) -> None:
    await pair.start()
    one, two = pair.servers
    consumer = await a_tenant(one.url, "CONSUMER", "consumer")
    operator = await a_tenant(two.url, "SUPPLIER", "operator")
    await go_online(two.url, operator)
    async with Api(one.url, key=consumer.key) as watcher, Api(two.url, key=operator.key) as device:
        session_id = (await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600))["id"]
        assigned = await watcher.post(f"/sessions/{session_id}/dispatch")
        assert assigned["operatorWorkspaceId"] == operator.workspace_id
        started = await device.post(f"/sessions/{session_id}/start")
        assert started["session"]["state"] == "LIVE"
        beat = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5, "sequence": 1}
        await device.post(f"/workspaces/{operator.workspace_id}/location", **beat)
        ended = await watcher.post(f"/sessions/{session_id}/end")
        assert ended["state"] == "ENDED"
        await until(lambda: device.get(f"/sessions/{session_id}"), lambda found: found["settlementTxHash"], "settled")
