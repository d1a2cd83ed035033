"""A server whose database fails over to its standby: nothing acknowledged is lost, and nothing has to be restarted."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
import trio

from sightline.bootstrap.process import EXIT_FENCED
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, go_live, start_line, until
from tests.nemesis.parts import ExternalChain, ExternalPostgres, on_database

READS_S: Final = 5.0
"""For so long after the last renewal of its lease a server answers from memory."""
OUTAGE_S: Final = 8.0
ENDS_S: Final = 120.0
"""Hosts are asked every 10 s, and a statement that waits for a lost standby ends after 10 s."""
LONGER: Final = {"SIGHTLINE_PAUSE_MAX_SECONDS": "600", "SIGHTLINE_PAUSED_TOTAL_MAX_SECONDS": "1800"}
"""No device proves the session of these tests, and a busy machine takes longer than the usual minute."""


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
    site = Site(Server(data_directory, env=chain.env | LONGER | {"SIGHTLINE_DATABASE_URL": url}), primary, standby)
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


def alone_url(postgres: ExternalPostgres) -> str:
    return f"postgresql://postgres@/postgres?host={postgres.layout.socket_directory}"


async def accept_database(server: Server) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "sightline.cli", "reconcile", "--accept-database", "--yes"]
    env = os.environ | server.env
    return await trio.run_process(
        [*command, "--data-dir", str(server.directory / "data")],
        check=False, capture_stdout=True, capture_stderr=True, env=env,
    )  # fmt: skip


async def test_a_former_primary_that_came_back_is_refused(site: Site) -> None:
    """Alone by its timeline; beside the present primary because both accept writes; accepted when a person says so."""
    server = site.server
    mark = server.directory / "data" / "database_mark.json"

    def timeline() -> int:
        return int(json.loads(mark.read_text())["timeline"])

    await server.start()
    assert timeline() == 1
    site.primary.end()
    await on_database(site.standby.layout.dsn, lambda connection: connection.execute("SELECT pg_promote()"))

    async def shown() -> int:
        assert server.process is not None
        assert server.process.poll() is None, server.log()[-5_000:]
        return timeline()

    await until(shown, lambda number: number == 2, "the server has written the timeline of the promoted host")
    await server.stop()

    site.primary.start()  # as a primary: nobody has made it a standby of the new one
    await on_database(site.primary.layout.dsn, lambda connection: connection.execute("SELECT 1"))
    both = await start_line(server)
    assert "Two hosts of SIGHTLINE_DATABASE_URL accept writes: " in both
    assert "(timeline 1)" in both
    assert "(timeline 2)" in both
    assert "Stop the former primary" in both

    server.env["SIGHTLINE_DATABASE_URL"] = alone_url(site.primary)
    alone = await start_line(server)
    assert "it is on timeline 1, a former primary: timeline 2 was used before" in alone
    assert "`sightline reconcile --accept-database`" in alone
    accepted = await accept_database(server)
    assert accepted.returncode == 0, accepted.stderr
    await on_database(  # the former primary waits for a standby that it does not have any more
        site.primary.layout.dsn, lambda connection: connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
    )
    await on_database(site.primary.layout.dsn, lambda connection: connection.execute("SELECT pg_reload_conf()"))
    await server.start()
    await server.stop()

    # What was used now is the mark: the other one lacks what was committed here.
    assert timeline() == 1
    server.env["SIGHTLINE_DATABASE_URL"] = alone_url(site.standby)
    assert "its shards were taken" in await start_line(server)


async def test_a_server_on_a_primary_that_is_replaced_without_being_stopped_ends(site: Site) -> None:
    """Also when it has reached the promoted host already, by connections that it opened before it asked all hosts."""
    await site.server.start()
    mark = site.server.directory / "data" / "database_mark.json"
    seen = mark.read_bytes()
    with trio.fail_after(ENDS_S):
        while mark.read_bytes() == seen:  # noqa: ASYNC110  another process writes the file each time it has asked all
            await trio.sleep(0.1)
    await on_database(site.standby.layout.dsn, lambda connection: connection.execute("SELECT pg_promote()"))
    end_connections = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sightline%'"
    await on_database(site.primary.layout.dsn, lambda connection: connection.execute(end_connections))
    process = site.server.process
    assert process is not None
    with trio.fail_after(ENDS_S):
        assert await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True) == EXIT_FENCED
    assert "database_has_two_primaries" in site.server.log()
    assert "server_fenced" in site.server.log()
