"""The code blocks of the guides run as printed."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
GUIDES: Final = ROOT / "docs" / "guides"
BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["watch.md", "film.md", "host.md"])
def test_the_code_of_a_guide_runs_as_printed(dev: dict[str, Any], name: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((GUIDES / name).read_text())
    assert blocks
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    env |= {"CONSUMER_API_KEY": dev["consumerKey"], "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    try:
        for language, code in blocks:
            shell = ["bash", "-euo", "pipefail", "-c", code]
            command = shell if language == "sh" else [sys.executable, "-c", code]
            done = subprocess.run(
                command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False
            )
            assert done.returncode == 0, f"{code}\n{done.stderr[-2000:]}"
    except BaseException:
        end_server(tmp_path / "data" / "server.json")
        raise
    if name == "film.md":
        assert len(list((tmp_path / "filmed").glob("*.jpg"))) == 3


def end_server(addresses: Path) -> None:
    """End the server that the guide for hosts started, if a block failed before its last one."""
    if addresses.exists():
        with suppress(ProcessLookupError):
            os.kill(json.loads(addresses.read_text())["pid"], signal.SIGTERM)
