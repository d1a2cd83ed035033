"""SIGTERM, and SIGINT that was ignored at the start, stop a command as Ctrl-C does."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import final

import pytest
import trio

from sightline.ports.ledger import SettlementState
from tests.client.commands.program import sightline
from tests.client.commands.test_sessions import show_frames
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


@final
class Watching:
    """`sightline watch` that runs, and what it printed on stderr."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.said = ""

    async def until(self, words: str) -> None:
        """Wait until it has printed the words."""
        while words not in self.said:
            assert await self._reads(), self.said

    async def rest(self) -> list[str]:
        """Wait until it ends. Returns the lines that it printed."""
        while await self._reads():
            pass
        await self.process.wait()
        return self.said.splitlines()

    async def _reads(self) -> bool:
        assert self.process.stderr is not None
        more = await self.process.stderr.receive_some()
        self.said += more.decode()
        return bool(more)


@asynccontextmanager
async def watching(world: World, consumer: Party, out: Path) -> AsyncIterator[Watching]:
    env = os.environ | {"SIGHTLINE_URL": world.base_url, "SIGHTLINE_API_KEY": consumer.plaintext}
    command = [sys.executable, "-m", "sightline_client", "watch", "52.52", "13.405", "--out", str(out)]
    script = [
        "sh",
        "-c",
        'exec "$@" 1>&2',
        "sh",
        *command,
    ]  # one pipe, so that the lines are in the order of a terminal
    run = partial(trio.run_process, script, env=env, stderr=subprocess.PIPE, check=False)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(60):
            yield Watching(await nursery.start(run))
        nursery.cancel_scope.cancel()


async def test_ctrl_c_while_watch_waits_for_the_payment_names_the_command_that_shows_it(tmp_path: Path) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        nursery.start_soon(start_assigned, operator)
        async with watching(world, consumer, tmp_path) as watch:
            await watch.until("is requested")
            session_id = await charge(world, consumer, operator)
            watch.process.send_signal(signal.SIGINT)
            await watch.until("Waiting until the payment is confirmed.")
            watch.process.send_signal(signal.SIGINT)
            await watch.until(f"`sightline receipt {session_id}` shows what is paid.")
            await watch.rest()
        nursery.cancel_scope.cancel()
    assert watch.process.returncode == 130


async def test_a_payment_that_the_wallet_does_not_cover_is_not_waited_for(tmp_path: Path) -> None:
    """The lines say what is missing, how to pay it, and where it is seen."""
    async with open_world() as world, trio.open_nursery() as nursery:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        nursery.start_soon(start_assigned, operator)
        async with watching(world, consumer, tmp_path) as watch:
            await watch.until("is requested")
            session_id = await charge(world, consumer, operator)
            watch.process.send_signal(signal.SIGINT)
            await watch.until("Waiting until the payment is confirmed.")
            now_ms, reason = world.clock.now_ms(), "TestUSDC: amount exceeds allowance"
            await world.ledger.mark_waiting(
                session_id, SettlementState.FAILED, reason=reason, retry_at_ms=now_ms, now_ms=now_ms
            )
            last = (await watch.rest())[-1]
        receipt = await sightline(world, consumer, "receipt", session_id, "--wait", "0.1")
        question = await sightline(world, consumer, "receipt", session_id)
        nursery.cancel_scope.cancel()
    assert watch.process.returncode == 1
    assert last.startswith(f"The payment of session {session_id}, 0.0")
    assert "the payer's allowance does not cover it. When it does, the session is paid by itself." in last
    assert f"Send USDC to {consumer.account.address}: its balance is 0. Run `sightline approve 0.0" in last
    told, late = receipt.stderr.splitlines()
    assert told == f"{last} Waiting for that, at most 0.1 s."
    assert "is PENDING after 0.1 s" in late
    assert (question.returncode, question.stderr) == (1, f"{last}\n"), "a question does not wait"


async def test_ctrl_c_before_an_operator_came_says_in_one_sentence_what_was_done(tmp_path: Path) -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        async with watching(world, consumer, tmp_path) as watch:
            await watch.until("No operator is available")
            watch.process.send_signal(signal.SIGINT)
            lines = await watch.rest()
    assert watch.process.returncode == 130
    assert len(lines) == 4, "what the wallet lacks, two lines of the request, and what the Ctrl-C did"
    assert lines[-1].endswith(" was withdrawn before anybody filmed, and costs nothing.")


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


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["listen", "frames"])
async def test_a_command_that_has_no_other_end_is_done_when_it_is_stopped(
    tmp_path: Path, command: str, sent: signal.Signals
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        nursery.start_soon(show_frames, world, session_id)
        words = [command, session_id, *(("--out", str(tmp_path)) if command == "frames" else ())]
        env = os.environ | {"SIGHTLINE_URL": world.base_url, "SIGHTLINE_API_KEY": consumer.plaintext}
        program = [sys.executable, "-m", "sightline_client", *words]
        run = partial(trio.run_process, program, env=env, stdout=subprocess.PIPE, capture_stderr=True, check=False)
        process = await nursery.start(run)
        with trio.fail_after(60):
            first = await process.stdout.receive_some()
            process.send_signal(sent)
            await process.wait()
        nursery.cancel_scope.cancel()
    assert process.returncode == 0
    assert first.startswith(f"{tmp_path}/".encode() if command == "frames" else b"20")


HELP = ("", "--help", "watch --help", "admin", "admin suspend --help", "--version")


@pytest.mark.parametrize("words", ["sessions", "wallet --json", "config", "config --set", "doctor", *HELP])
async def test_a_reader_that_wants_no_more_ends_a_command_as_sigpipe_does(words: str) -> None:
    async with open_world() as world:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SIGHTLINE_")}
        env |= {"SIGHTLINE_URL": world.base_url, "SIGHTLINE_API_KEY": (await world.party("CONSUMER")).plaintext}
        reading, writing = os.pipe()
        os.close(reading)
        program = [sys.executable, "-m", "sightline_client", *words.split()]
        try:
            done = await trio.run_process(program, env=env, stdout=writing, capture_stderr=True, check=False)
        finally:
            os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
