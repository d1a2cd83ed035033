"""Set a server's wall clock back and forward: money, sign-ins and stored rows do not change."""

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from sightline.chain.embedded.faucet import open_running_faucet
from sightline.storage.embedded.postgres_child import find_binaries, lay_out
from sightline.system.ids import SystemIds
from sightline_client import AsyncChain
from sightline_client.video.assets import clip_path
from sightline_client.wallet import LocalWallet
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until
from tests.nemesis.clock_shim import ClockShim
from tests.nemesis.parts import on_database

pytestmark = pytest.mark.interop

HOUR_S = 3600
DAYS_AHEAD = 40


@pytest.fixture
def clock(data_directory: Path) -> ClockShim:
    data_directory.chmod(0o711)
    return ClockShim(data_directory / "clock")


@pytest.fixture
def server(data_directory: Path, clock: ClockShim) -> Iterator[Server]:
    made = Server(data_directory, env=clock.env)
    yield made
    made.end()


class Pair:
    """A funded consumer and an operator with a LIVE session that is published."""

    def __init__(self, server: Server, consumer: Tenant, operator: Tenant, place: tuple[float, float] = PLACE) -> None:
        self.server = server
        self.place = place
        self.consumer = consumer
        self.operator = operator
        self.session_id = ""
        self.whip_url = ""
        self._sequence = 0

    async def go_live(self) -> None:
        async with self.watcher() as watcher, Api(self.server.url, key=self.operator.key) as device:
            session = await watcher.post("/sessions", lat=self.place[0], lng=self.place[1], maxDurationSeconds=600)
            self.session_id = session["id"]
            await watcher.post(f"/sessions/{self.session_id}/dispatch")
            self.whip_url = (await device.post(f"/sessions/{self.session_id}/start"))["whipUrl"]

    def watcher(self) -> Api:
        return Api(self.server.url, key=self.consumer.key)

    async def film(self) -> None:
        command = [sys.executable, "-m", "sightline_client.video.publish", str(clip_path()), "--whip", self.whip_url]
        await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)

    async def beat(self) -> None:
        async with Api(self.server.url, key=self.operator.key) as device:
            while True:
                self._sequence += 1
                fix = {"lat": self.place[0], "lng": self.place[1], "accuracyMeters": 5, "sequence": self._sequence}
                await device.post(f"/workspaces/{self.operator.workspace_id}/location", **fix)
                await trio.sleep(0.5)

    async def clean_seconds(self) -> int:
        async with self.watcher() as watcher:
            return int((await watcher.get(f"/sessions/{self.session_id}/meter"))["cleanSeconds"])


async def a_pair(server: Server) -> Pair:
    wallet = LocalWallet.create()
    async with Api(server.url) as api:
        config = await api.get("/config")
    async with open_running_faucet(server.directory / "data" / "chain", SystemIds()) as faucet:
        await faucet.fund(wallet.address, 10_000_000)
    consumer = await a_tenant(server.url, "CONSUMER", "consumer", wallet)
    token, spender = config["usdcAddress"], config["settlementAddress"]
    await AsyncChain(config["rpcUrl"]).approve(wallet, token=token, spender=spender, amount=10_000_000)
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    return Pair(server, consumer, operator)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_an_hour_back_during_a_live_session_takes_nothing_from_it(server: Server, clock: ClockShim) -> None:
    await server.start()
    pair = await a_pair(server)
    async with Api(server.url) as signed_in, trio.open_nursery() as nursery:
        await signed_in.auth.sign_in(pair.consumer.wallet)
        await pair.go_live()
        nursery.start_soon(pair.film)
        nursery.start_soon(pair.beat)
        before = await until(pair.clean_seconds, lambda seconds: seconds >= 5, "five clean seconds")
        clock.step(-HOUR_S)
        await until(pair.clean_seconds, lambda seconds: seconds >= before + 3, "more clean seconds")
        assert await signed_in.get("/me/sessions")
        async with pair.watcher() as watcher:
            ended = await watcher.post(f"/sessions/{pair.session_id}/end")
        nursery.cancel_scope.cancel()
    assert ended["cleanSeconds"] >= before + 3
    assert int(ended["chargedMicroUsdc"]) == ended["cleanSeconds"] * int(ended["ratePerSecondMicroUsdc"])
    assert instant(ended["endedAt"]) >= instant(ended["startedAt"])
    assert "wall_clock_stepped" in server.log()


async def test_an_hour_forward_and_a_kill_do_not_hold_up_settlement(server: Server, clock: ClockShim) -> None:
    await server.start()
    pair = await a_pair(server)
    await pair.go_live()
    clock.step(HOUR_S)
    await server.kill()
    clock.step(-HOUR_S)
    await server.start()

    async def settlement() -> Any:
        async with pair.watcher() as watcher:
            session = await watcher.get(f"/sessions/{pair.session_id}")
            if session["state"] == "LIVE":
                await watcher.post(f"/sessions/{pair.session_id}/end")
            return (await watcher.get(f"/settlements/{pair.session_id}"))["state"]

    await until(settlement, lambda state: state == "CONFIRMED", "the session is settled")


async def test_a_start_with_the_clock_forty_days_ahead_deletes_nothing(server: Server, clock: ClockShim) -> None:
    await server.start()
    pair = await a_pair(server)
    wish = {"lat": 1.5, "lng": 2.5, "waitTimeoutSeconds": 3600}
    async with pair.watcher() as watcher, trio.open_nursery() as nursery:
        created = await watcher.call("POST", "/sessions", wish, idempotency_key="created once")
        nursery.start_soon(pair.beat)
        await until(lambda: rows(server), lambda found: found[0] >= 3, "three heartbeats")
        nursery.cancel_scope.cancel()
    before = await rows(server)
    await server.stop()
    clock.step(DAYS_AHEAD * 24 * HOUR_S)
    await server.start()
    # Retention runs at the start. When a call is answered after the start, its first run has finished.
    async with pair.watcher() as watcher:
        again = await watcher.call("POST", "/sessions", wish, idempotency_key="created once")
    assert again["id"] == created["id"]
    assert await rows(server) >= before


async def rows(server: Server) -> tuple[int, int]:
    """Count stored heartbeats and recorded answers."""
    found: list[int] = []

    async def read(connection: Any) -> None:
        found.append(await connection.fetchval("SELECT count(*) FROM heartbeat"))
        found.append(await connection.fetchval("SELECT count(*) FROM idempotency"))

    await on_database(lay_out(server.directory / "data" / "postgres", find_binaries()).dsn, read)
    return (found[0], found[1])
