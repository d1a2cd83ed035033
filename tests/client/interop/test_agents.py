"""The agent examples run as their first lines say, against local servers in the shape of the model APIs."""

import base64
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import simplejpeg

from tests.client.interop.models import ANSWER, model_server

pytestmark = pytest.mark.interop
EXAMPLES: Final = Path(__file__).parents[3] / "examples"


def pictures_for_claude(request: dict[str, Any]) -> list[str]:
    return [
        each["source"]["data"] for each in request["messages"][2]["content"][0]["content"] if each["type"] == "image"
    ]


def pictures_for_openai(request: dict[str, Any]) -> list[str]:
    output = request["input"][2]["output"]
    return [each["image_url"].partition(",")[2] for each in output if each["type"] == "input_image"]


@pytest.mark.parametrize(
    ("name", "pictures_of"), [("anthropic_agent.py", pictures_for_claude), ("openai_agent.py", pictures_for_openai)]
)
def test_an_agent_gives_the_model_a_frame_as_a_picture_and_prints_its_answer(
    dev: dict[str, Any], name: str, pictures_of: Callable[[dict[str, Any]], list[str]]
) -> None:
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    with model_server({"lat": dev["lat"], "lng": dev["lng"]}) as (url, requests):
        env |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "test"}
        env |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "test"}
        command = [sys.executable, str(EXAMPLES / name), "How many people are there?", "--budget", "0.20"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert ANSWER in done.stdout
    # 0 where the machine is fast: less than a second was filmed.
    assert re.search(r"^0(\.[0-9]+)? of 0\.20 USDC spent$", done.stdout, re.MULTILINE)
    _, second = requests
    (picture,) = pictures_of(second)
    assert simplejpeg.decode_jpeg(base64.b64decode(picture)).shape == (432, 768, 3)
