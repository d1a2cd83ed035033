"""Child processes: ready, drained, stopped in order, and never left over."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import trio

from sightline.domain.value import replace
from sightline.system.children import Child, ChildCommand, ChildFailedError, run_child

PREAMBLE = "import os, signal, sys, threading, time\nfrom sightline.system.parent import leave_with_parent, say_ready\n"
SERVING = PREAMBLE + "leave_with_parent()\nsay_ready('here 42')\nthreading.Event().wait()\n"


def a_command(tmp_path: Path, program: str, **changes: float) -> ChildCommand:
    args = [sys.executable, "-c", program]
    return ChildCommand(name="test", args=args, log_path=tmp_path / "log" / "child.log", **changes)


def block_until_it_ended(pid: int) -> None:
    """Block the whole process, trio's loop too; the child is left for `run_child` to reap."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_a_child_is_ready_with_what_it_says_and_leaves_when_cancelled(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        child: Child = await nursery.start(run_child, a_command(tmp_path, SERVING))
        assert child.ready == "here 42"
        nursery.cancel_scope.cancel()
    assert not psutil.pid_exists(child.pid)


async def test_the_end_of_a_child_ends_its_run_with_its_exit_code(tmp_path: Path) -> None:
    program = PREAMBLE + "say_ready()\nsys.exit(3)\n"
    assert await run_child(a_command(tmp_path, program)) == 3


async def test_what_a_child_says_later_is_in_its_log_and_never_blocks_it(tmp_path: Path) -> None:
    program = PREAMBLE + "say_ready()\nprint('x' * 300_000)\nsys.stderr.write('and this')\n"
    command = a_command(tmp_path, program)
    assert await run_child(command) == 0
    assert command.log_path.read_text().count("x") == 300_000
    assert "and this" in command.log_path.read_text()


async def test_what_a_child_said_before_it_ended_is_in_its_log_also_when_its_parent_reads_it_after_the_end(
    tmp_path: Path,
) -> None:
    # Its pipe takes everything at once.
    wide = "import fcntl\nfcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1024 * 1024)\n"
    command = a_command(tmp_path, PREAMBLE + wide + "say_ready()\nprint('x' * 300_000)\n")
    async with trio.open_nursery() as nursery:
        child: Child = await nursery.start(run_child, command)
        block_until_it_ended(child.pid)
    assert command.log_path.read_text().count("x") == 300_000


async def test_what_a_child_says_while_it_stops_is_in_its_log_and_never_blocks_it(tmp_path: Path) -> None:
    program = PREAMBLE + "say_ready()\nsys.stdin.read()\nprint('x' * 300_000)\nsys.stderr.write('left')\n"
    command = a_command(tmp_path, program, stop_timeout_s=60.0)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(run_child, command)
            nursery.cancel_scope.cancel()
    assert command.log_path.read_text().count("x") == 300_000
    assert command.log_path.read_text().count("left") == 1


async def test_a_child_that_ignores_its_parents_end_is_killed(tmp_path: Path) -> None:
    program = PREAMBLE + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay_ready()\ntime.sleep(600)\n"
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            child: Child = await nursery.start(run_child, a_command(tmp_path, program, stop_timeout_s=0.1))
            nursery.cancel_scope.cancel()
    assert not psutil.pid_exists(child.pid)


@pytest.mark.parametrize(
    ("program", "start_timeout_s", "said"),
    [
        ("import sys; sys.exit('it broke')", 60.0, "it broke"),
        ("print('hello')", 60.0, "hello"),
        ("import time; time.sleep(600)", 1.0, "not ready after"),
    ],
)
async def test_a_child_that_is_never_ready_is_a_failure_that_says_why(
    tmp_path: Path, program: str, start_timeout_s: float, said: str
) -> None:
    command = a_command(tmp_path, program, start_timeout_s=start_timeout_s, stop_timeout_s=0.1)
    with pytest.raises(ChildFailedError, match=said):
        await run_child(command)


def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent_program = f"""
import sys, trio
from sightline.domain.value import replace
from pathlib import Path
from sightline.system.children import ChildCommand, run_child
async def main():
    async with trio.open_nursery() as nursery:
        log_path = Path({str(tmp_path / "c.log")!r})
        command = ChildCommand(name="c", args=[sys.executable, "-c", {SERVING!r}], log_path=log_path)
        child = await nursery.start(run_child, command)
        print(child.pid, flush=True)
trio.run(main)
"""
    parent = subprocess.Popen([sys.executable, "-c", parent_program], stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        child = psutil.Process(child_pid)
        os.kill(parent.pid, signal.SIGKILL)
        child.wait(20)
    assert not psutil.pid_exists(child_pid)


async def test_a_child_gets_its_input_on_stdin_and_inherits_what_is_named(tmp_path: Path) -> None:
    program = (
        PREAMBLE + "given = os.read(0, 100).decode().strip()\nleave_with_parent()\n"
        "say_ready(given + ' ' + os.read(int(given), 5).decode())\nthreading.Event().wait()\n"
    )
    reading, writing = os.pipe()
    os.write(writing, b"pipe!")
    command = replace(a_command(tmp_path, program), stdin=f"{reading}\n".encode(), inherited=[reading])
    async with trio.open_nursery() as nursery:
        child: Child = await nursery.start(run_child, command)
        assert child.ready == f"{reading} pipe!"
        nursery.cancel_scope.cancel()
    os.close(reading)
    os.close(writing)
