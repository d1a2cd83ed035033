"""SIGTERM, and SIGINT that was ignored at the start, stop a command as Ctrl-C does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
import signal, trio
from sightline_client.commands.signals import stop_like_ctrl_c

signal.signal(signal.SIGINT, signal.SIG_IGN)
stop_like_ctrl_c()

async def work():
    try:
        print("works", flush=True)
        await trio.sleep_forever()
    finally:
        print("ended", flush=True)

try:
    trio.run(work)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_command_ends_what_it_began(sent: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        process.send_signal(sent)
        assert process.communicate(timeout=20)[0] == "ended\ninterrupted\n"


def test_ctrl_c_during_the_imports_prints_no_traceback(tmp_path: Path) -> None:
    """As if it came while typer is imported, which takes most of the time."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    command, env = [sys.executable, "-m", "sightline_client", "sessions"], os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_a_command_exits_prints_no_traceback(tmp_path: Path) -> None:
    """As the second one of somebody in a hurry, which comes when the command is over."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    )
    command, env = [sys.executable, "-m", "sightline_client", "--version"], os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
