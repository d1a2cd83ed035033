"""The code blocks of the guides run as printed."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
GUIDES: Final = ROOT / "docs" / "guides"
README: Final = (ROOT / "packages" / "sightline-client" / "README.md").read_text()
BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("guide", sorted(GUIDES.glob("*.md")), ids=lambda guide: guide.stem)
def test_a_guide_says_how_each_variable_of_its_commands_is_set(guide: Path) -> None:
    text = guide.read_text()
    used = {name for _, code in BLOCK.findall(text) for name in re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", code)}
    of_fleet = {"LAT", "LNG"} if "sightline fleet" in text else set()  # lines of the files that it writes
    set_elsewhere = {name for name in used if name.startswith("SIGHTLINE_")} | of_fleet
    assert [name for name in sorted(used - set_elsewhere) if f"{name}=" not in text] == []


@pytest.mark.parametrize("name", ["watch.md", "mcp.md", "film.md", "host.md"])
def test_the_code_of_a_guide_runs_as_printed(dev: dict[str, Any], name: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((GUIDES / name).read_text())
    assert blocks
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    env |= {"CONSUMER_API_KEY": dev["consumerKey"], "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    try:
        for language, code in blocks:
            shell = ["bash", "-euo", "pipefail", "-c", code]
            # trio is in the environment of the server, and not in the one that watch.md makes.
            without = "import sys; sys.modules['trio'] = None\n" if name == "watch.md" else ""
            command = shell if language == "sh" else [sys.executable, "-c", without + code]
            done = subprocess.run(
                command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False
            )
            assert done.returncode == 0, f"{code}\n{done.stderr[-2000:]}"
    except BaseException:
        end_server(tmp_path / "data" / "server.json")
        raise
    if name == "film.md":
        assert len(list((tmp_path / "filmed").glob("*.jpg"))) == 3


def test_watch_md_says_how_large_the_wheel_of_the_client_is() -> None:
    (said,) = re.findall(r"neither a database nor a chain \(([\d.]+) MB,", (GUIDES / "watch.md").read_text())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in (ROOT / "packages" / "sightline-client" / "src").rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                wheel.write(path)
    assert round(packed.tell() / 1_000_000, 1) == float(said)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_loops_of_the_clients_readme_see_as_many_frames_as_they_say(
    dev: dict[str, Any], backend: str, tmp_path: Path
) -> None:
    (code,) = (code for language, code in BLOCK.findall(README) if "AsyncSightline" in code)
    (frames,) = re.findall(r"if seen == (\d+):", code)
    code = code.replace("import asyncio  # or trio", f"import {backend}").replace(
        "asyncio.run(main", f"{backend}.run(main"
    )
    if backend == "trio":
        code = code.replace("trio.run(main())", "trio.run(main)")
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False)
    # On a busy machine the first picture may take longer than 5 s, which the client says.
    said = [line for line in done.stderr.splitlines() if not line.startswith("No picture has come for ")]
    assert (done.returncode, said) == (0, []), "breaking out of the loop leaves nothing to the collector"
    assert [line.split()[0] for line in done.stdout.splitlines()] == [str(n + 1) for n in range(int(frames))]


def test_the_first_program_of_the_clients_readme_runs_as_printed(dev: dict[str, Any], tmp_path: Path) -> None:
    code = next(code for language, code in BLOCK.findall(README) if language == "python")
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "frame.jpg").exists()


def end_server(addresses: Path) -> None:
    """End the server that the guide for hosts started, if a block failed before its last one."""
    if addresses.exists():
        with suppress(ProcessLookupError):
            os.kill(json.loads(addresses.read_text())["pid"], signal.SIGTERM)
