"""What `sightline dev` prints when its server cannot start, and the commands that it and `sightline demo` offer."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from sightline.cli import DEV_LAT, DEV_LNG
from sightline.cli.dev import STARTING
from sightline.cli.local import PLACE, LocalServer, own_command
from sightline.domain.geofence import distance_m
from sightline.http.schemas.sessions import CreateSessionBody

SCRIPT = Path(sys.executable).with_name("sightline")
CONSOLE = Path(__file__).parents[2] / "sightline" / "web"


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_dev_says_why_its_server_cannot_start_and_leaves_no_directory(tmp_path: Path, option: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "sightline.cli", "dev", *option]
        env = os.environ | {"TMPDIR": str(tmp_path), "SIGHTLINE_PORT": str(port)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    said = json.loads(done.stderr)["message"] if option else done.stderr.removeprefix(STARTING).rstrip("\n")
    reason = f"Port {port} on 127.0.0.1 is already in use."
    assert said == f"Cannot start: {reason} Set SIGHTLINE_PORT (--port), or stop the other server."
    assert list(tmp_path.glob("sightline-*")) == []


def test_dev_uses_the_internal_port_of_the_environment(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "sightline.cli", "dev", "--port", "0"]
        env = os.environ | {"TMPDIR": str(tmp_path), "SIGHTLINE_INTERNAL_PORT": str(port)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"Port {port} on 127.0.0.1 is already in use. Set SIGHTLINE_INTERNAL_PORT" in done.stderr


def test_dev_says_why_its_server_cannot_start_while_another_one_writes_to_the_same_log(tmp_path: Path) -> None:
    directory = tmp_path / "used"
    directory.mkdir()
    writes = "import itertools, sys\nfor n in itertools.count():\n    print('{}', file=open(sys.argv[1], 'a'))"
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        subprocess.Popen([sys.executable, "-c", writes, str(directory / "server.log")]) as other,
    ):
        command = [sys.executable, "-m", "sightline.cli", "dev", "--port", str(taken.getsockname()[1])]
        try:
            done = subprocess.run(
                [*command, "--data-dir", str(directory)], capture_output=True, text=True, timeout=60, check=False
            )
        finally:
            other.kill()
    assert "is already in use" in done.stderr, done.stderr


def test_a_command_is_offered_by_name_only_if_the_shell_finds_this_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command() == str(SCRIPT)
    (tmp_path / "sightline").write_text("#!/bin/sh\n")
    (tmp_path / "sightline").chmod(0o755)
    assert own_command() == str(SCRIPT), "that is another one"
    monkeypatch.setenv("PATH", str(SCRIPT.parent))
    assert own_command() == "sightline"


def test_dev_films_where_a_view_of_the_documents_or_of_berlin_in_the_console_is_inside() -> None:
    (file,) = CONSOLE.glob("places.gen-*.txt.gz")
    _, _, places = gzip.decompress(file.read_bytes()).decode().partition("\n\n")
    _, _, lat, lng, *_ = next(line for line in places.splitlines() if line.startswith("Berlin\t")).split("\t")
    within_m = CreateSessionBody.model_fields["radius_meters"].default
    for place in (PLACE, (int(lat) / 1_000, int(lng) / 1_000)):
        assert distance_m(DEV_LAT, DEV_LNG, *place) < within_m, place


def test_ctrl_c_while_a_program_of_the_local_server_runs_is_no_group_of_errors(tmp_path: Path) -> None:
    interrupts = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(600)"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            trio.run(LocalServer(tmp_path).run, "-c", interrupts)
    finally:
        signal.signal(signal.SIGINT, before)
