"""A server whose database fails over to its standby: nothing acknowledged is lost, and nothing has to be restarted."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
import trio

from tests.client.api import Api
from tests.e2e.server import PLACE, Server, go_live, until
from tests.nemesis.parts import ExternalChain, ExternalPostgres, on_database

READS_S: Final = 5.0
"""For so long after the last renewal of its lease a server answers from memory."""
OUTAGE_S: Final = 8.0


@dataclass
class Site:
    """A server, and the two database servers that it knows."""

    server: Server
    primary: ExternalPostgres
    standby: ExternalPostgres


@pytest.fixture
def site(data_directory: Path) -> Iterator[Site]:
    data_directory.chmod(0o711)
    (data_directory / "primary").mkdir(mode=0o700)
    primary, chain = ExternalPostgres(data_directory / "primary"), ExternalChain(data_directory / "chain")
    primary.start()
    standby = trio.run(primary.replicate, data_directory / "standby")
    chain.start()
    hosts = ",".join(str(each.layout.socket_directory) for each in (standby, primary))
    url = f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
    site = Site(Server(data_directory, env=chain.env | {"SIGHTLINE_DATABASE_URL": url}), primary, standby)
    try:
        yield site
    finally:
        site.server.end()
        chain.end()
        standby.end()
        primary.end()


async def test_a_failover_of_the_database_is_survived_without_a_restart(site: Site) -> None:
    server = site.server
    await server.start()
    live = await go_live(server)
    path = f"{server.url}/api/v1/sessions/{live.session_id}"
    headers = {"authorization": f"Bearer {live.consumer.key}"}
    async with httpx.AsyncClient(headers=headers, timeout=15.0) as http:
        site.primary.end()
        killed = trio.current_time()
        answers: list[tuple[float, httpx.Response]] = []
        while (age := trio.current_time() - killed) < OUTAGE_S:
            answers.append((age, await http.get(path)))
            await trio.sleep(0.2)
        assert {answer.status_code for _, answer in answers} == {200, 503}
        refused = [answer for _, answer in answers if answer.status_code == 503]
        assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
        assert {answer.status_code for age, answer in answers if age > READS_S} == {503}

        await on_database(site.standby.layout.dsn, lambda connection: connection.execute("SELECT pg_promote()"))

        async def read() -> int:
            return (await http.get(path)).status_code

        promoted = trio.current_time()
        await until(read, lambda status: status == 200, "the session is read again")
        print(f"{trio.current_time() - promoted:.2f} s after the promotion")  # noqa: T201  docs/ops/cluster.md names it
        assert (await http.get(path)).json()["data"]["state"] == "LIVE"
    async with Api(server.url, key=live.operator.key) as device, Api(server.url, key=live.consumer.key) as watcher:
        fix = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5, "sequence": 1}
        await device.post(f"/workspaces/{live.operator.workspace_id}/location", **fix)
        assert (await watcher.post(f"/sessions/{live.session_id}/end"))["state"] == "ENDED"
        await until(
            lambda: watcher.get(f"/sessions/{live.session_id}"), lambda found: found["settlementTxHash"], "settled"
        )
    assert server.process is not None
    assert server.process.poll() is None, server.log()[-3_000:]
    assert "actor_parked" not in server.log()
