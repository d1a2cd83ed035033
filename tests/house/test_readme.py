"""README's Python code runs as printed, against a server with an operator's device, and ends its session."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import simplejpeg
import trio
import typer
from typer.core import TyperGroup

from sightline.cli import app
from sightline_client.commands import application
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, a_tenant, go_online, until

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()


async def test_the_python_code_waits_for_live_saves_a_frame_and_ends_the_session(data_directory: Path) -> None:
    server = Server(data_directory)
    try:
        await server.start()
        await run_readme(server, data_directory)
    finally:
        server.end()


async def run_readme(server: Server, directory: Path) -> None:
    consumer = await a_tenant(server.url, "CONSUMER", "reader")
    operator = await a_tenant(server.url, "SUPPLIER", "camera")
    device = device_process(server.url, operator.key, directory / "device.log")
    try:
        await until_logged(directory / "device.log", '"availability": "OFFLINE"')
        await go_online(server.url, operator)
        await until_logged(directory / "device.log", '"availability": "ONLINE"')
        (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
        env = os.environ | {"SIGHTLINE_URL": server.url, "SIGHTLINE_API_KEY": consumer.key}
        program = [sys.executable, "-c", code]
        with trio.fail_after(90):
            done = await trio.run_process(
                program, capture_stdout=True, capture_stderr=True, check=False, cwd=directory, env=env
            )
    finally:
        device.terminate()
        device.wait(20)
    assert done.returncode == 0, done.stderr.decode()
    assert re.fullmatch(r"[1-9]\d* s, [1-9]\d* micro-USDC\n", done.stdout.decode())
    for number in range(3):
        assert simplejpeg.decode_jpeg_header((directory / f"frame-{number}.jpg").read_bytes())[1] == 768
    async with Api(server.url, key=consumer.key) as api:
        (session,) = (await api.get("/sessions"))["items"]
    assert session["state"] == "ENDED"


def device_process(url: str, key: str, log_path: Path, place: tuple[float, float] = PLACE) -> "subprocess.Popen[bytes]":
    line = [
        sys.executable,
        "-m",
        "sightline.cli",
        "device",
        "--api",
        url,
        "--lat",
        str(place[0]),
        "--lng",
        str(place[1]),
    ]
    with log_path.open("wb") as log_file:
        return subprocess.Popen(line, stderr=log_file, stdout=log_file, env=os.environ | {"SIGHTLINE_API_KEY": key})


async def until_logged(path: Path, text: str) -> None:
    async def read() -> str:
        return await trio.Path(path).read_text()

    await until(read, lambda seen: text in seen, f"{path.name} says {text!r}")


def test_the_picture_in_the_first_screen_is_a_frame_of_the_demo() -> None:
    first_screen = "\n".join(README.splitlines()[:30])
    picture, *others = re.findall(r"!\[[^]]+\]\(([^)]+)\)", first_screen)
    assert [other for other in others if not (ROOT / other).exists()] == []
    height, width, _, _ = simplejpeg.decode_jpeg_header((ROOT / picture).read_bytes())
    assert (width, height) == (1280, 720)


def test_no_page_installs_the_client_from_an_index_that_does_not_have_it() -> None:
    pages = [ROOT / "README.md", *(ROOT / "packages").glob("*/README.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(pages) > 20
    index = re.compile(r"pip install (-\S+ )*'?sightline-client")
    wrong = [page.name for page in pages if page.parent.name != "adr" and index.search(page.read_text())]
    assert wrong == []


def test_the_table_of_commands_has_every_command_and_says_who_has_it() -> None:
    table = README.partition("| command |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    named = {word: said for words, said in rows for word in re.findall(r"`(?:sightline )?([a-z-]+)[^`]*`", words)}
    clients = typer.main.get_command(application())
    everything = typer.main.get_command(application(app))
    assert isinstance(clients, TyperGroup)
    assert isinstance(everything, TyperGroup)
    assert named.keys() == everything.commands.keys()
    assert {name for name, said in named.items() if "*client*" in said} == clients.commands.keys()


@pytest.mark.parametrize(
    ("key", "api", "said"),
    [
        ("svc_test_000000_" + "A" * 43, None, "cookie is not valid. Check SIGHTLINE_API_KEY"),
        ("svc_test_000000_" + "A" * 43, "http://127.0.0.1:9", "Cannot reach http://127.0.0.1:9"),
        ("x", None, "characters. Check SIGHTLINE_API_KEY"),
    ],
)
async def test_a_device_that_cannot_work_says_why_in_one_line(
    running_server: Server, key: str, api: str | None, said: str
) -> None:
    line = [sys.executable, "-m", "sightline.cli", "device", "--api", api or running_server.url, "--lat=1", "--lng=2"]
    done = await trio.run_process(line, capture_stderr=True, check=False, env=os.environ | {"SIGHTLINE_API_KEY": key})
    assert done.returncode == 1
    (only,) = done.stderr.decode().splitlines()
    assert said in only
