"""A real nats-server for tests, that can be killed, suspended and started again on its port."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import trio

from sightline.cluster.bus.nats_child import find_binary

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


async def until(holds: Callable[[], bool], within_s: float = 15.0) -> None:
    """Wait for what another thread or process does."""
    with trio.fail_after(within_s):
        while not holds():  # noqa: ASYNC110  another thread or process sets no trio event
            await trio.sleep(0.01)
