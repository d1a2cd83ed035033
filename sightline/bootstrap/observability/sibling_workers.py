"""Readiness of the other workers of this machine, which share the public socket and answer its calls too."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import httpx
import trio

from sightline.bootstrap.listeners.ports import Ports
from sightline.config import Settings
from sightline.ports.health import ReadinessCheck
from sightline.system.server_address_file import read_server_addresses

TIMEOUT_S: Final = 3.0
"""For the answer of a worker, whose check of the database takes up to 2 s."""
PROBED: Final = "1"
"""The worker whose internal listener has the port from the settings: probes of the machine ask it."""


@final
class SiblingWorkers:
    """Asks the other workers whether they are ready."""

    def __init__(self, directories: Sequence[Path], token: str | None) -> None:
        """Ask the workers that have locked these directories; none: there is nothing to check."""
        self.directories = directories
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}

    @classmethod
    def of(cls, settings: Settings, ports: Ports) -> "SiblingWorkers":
        """Return the other workers for worker 1, which reports the readiness of all; no workers for the others."""
        own, token = ports.shared_from, settings.internal_token
        is_asked = own is not None and own.name == PROBED
        others = [own.with_name(str(number)) for number in range(2, settings.workers + 1)] if own and is_asked else []
        return cls(others, None if token is None else token.get_secret_value())

    async def check(self) -> ReadinessCheck:
        """Ask all of them. Passes while at least half of the workers are ready, this one counted as ready."""
        reasons: dict[str, str] = {}
        async with httpx.AsyncClient(headers=self._headers, timeout=TIMEOUT_S) as http, trio.open_nursery() as nursery:
            for directory in self.directories:
                nursery.start_soon(_ask, http, directory, reasons)
        workers = len(self.directories) + 1
        ready = workers - len(reasons)
        named = "".join(f" Worker {name}: {reasons[name]}" for name in sorted(reasons))
        return ReadinessCheck(
            is_ok=2 * ready >= workers,
            detail=f"{ready} of {workers} workers are ready (at least half).{named}",
            figures={"workersReady": ready, "workers": workers},
        )


async def _ask(http: httpx.AsyncClient, directory: Path, reasons: dict[str, str]) -> None:
    """Note why a worker is not ready, if it is not."""
    try:
        where = read_server_addresses(directory)
        if where is None:
            reasons[directory.name] = "It has not started yet."
            return
        answer = await http.get(f"{where.internal_url}/readyz")
        if answer.status_code != httpx.codes.OK:
            reasons[directory.name] = str(answer.json()["message"])
    except (OSError, httpx.HTTPError, ValueError, KeyError):
        reasons[directory.name] = "It does not answer."
