"""The Inspector's command line, a client of MCP written by others, drives a whole purchase over /mcp and over stdio."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import simplejpeg

from tests.groups import rest_at_night

pytestmark = pytest.mark.interop
ROOT: Final = Path(__file__).parents[3]
INSPECTOR: Final = ROOT / ".interop" / "inspector" / "node_modules" / ".bin" / "mcp-inspector"


class Inspector:
    """Runs one call of the Inspector per method."""

    def __init__(self, home: Path, target: list[str]) -> None:
        self._env = os.environ | {"HOME": str(home)}
        self._target = target

    def run(self, *arguments: str) -> Any:
        command = [str(INSPECTOR), "--cli", *self._target, *arguments]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def call(self, tool: str, **arguments: Any) -> list[dict[str, Any]]:
        pairs = [part for name, value in arguments.items() for part in ("--tool-arg", f"{name}={value}")]
        result = self.run("--method", "tools/call", "--tool-name", tool, *pairs)
        assert not result.get("isError"), result
        content: list[dict[str, Any]] = result["content"]
        return content

    def json(self, tool: str, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call(tool, **arguments)[-1]["text"])
        return found


@pytest.fixture(params=rest_at_night(["http", "stdio"], gate=1))
def inspector(request: pytest.FixtureRequest, dev: dict[str, Any], tmp_path: Path) -> Inspector:
    url, key = dev["url"], dev["consumerKey"]
    if request.param == "http":
        return Inspector(tmp_path, [f"{url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {key}"])
    command = Path(sys.executable).with_name("sightline-mcp")
    return Inspector(tmp_path, [str(command), "-e", f"SIGHTLINE_URL={url}", "-e", f"SIGHTLINE_API_KEY={key}"])


def test_the_inspector_buys_a_view_and_gets_a_picture(inspector: Inspector, dev: dict[str, Any]) -> None:
    named = {tool["name"]: tool for tool in inspector.run("--method", "tools/list")["tools"]}
    assert "answer" not in named["request_view"]["inputSchema"]["properties"], "filled by the server, not by the model"
    place = {"lat": dev["lat"], "lng": dev["lng"], "seconds": 60}
    quote = inspector.json("check_place", **place)
    session = inspector.json("request_view", **place, quote_id=quote["quoteId"], max_charge_usdc='"5"')
    assert session["state"] == "LIVE"
    view = {"session_id": session["sessionId"]}
    contents = (inspector.call("get_frame", **view) for _ in range(10))
    picture = next(content[0] for content in contents if content[0]["type"] == "image")
    assert picture["mimeType"] == "image/jpeg"
    assert simplejpeg.decode_jpeg(base64.b64decode(picture["data"])).shape[1] == 768
    assert inspector.json("end_session", **view)["state"] == "ENDED"
    receipt = inspector.json("verify_receipt", **view)
    assert receipt["verified"] == (receipt["payment"] == "CONFIRMED")
