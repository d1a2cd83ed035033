"""A database that refuses writes for a while, as in a failover, neither ends the server nor parks an actor."""

from typing import Any, Final

import httpx
import trio

from sightline.storage.embedded.postgres_child import find_binaries, lay_out
from tests.client.api import Api
from tests.conftest import on_server
from tests.e2e.server import PLACE, Server, a_tenant, go_online, until

READ_ONLY_S: Final = 8.0
"""Seconds; long enough for every loop of the server to write several times."""


async def set_read_only(server: Server, value: str) -> None:
    async def alter(connection: Any) -> None:
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        await connection.execute("SELECT pg_reload_conf()")

    dsn = lay_out(server.directory / "data" / "postgres", find_binaries()).dsn
    await trio.to_thread.run_sync(on_server, dsn, alter)


async def test_a_live_session_ends_and_frees_its_operator_after_the_database_was_read_only(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with (
        Api(server.url, key=consumer.key) as buyer,
        Api(server.url, key=operator.key) as device,
        httpx.AsyncClient(headers={"authorization": f"Bearer {operator.key}"}, timeout=35.0) as http,
    ):
        session = await buyer.post("/sessions", lat=PLACE[0], lng=PLACE[1])
        await device.post(f"/sessions/{session['id']}/accept", operatorWorkspaceId=operator.workspace_id)
        await device.post(f"/sessions/{session['id']}/start")

        await set_read_only(server, "on")
        path = f"{server.url}/api/v1/workspaces/{operator.workspace_id}/location"
        refused = []
        with trio.move_on_after(READ_ONLY_S):
            for sequence in range(1, 1_000_000):
                fix = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5, "sequence": sequence}
                refused.append((await http.post(path, json=fix)).status_code)
        refused.append((await http.post(f"{server.url}/api/v1/sessions/{session['id']}/end", json={})).status_code)
        await set_read_only(server, "off")

        assert server.process is not None
        assert server.process.poll() is None, server.log()[-3000:]
        assert 503 in refused
        assert set(refused) <= {200, 503, 504}

        async def state() -> Any:
            answer = await http.post(f"{server.url}/api/v1/sessions/{session['id']}/end", json={})
            return answer.status_code

        await until(state, lambda status: status == 200, "the end is accepted")
        ended = await buyer.get(f"/sessions/{session['id']}")
        assert ended["state"] == "ENDED"

        async def availability() -> Any:
            return (await device.get(f"/workspaces/{operator.workspace_id}"))["availabilityState"]

        await until(availability, lambda value: value == "ONLINE", "the operator is free again")
    assert "actor_parked" not in server.log()
