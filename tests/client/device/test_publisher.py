"""The publisher of a session is told to stop, so that it can end its session, and is killed only if it does not."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from sightline_client.device import run

POLITE = """
trap 'echo stopped > stopped; exit 0' TERM
echo $SIGHTLINE_SOURCE $SIGHTLINE_WHIP_URL > began
while :; do sleep 0.05; done
"""
DEAF = POLITE.replace("echo stopped > stopped; exit 0", "")


async def publish_until_it_began() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run._publish, "session", "rtsp://camera/1", "https://live.example/whip/x")
        began = await anyio.Path("began").read_text()  # a FIFO: waits for the publisher
        assert began == "rtsp://camera/1 https://live.example/whip/x\n"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("script", [POLITE, DEAF], ids=["polite", "deaf"])
def test_a_publisher_gets_sigterm_and_then_sigkill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, backend: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/bash\n{script}")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    os.mkfifo("began")
    monkeypatch.setattr(sys, "executable", str(program))
    if script == DEAF:
        monkeypatch.setattr(run, "STOP_S", 0.2)
    anyio.run(publish_until_it_began, backend=backend)
    assert Path("stopped").exists() is (script == POLITE)
