"""A WHIP or WHEP client that sends what it likes, as a process."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def sending(url: str, mode: str) -> AsyncIterator[trio.Process]:
    """Run a hostile client, connected. It has a low priority: an attacker's processors are not the server's."""
    command = ["nice", "-n", "19", sys.executable, "-m", "tests.video.support.media_client", url, mode]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        with trio.fail_after(120):
            assert await process.stdout.receive_some(10) == b"connected\n", mode
        yield process
    finally:
        process.kill()
        await process.wait()
