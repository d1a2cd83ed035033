"""docs/api.md tells the truth: its curl lines run, in order, against a server, and say what the comments promise."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import trio

from tests.http.world import World

GUIDE = Path(__file__).parents[2] / "docs" / "api.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAYS = [
    "v1",
    "OWNER",
    "wallet_session",
    "api_key",
    "ONLINE",
    "North gate, look at the queue",
    "ASSIGNED",
    "LIVE",
    "x-svc-frame-sequence: ",
    "RUNNING",
    "CONSUMER_ENDED",
    "ENDED",
    "INVALID_STATE",
    "CREATED",
    "pagination:limit",
    "event: session",
    "webhook.ping",
    "true",
    "Request successful",
]


async def test_the_guide_runs_from_first_to_last_line(world: World, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        stand_in = f'curl() {{ "{sys.executable}" -S "{Path(__file__).with_name("curl.py")}" "$@"; }}\n'
    else:
        stand_in = ""
    script = stand_in + "set -euo pipefail\n" + "\n".join(BLOCK.findall(GUIDE.read_text()))
    environment = {**os.environ, "BASE": world.base_url, "PYTHON": sys.executable, "TMPDIR": str(tmp_path)}

    async def publish() -> None:
        """The operator's device: a new frame now and then in every input that is open."""
        sequence = 0
        while True:
            sequence += 1
            for session_id in tuple(world.video.inputs.values()):
                world.video.show(session_id, sequence)
            await trio.sleep(0.05)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        with trio.fail_after(100):
            done = await trio.run_process(
                ["bash", "-c", script],
                env=environment,
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
        nursery.cancel_scope.cancel()
    output = done.stdout.decode()
    assert done.returncode == 0, output
    position = 0
    for expected in SAYS:
        found = output.find(expected, position)
        assert found >= 0, f"{expected} does not follow in:\n{output}"
        position = found
