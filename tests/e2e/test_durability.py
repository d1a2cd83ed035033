"""Every acknowledged heartbeat is on disk after kill -9 of the server, or of the server and its database.

The heartbeats are sent at full speed, one by one and in batches.
"""

import os
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import pytest
import trio

from sightline.storage.embedded.postgres_child import find_binaries, lay_out
from tests.conftest import on_server
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, until

ROOT: Final = Path(__file__).resolve().parents[2]
SINGLE_DEVICES: Final = 6
BATCH_DEVICES: Final = 2
BATCH: Final = 50
ROUNDS: Final = 3
DEVICES: Final = int(os.environ.get("SIGHTLINE_DURABILITY_DEVICES", "120"))
OPERATORS: Final = max(1_000, 4 * DEVICES)
"""Of the loads of `bench.durability`; `make nightly` has 1,000 and 4,000."""
PER_ROUND: Final = (500, 3_000)
"""Heartbeats acknowledged in a round before the server is killed."""

# If the server dies while a request is being sent, httpx leaves the request's body to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator 'httpx:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Device:
    """Sends the next heartbeat as soon as one is answered, and records what was acknowledged."""

    def __init__(self, url: str, tenant: Tenant, batch: int) -> None:
        self.workspace_id = tenant.workspace_id
        self.acknowledged: set[int] = set()
        self._path = f"{url}/api/v1/workspaces/{tenant.workspace_id}/location{'s' if batch > 1 else ''}"
        self._headers = {"authorization": f"Bearer {tenant.key}"}
        self._batch = batch
        self._sequence = 0

    async def run(self) -> None:
        """Send until the server is gone."""
        async with httpx.AsyncClient(headers=self._headers, timeout=35.0) as http:
            while True:
                fixes = [self._fix() for _ in range(self._batch)]
                try:
                    answer = await http.post(self._path, json={"items": fixes} if self._batch > 1 else fixes[0])
                except httpx.TransportError:
                    return
                self._note(fixes, answer)

    def _fix(self) -> dict[str, Any]:
        self._sequence += 1
        return {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5, "sequence": self._sequence}

    def _note(self, fixes: list[dict[str, Any]], answer: httpx.Response) -> None:
        # 504: the database was killed first, while it was writing this batch.
        assert answer.status_code in {200, 503, 504}, answer.text
        if answer.status_code == 200 and self._batch == 1:
            self.acknowledged.add(fixes[0]["sequence"])
        elif answer.status_code == 200:
            self.acknowledged |= {item["sequence"] for item in answer.json()["data"]["items"] if item["ok"]}


def stored_sequences(server: Server) -> dict[str, list[int]]:
    """Read the stored sequences from the server's own database, by workspace."""
    found: dict[str, list[int]] = defaultdict(list)

    async def read(connection: Any) -> None:
        for row in await connection.fetch("SELECT workspace_id, sequence FROM heartbeat"):
            found[str(row["workspace_id"])].append(row["sequence"])

    on_server(lay_out(server.directory / "data" / "postgres", find_binaries()).dsn, read)
    return found


def acknowledged_by(devices: list[Device]) -> int:
    return sum(len(device.acknowledged) for device in devices)


async def acknowledged_of(devices: list[Device]) -> int:
    return acknowledged_by(devices)


async def test_every_acknowledged_heartbeat_survives_kill_9_at_full_speed(server: Server) -> None:
    await server.start()
    rng = Random("heartbeats")
    devices = []
    for number in range(SINGLE_DEVICES + BATCH_DEVICES):
        tenant = await a_tenant(server.url, "SUPPLIER", f"device-{number}")
        devices.append(Device(server.url, tenant, 1 if number < SINGLE_DEVICES else BATCH))
    for number in range(ROUNDS):
        async with trio.open_nursery() as nursery:
            for device in devices:
                nursery.start_soon(device.run)
            enough = acknowledged_by(devices) + rng.randint(*PER_ROUND)
            await until(lambda: acknowledged_of(devices), lambda count, enough=enough: count > enough, "acknowledged")
            # A database that survives completes the statements that it received; a killed one keeps only committed
            # ones.
            await (server.kill() if number == 0 else server.kill_everything())
        await server.start()
        stored = await trio.to_thread.run_sync(stored_sequences, server)
        for device in devices:
            there = stored[device.workspace_id]
            assert not device.acknowledged - set(there), "acknowledged and lost"
            assert len(there) == len(set(there)), "stored twice"


@pytest.mark.interop
async def test_nothing_acknowledged_is_lost_under_any_of_the_loads_that_are_measured() -> None:
    command = [sys.executable, "-m", "bench.durability", "--devices", str(DEVICES), "--operators", str(OPERATORS)]
    done = await trio.run_process(command, cwd=ROOT, capture_stdout=True, check=False)
    sys.stdout.write(done.stdout.decode())
    assert done.returncode == 0, done.stdout.decode()
    assert done.stdout.count(b" 0 wrong") == 5
