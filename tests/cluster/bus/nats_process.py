"""A real nats-server for tests, that can be killed, suspended and started again on its port."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from sightline.cluster.bus.nats import NatsOptions, open_nats_bus
from sightline.cluster.bus.nats_child import find_binary
from sightline.domain.errors import BusUnavailableError

TOKEN = "token-of-the-tests"


class NatsProcess:
    """A nats-server on a free port of loopback."""

    def __init__(self, directory: Path, settings: str = f'authorization {{ token: "{TOKEN}" }}', scheme: str = "nats"):
        self._directory = directory
        self._settings = settings
        self._scheme = scheme
        self.port = -1
        directory.mkdir(parents=True, exist_ok=True)
        self.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://{TOKEN}@127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self._directory / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nports_file_dir: "{self._directory}"\n{self._settings}\n'
            f'log_file: "{self._directory / "nats.log"}"\n'
        )
        self.process = subprocess.Popen([str(find_binary()), "-c", str(config)])
        ports = self._directory / f"nats-server_{self.process.pid}.ports"
        while not ports.exists() or not ports.read_text():
            assert self.process.poll() is None, (self._directory / "nats.log").read_text()
            time.sleep(0.01)
        (url,) = json.loads(ports.read_text())["nats"]
        self.port = int(url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


async def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait for what another thread or process does."""
    with trio.fail_after(within_s):
        while not holds():  # noqa: ASYNC110  another thread or process sets no trio event
            await trio.sleep(0.01)


async def refusal_of(options: NatsOptions, clock: MockClock) -> str:
    """Why a bus does not open. The time for its start is over when an attempt has failed."""
    with capture_logs() as logs:

        async def end_time() -> None:
            while not any(entry["event"] == "bus_not_connected" for entry in logs):
                await trio.lowlevel.checkpoint()
            clock.jump(options.start_timeout_s)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_time)
            with pytest.raises(BusUnavailableError) as raised:
                async with open_nats_bus(options):
                    pass
    return f"{raised.value} {logs}"
