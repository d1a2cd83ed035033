"""Runs an embedded nats-server for the servers of one machine, on loopback and with a random token."""

import sys
from pathlib import Path
from typing import Final, NoReturn, final

import trio

from sightline.domain.value import Value
from sightline.ports.ids import Ids
from sightline.system.children import Child, ChildCommand
from sightline.system.files import write_durably
from sightline.system.kept_child import keep_child

CONFIG: Final = "nats.conf"
FREE_PORT: Final = -1
"""What nats-server takes for any free port."""


@final
class EmbeddedNatsOptions(Value, kw_only=True):
    """Where the embedded nats-server has its files."""

    directory: Path
    """Holds its settings with the token (mode 0600), written at each start."""
    log_path: Path


async def run_embedded_nats(
    options: EmbeddedNatsOptions, ids: Ids, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> NoReturn:
    """Run nats-server until cancelled; report its URL, which holds the token, when it first accepts connections.

    When it ends by itself it is started again with the same URL.

    Raises:
        ChildFailedError: It did not start the first time; the message ends with its log.

    Cancellation: nats-server is stopped before this returns.
    """
    directory = options.directory.resolve()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = ids.token_bytes(32).hex()
    ports: list[int] = []

    def command() -> ChildCommand:
        config = _config(ports[0] if ports else FREE_PORT, token, directory)
        write_durably(directory / CONFIG, config.encode())
        return ChildCommand(
            name="nats",
            args=[sys.executable, "-m", "sightline.cluster.bus.nats_child", str(directory / CONFIG), str(directory)],
            log_path=options.log_path,
        )

    def url(child: Child) -> str:
        ports[:] = [int(child.ready)]
        return f"nats://{token}@127.0.0.1:{child.ready}"

    await keep_child(command, url, task_status=task_status)


def _config(port: int, token: str, directory: Path) -> str:
    return (
        f'listen: "127.0.0.1:{port}"\n'
        f'ports_file_dir: "{directory}"\n'
        f'authorization {{ token: "{token}" }}\n'
        # A frame holds a snapshot of a session or workspace at most; 1 MB is the default and enough.
        "max_payload: 1MB\n"
        'write_deadline: "5s"\n'
        # Written to stderr, where the parent keeps it.
        "logtime: true\n"
    )
