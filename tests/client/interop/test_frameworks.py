"""The programs of docs/guides/agents.md run as printed, each in its framework, with a scripted model."""

import base64
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import simplejpeg

from tests.client.interop.scripted_model import ANSWER, TOOLS, scripted_model

pytestmark = pytest.mark.interop
ROOT: Final = Path(__file__).parents[3]
PYTHON: Final = ROOT / ".interop" / "frameworks" / "venv" / "bin" / "python"
GUIDE: Final = (ROOT / "docs" / "guides" / "agents.md").read_text()
PROGRAM: Final = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS: Final = dict(PROGRAM.findall(GUIDE))
JPEG: Final = re.compile(r"/9j/[A-Za-z0-9+/=]{2000,}")
"""A JPEG of some size in Base64."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_agent_of_each_framework_sees_a_frame_and_ends_its_view(name: str, dev: dict[str, Any]) -> None:
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    with scripted_model({"lat": dev["lat"], "lng": dev["lng"]}) as (url, requests):
        env |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "test", "LANGSMITH_TRACING": "false"}
        env |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "test", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        command = [str(PYTHON), "-c", PROGRAMS[name]]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == ANSWER
    assert len(requests) == len(TOOLS) + 1
    pictures = JPEG.findall(json.dumps(requests[-1]))
    assert pictures, "the model is given the frame as a picture"
    assert simplejpeg.decode_jpeg(base64.b64decode(pictures[0])).shape[1] == 768
    headers = {"authorization": f"Bearer {dev['consumerKey']}"}
    newest = httpx.get(f"{dev['url']}/api/v1/sessions?limit=1", headers=headers).json()["data"]["items"][0]
    assert newest["state"] == "ENDED"


def test_the_page_has_a_program_for_each_framework() -> None:
    assert len(PROGRAMS) == 4
