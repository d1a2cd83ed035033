"""A client that openapi-python-client generates from the server's document makes a view. (sightline-js is the same for
openapi-typescript: its types are generated, and the tests of the console use it.)"""

import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import simplejpeg

pytestmark = pytest.mark.interop
ROOT: Final = Path(__file__).parents[3]
ENVIRONMENT: Final = ROOT / ".interop" / "generators" / "venv" / "bin"
SETTINGS: Final = ROOT / "examples" / "openapi-python-client.yaml"
PROGRAM: Final = Path(__file__).parent / "newcomer" / "with_generated_client.py"


def run(command: list[str], directory: Path, **env: str) -> str:
    done = subprocess.run(
        command, cwd=directory, env=os.environ | env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_generated_client_makes_a_view_and_reads_errors(dev: dict[str, Any], tmp_path: Path) -> None:
    generate = [str(ENVIRONMENT / "openapi-python-client"), "generate", "--url", f"{dev['url']}/openapi.json"]
    printed = run([*generate, "--config", str(SETTINGS), "--output-path", str(tmp_path / "generated")], tmp_path)
    assert "WARNING" not in printed.upper()
    project = tomllib.loads((tmp_path / "generated" / "pyproject.toml").read_text())
    assert project["tool"]["poetry"]["name"] == "sightline-api", (
        "installed beside sightline-client, it must not replace it"
    )
    said = run(
        [str(ENVIRONMENT / "python"), str(PROGRAM)],
        tmp_path,
        PYTHONPATH=str(tmp_path / "generated"),
        SIGHTLINE_URL=dev["url"],
        SIGHTLINE_API_KEY=dev["consumerKey"],
        LAT=str(dev["lat"]),
        LNG=str(dev["lng"]),
    )
    assert simplejpeg.decode_jpeg((tmp_path / "frame.jpg").read_bytes()).shape[1] == 320
    ended, unknown = said.splitlines()
    assert ended.startswith("ENDED ")
    assert unknown == "404 SESSION_NOT_FOUND"
