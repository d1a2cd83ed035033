"""A LIVE session continues after kill -9 of the server, and nothing acknowledged is lost."""

import sys

import pytest
import trio

from sightline_client import ApiError
from sightline_client.video.assets import clip_path
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, a_tenant, go_online, until


async def test_a_live_session_goes_on_after_kill_9_and_is_settled(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    beat = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5}
    location = f"/workspaces/{operator.workspace_id}/location"
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        session_id = (await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600))["id"]
        dispatched = await watcher.call("POST", f"/sessions/{session_id}/dispatch", idempotency_key="dispatch once")
        started = await device.post(f"/sessions/{session_id}/start")
        whip_url = started["whipUrl"]

        async def publish(*, task_status: trio.TaskStatus[None]) -> None:
            command = [sys.executable, "-m", "sightline_client.video.publish", str(clip_path()), "--whip", whip_url]
            task_status.started()
            await trio.run_process(command, check=False, capture_stderr=True)

        async def frame() -> object:
            return await watcher.frame(session_id)

        async with trio.open_nursery() as publishing:
            await publishing.start(publish)
            for sequence in range(1, 4):
                await device.post(location, **beat, sequence=sequence)
            await until(frame, lambda found: found is not None, "first frame")
            await server.kill()
            publishing.cancel_scope.cancel()

        await server.start()
        after = await watcher.get(f"/sessions/{session_id}")
        assert after["state"] == "LIVE"
        assert after["operatorWorkspaceId"] == operator.workspace_id
        assert after["startedAt"] == started["session"]["startedAt"]
        again = await watcher.call("POST", f"/sessions/{session_id}/dispatch", idempotency_key="dispatch once")
        assert again == dispatched
        with pytest.raises(ApiError) as refused:
            await device.post(location, **beat, sequence=3)
        assert refused.value.detail == "location:sequence"
        assert refused.value.last_sequence == 3
        seen = await device.post(location, **beat, sequence=4)
        assert seen["availabilityState"] == "BUSY"

        mine = await device.get(f"/sessions/{session_id}")
        assert mine["whipUrl"] == whip_url
        async with trio.open_nursery() as publishing:
            await publishing.start(publish)
            await until(frame, lambda found: found is not None, "first frame after the restart")
            publishing.cancel_scope.cancel()

        ended = await watcher.post(f"/sessions/{session_id}/end")
        assert ended["state"] == "ENDED"
        assert int(ended["chargedMicroUsdc"]) == ended["cleanSeconds"] * int(ended["ratePerSecondMicroUsdc"])
        freed = await device.get(f"/workspaces/{operator.workspace_id}")
        assert freed["availabilityState"] == "ONLINE"
