"""SIGTERM, and SIGINT that was ignored at the start, stop a command as Ctrl-C does."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest
import trio

from tests.client.test_views import start_assigned
from tests.http.world import Party, World, data_of, open_world

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
    """A user presses Ctrl-C twice, and the second SIGINT arrives while the interpreter exits."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    )
    command, env = [sys.executable, "-m", "sightline_client", "--version"], os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@contextmanager
def silent_server() -> Iterator[tuple[str, Event]]:
    """Run a server that answers nothing: its URL, and an event that is set when it has a request."""
    asked, over = Event(), Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            over.wait(60)

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    with HTTPServer(("127.0.0.1", 0), Silent) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            over.set()
            server.shutdown()
            serving.join()


def test_ctrl_c_before_there_is_a_session_says_that_nothing_was_requested(tmp_path: Path) -> None:
    with silent_server() as (url, asked):
        env = os.environ | {"SIGHTLINE_URL": url, "SIGHTLINE_API_KEY": "svc_test_abcdef_" + "0" * 43}
        command = [sys.executable, "-m", "sightline_client", "watch", "1", "2", "--out", str(tmp_path)]
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
            assert asked.wait(60)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=30)[1]
    assert said.splitlines()[0] == "Nothing was requested."
    assert process.returncode == 130


async def test_ctrl_c_while_watch_waits_for_the_payment_names_the_command_that_shows_it(tmp_path: Path) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        nursery.start_soon(start_assigned, operator)
        env = os.environ | {"SIGHTLINE_URL": world.base_url, "SIGHTLINE_API_KEY": consumer.plaintext}
        command = [sys.executable, "-m", "sightline_client", "watch", "52.52", "13.405", "--out", str(tmp_path)]
        process = await nursery.start(partial(trio.run_process, command, env=env, stderr=subprocess.PIPE, check=False))
        said = b""

        async def until(words: str) -> None:
            nonlocal said
            while words.encode() not in said:
                more = await process.stderr.receive_some()
                assert more, said
                said += more

        with trio.fail_after(60):
            await until("is requested")
            session_id = await charge(world, consumer, operator)
            process.send_signal(signal.SIGINT)
            await until("Waiting until the payment is confirmed.")
            process.send_signal(signal.SIGINT)
            await until(f"`sightline receipt {session_id}` shows what is paid.")
            await process.wait()
        nursery.cancel_scope.cancel()
    assert process.returncode == 130


async def charge(world: World, consumer: Party, operator: Party) -> str:
    """Let the consumer's live session film for some seconds. Returns its id."""
    while not (live := data_of(await consumer.key.get("/api/v1/sessions?state=LIVE"))["items"]):
        await trio.lowlevel.checkpoint()
    session_id = str(live[0]["id"])
    for number in range(1, 5):
        data_of(await operator.beat())
        world.video.show(session_id, number)
        world.clock.advance(1)
    return session_id
