"""A child that a signal ends before it is ready is started again; one that ends by itself fails the start."""

import signal
import sys
from pathlib import Path

import pytest
import trio

from sightline.system.children import Child, ChildCommand, ChildFailedError
from sightline.system.kept_child import keep_child

KILLED_UNTIL = """
import os, signal, sys
path, times = sys.argv[1], int(sys.argv[2])
with open(path, "a") as file:
    file.write("x")
if os.stat(path).st_size <= times:
    {end}
print("ready now", flush=True)
sys.stdin.read()
"""
KILL = f"os.kill(os.getpid(), {int(signal.SIGKILL)})"


def a_child(directory: Path, times: int, end: str = KILL) -> ChildCommand:
    script = KILLED_UNTIL.format(end=end)
    args = [sys.executable, "-c", script, str(directory / "starts"), str(times)]
    return ChildCommand(name="child", args=args, log_path=directory / "child.log")


def starts_of(directory: Path) -> int:
    return (directory / "starts").stat().st_size


async def started(directory: Path, command: ChildCommand, starts_after_signal: int) -> Child:
    ended = 0

    async def note_end() -> None:
        nonlocal ended
        await trio.lowlevel.checkpoint()
        ended += 1

    async with trio.open_nursery() as nursery:

        async def keep(task_status: trio.TaskStatus[Child] = trio.TASK_STATUS_IGNORED) -> None:
            await keep_child(
                lambda: command,
                lambda child: child,
                on_end=note_end,
                starts_after_signal=starts_after_signal,
                task_status=task_status,
            )

        with trio.fail_after(30):
            child = await nursery.start(keep)
        assert ended == starts_of(directory) - 1, "what it left is cleaned up before each start"
        nursery.cancel_scope.cancel()
    return child


async def test_a_child_that_is_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    child = await started(tmp_path, a_child(tmp_path, 2), 3)
    assert child.ready == "now"
    assert starts_of(tmp_path) == 3


@pytest.mark.parametrize(("end", "starts_after_signal", "starts"), [(KILL, 1, 2), (KILL, 0, 1), ("sys.exit(1)", 3, 1)])
async def test_the_start_fails_when_it_is_killed_again_and_again_or_ends_by_itself(
    tmp_path: Path, end: str, starts_after_signal: int, starts: int
) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await started(tmp_path, a_child(tmp_path, 9, end), starts_after_signal)
    assert raised.group_contains(ChildFailedError, match="exit code", depth=None)
    assert starts_of(tmp_path) == starts
