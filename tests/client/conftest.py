"""A server with a funded consumer and a filming operator, as `sightline dev` runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import open_data_directory

COMMAND = [sys.executable, "-m", "sightline.cli"]


@pytest.fixture(scope="session")
def dev() -> Iterator[dict[str, Any]]:
    """What `sightline dev --json` prints; its server, operator and device run until the end of the test process."""
    with open_data_directory() as directory:
        line = [*COMMAND, "dev", "--json", "--port", "0", "--data-dir", str(directory)]
        env = os.environ | {"SIGHTLINE_FRAME_SIGNING": "request", "SIGHTLINE_VIDEO_CLIP_SECONDS": "10"}
        env |= {"SIGHTLINE_DISPATCH_ACK_SECONDS": "60"}  # on a busy machine the device takes longer than 10 s
        process = subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
            process.terminate()
            assert process.wait(60) == 0, "SIGTERM stops it like Ctrl-C"
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()
                process.stdout.close()
