"""A device that declines sessions of places that are too far away, and logs what the consumer tells it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sightline_client import UnavailableError
from tests.client.api import Api
from tests.conftest import run_server
from tests.e2e.server import Server, a_tenant, fund, go_online, until

HERE, FAR_AWAY = (48.0, 11.0), (48.2, 11.0)


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    """A server of the module's own: on a shared one, dispatch may choose another test's operator for the far place."""
    with run_server() as made:
        yield made


async def test_a_device_declines_what_is_too_far_away_and_films_what_is_near_as_its_consumer_asks(
    running_server: Server, tmp_path: Path
) -> None:
    url = running_server.url
    operator, consumer = await a_tenant(url, "SUPPLIER", "choosy"), await a_tenant(url, "CONSUMER", "two-places")
    await go_online(url, operator, HERE)
    await fund(url, consumer)
    log = tmp_path / "log"
    device = choosy_device(url, operator.key, log)
    try:
        async with Api(url, key=consumer.key) as api:
            far = await dispatched(api, FAR_AWAY)

            async def events() -> list[dict[str, Any]]:
                return list((await api.get(f"/sessions/{far}/meter/events"))["items"])

            (*_, reopened) = await until(events, lambda seen: seen[-1]["kind"] == "REOPENED", "it is declined")
            assert reopened["facts"][0] == {"name": "reason", "value": "DECLINED"}
            near = await dispatched(api, HERE)

            async def state() -> str:
                return str((await api.get(f"/sessions/{near}"))["state"])

            await until(state, lambda seen: seen == "LIVE", "the near session is filmed")
            for text in ("turn left", "closer to the sign"):
                await api.post(f"/sessions/{near}/messages", text=text)

            async def heard() -> list[str]:
                lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
                return [line["text"] for line in lines if line["event"] == "consumer_said"]

            said = await until(heard, lambda seen: len(seen) >= 2, "the device has both messages")
            assert said == ["turn left", "closer to the sign"]
    finally:
        device.terminate()
        device.wait(20)
    assert "session_declined" in log.read_text()


def choosy_device(url: str, key: str, log: Path) -> "subprocess.Popen[bytes]":
    line = [sys.executable, "-m", "sightline_client", "device", "--api", url]
    line += ["--lat", str(HERE[0]), "--lng", str(HERE[1]), "--decline-beyond", "5000"]
    with log.open("wb") as log_file:
        return subprocess.Popen(line, stderr=log_file, env=os.environ | {"SIGHTLINE_API_KEY": key})


async def dispatched(api: Api, place: tuple[float, float]) -> str:
    created = await api.post("/sessions", lat=place[0], lng=place[1], maxDurationSeconds=60)
    session_id = str(created["id"])

    async def dispatch() -> bool:
        try:
            await api.post(f"/sessions/{session_id}/dispatch")
        except UnavailableError:  # the operator has not been released from the session that it declined
            return False
        return True

    await until(dispatch, bool, "an operator is assigned")
    return session_id
