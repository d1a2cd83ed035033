"""The programs of docs/guides/agents.md run as printed, each in its framework, with a scripted model."""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import simplejpeg

from tests.client.interop.scripted_model import ANSWER, TOOLS, scripted_model
from tests.groups import rest_at_night

pytestmark = pytest.mark.interop
ROOT: Final = Path(__file__).parents[3]
KEPT: Final = ROOT / ".interop" / "frameworks"
PYTHON: Final = KEPT / "venv" / "bin" / "python"
GUIDE: Final = (ROOT / "docs" / "guides" / "agents.md").read_text()
PROGRAM: Final = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ALONE: Final = "Without a framework"
PROGRAMS: Final = {name: code for name, code in PROGRAM.findall(GUIDE) if name != ALONE}
INSTALLED: Final = re.compile(r"^`pip install ([^`]+)`$", re.MULTILINE)
JPEG: Final = re.compile(r"/9j/[A-Za-z0-9+/=]{2000,}")
"""A JPEG of some size in Base64."""


@pytest.mark.parametrize("name", rest_at_night(PROGRAMS, gate=1))
def test_an_agent_of_each_framework_sees_a_frame_and_ends_its_view(name: str, dev: dict[str, Any]) -> None:
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    with scripted_model({"lat": dev["lat"], "lng": dev["lng"]}) as (url, requests):
        env |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "test", "LANGSMITH_TRACING": "false"}
        env |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "test", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        command = [str(PYTHON), "-c", PROGRAMS[name]]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == ANSWER
    assert len(requests) == len(TOOLS) + 1
    pictures = JPEG.findall(json.dumps(requests[-1]))
    assert pictures, "the model is given the frame as a picture"
    assert simplejpeg.decode_jpeg(base64.b64decode(pictures[0])).shape[1] == 768
    assert newest_session(dev)["state"] == "ENDED"


def newest_session(dev: dict[str, Any]) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {dev['consumerKey']}"}
    found: dict[str, Any] = httpx.get(f"{dev['url']}/api/v1/sessions?limit=1", headers=headers).json()["data"]["items"][
        0
    ]
    return found


def test_the_page_has_a_program_for_each_framework_and_says_what_to_install() -> None:
    assert len(PROGRAMS) == 4
    pinned = (ROOT / "scripts" / "interop_frameworks.sh").read_text() + (ROOT / "constraints.txt").read_text()
    wanted = [each for line in INSTALLED.findall(GUIDE) for each in line.replace('"', "").split()]
    assert len(wanted) >= 8
    assert [each for each in wanted if each not in pinned] == []


def test_a_program_without_a_framework_sees_a_frame_and_ends_its_view(dev: dict[str, Any]) -> None:
    code = dict(PROGRAM.findall(GUIDE))[ALONE]
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.fullmatch(r"\d{4,} bytes; ENDED\n", done.stdout)
    assert newest_session(dev)["state"] == "ENDED"


def test_a_program_without_a_framework_prints_why_it_was_refused(dev: dict[str, Any]) -> None:
    code = dict(PROGRAM.findall(GUIDE))[ALONE].replace('"lat": 52.520008', '"lat": -12.5')
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "operator" in done.stdout


def run_pipecat(dev: dict[str, Any], *options: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    env |= {"PYTHONPATH": str(ROOT / "packages" / "sightline-client" / "src")}
    place = [str(dev["lat"]), str(dev["lng"])]
    command = [str(KEPT / "pipecat" / "bin" / "python"), str(ROOT / "examples" / "pipecat_input.py"), *place, *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_a_pipecat_pipeline_gets_the_video_of_a_place_and_its_end_ends_the_view(dev: dict[str, Any]) -> None:
    done = run_pipecat(dev, "--frames", "3")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "768 x 432 RGB\n" * 3
    newest = newest_session(dev)
    assert (newest["state"], newest["endReason"]) == ("ENDED", "CONSUMER_ENDED"), "not left to its lease"
    refused = run_pipecat(dev, "--budget", "0.000001")
    assert "above max_charge" in refused.stderr
    assert newest_session(dev)["id"] == newest["id"], "a view above the budget is not requested"
