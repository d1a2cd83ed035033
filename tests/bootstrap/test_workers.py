"""`serve --workers 2`: both workers serve, and whatever is killed comes back or ends with the supervisor."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import trio

from sightline.system.server_address_file import read_server_addresses
from sightline_client import SightlineError as ClientError
from tests.client.api import Api
from tests.conftest import open_data_directory
from tests.e2e.server import Server, Tenant, a_tenant, processes_under, until

SESSIONS = 12
"""Enough that each worker owns some."""


@pytest.fixture(scope="module")
def stopped() -> Iterator[Server]:
    """One data directory for the tests of this module."""
    with open_data_directory() as directory:
        server = Server(directory, env={"SIGHTLINE_WORKERS": "2"})
        try:
            yield server
        finally:
            server.end()


@pytest.fixture
async def workers(stopped: Server) -> Server:
    """A running supervisor with two workers."""
    if stopped.process is None:
        await stopped.start()
    return stopped


def processes_of(server: Server, text: str) -> list[psutil.Process]:
    """The processes below the supervisor whose command line contains a text."""
    assert server.process is not None
    found = psutil.Process(server.process.pid).children(recursive=True)
    return [process for process in found if text in " ".join(process.cmdline())]


async def sessions_of(server: Server, consumer: Tenant) -> list[str]:
    async with Api(server.url, key=consumer.key) as api:
        return [(await api.post("/sessions", lat=1.5, lng=2.5, waitTimeoutSeconds=3600))["id"] for _ in range(SESSIONS)]


async def read_all(server: Server, consumer: Tenant, sessions: list[str]) -> bool:
    """Whether every session answers; each call has a connection of its own, which any worker accepts."""
    for session_id in sessions:
        async with Api(server.url, key=consumer.key) as api:
            try:
                await api.get(f"/sessions/{session_id}")
            except ClientError:
                return False
    return True


async def metrics_of(server: Server) -> str:
    """Metrics of the worker that `server.json` names."""
    named = read_server_addresses(server.directory / "data")
    assert named is not None
    async with httpx.AsyncClient() as http:
        return (await http.get(f"{named.internal_url}/metrics")).text


def command(server: Server, *arguments: str) -> str:
    """Output of a command on the data directory of the supervisor."""
    line = [sys.executable, "-m", "sightline.cli", *arguments, "--data-dir", str(server.directory / "data")]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=60).stdout


async def readiness_of(server: Server) -> dict[str, Any]:
    """What the readiness of the machine says about its workers."""
    named = read_server_addresses(server.directory / "data")
    assert named is not None
    async with httpx.AsyncClient() as http:
        check: dict[str, Any] = (await http.get(f"{named.internal_url}/readyz")).json()["data"]["checks"]["workers"]
    return check


async def test_an_operator_sees_both_workers_and_the_actors_of_both(workers: Server) -> None:
    consumer = await a_tenant(workers.url, "CONSUMER", "operator-of-workers")
    sessions = await sessions_of(workers, consumer)

    async def listed() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(await trio.to_thread.run_sync(command, workers, "nodes", "--json"))[
            "items"
        ]
        return items

    nodes = await until(listed, lambda items: all(item["url"] for item in items), "both have reported")
    assert [item["name"].rpartition("/")[2] for item in nodes] == ["1", "2"]
    shown = await trio.to_thread.run_sync(command, workers, "nodes")
    assert all(item["name"] in shown and urlsplit(item["url"]).netloc in shown for item in nodes)
    async with httpx.AsyncClient() as http:
        targets = (await http.get(f"{nodes[1]['url']}/internal/targets")).json()
        assert [each["labels"]["node"] for each in targets] == [item["name"] for item in nodes]
        for each in targets:
            assert "sightline_event_loop_delay_seconds" in (await http.get(f"http://{each['targets'][0]}/metrics")).text
    output = await trio.to_thread.run_sync(command, workers, "actors", "--json")
    active = [json.loads(line)["kinds"]["session"]["active"] for line in output.splitlines()]
    assert min(active) > 0
    assert sum(active) == len(sessions)
    (row,) = [
        line for line in (await trio.to_thread.run_sync(command, workers, "actors")).splitlines() if "session" in line
    ]
    assert row.split()[1] == str(len(sessions))
    one = await trio.to_thread.run_sync(command, workers, "actors", "--json", "--node", nodes[1]["name"])
    assert json.loads(one)["node"] == nodes[1]["name"]


async def test_what_is_killed_comes_back_and_every_session_is_served_meanwhile(workers: Server) -> None:
    consumer = await a_tenant(workers.url, "CONSUMER", "consumer")
    sessions = await sessions_of(workers, consumer)
    starts = workers.log().count('"worker_ready"')
    assert starts == 2
    assert (await readiness_of(workers))["workersReady"] == 2
    processes_of(workers, "workers/2")[0].send_signal(signal.SIGKILL)
    await until(
        lambda: readiness_of(workers), lambda check: check["workersReady"] == 1, "readiness counts the killed worker"
    )
    await until(
        lambda: read_all(workers, consumer, sessions), lambda all_answer: all_answer, "sessions of a killed worker"
    )
    assert workers.log().count('"worker_ready"') == starts, "the other worker took them over before it was back"
    await workers.until_logged('"worker_lease_ended"')
    with trio.fail_after(60):
        while workers.log().count('"worker_ready"') == starts:  # noqa: ASYNC110  another process writes the file
            await trio.sleep(0.05)
    processes_of(workers, "nats-server -c")[0].send_signal(signal.SIGKILL)
    await workers.until_logged('"child":"nats"')
    await until(
        lambda: read_all(workers, consumer, sessions), lambda all_answer: all_answer, "sessions after a lost NATS"
    )
    await until(
        lambda: metrics_of(workers),
        lambda text: "sightline_bus_connections_total 2.0" in text,
        "worker 1 connects again",
    )
    assert await workers.stop() == 0
    assert processes_under(workers.directory) == []


async def test_a_killed_supervisor_is_started_again_at_once_and_nothing_outlives_it(workers: Server) -> None:
    await workers.kill()
    await workers.start()
    assert len(processes_of(workers, "workers.worker")) == 2
    await workers.kill()

    async def left() -> list[str]:
        return processes_under(workers.directory)

    await until(left, lambda found: found == [], "children of a killed supervisor")
