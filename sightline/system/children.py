"""Run child processes that end when the server ends.

The parent holds the write end of a pipe on the child's stdin. When the parent ends, also by kill -9, the kernel closes
that end, the child reads end-of-file and exits. The child's half is `leave_with_parent`.

When a child is ready it prints one line on stdout: `ready`, a space, and what its parent needs (an address).
All later output, and all of stderr, goes to its log file (mode 0600). If the log cannot be written because the disk
is full, lines are lost and the child keeps running.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, final

import structlog
import trio

from sightline.domain.value import Value, hiding
from sightline.system.loops import Backoff
from sightline.system.parent import STOP

log = structlog.get_logger()

TERM_TIMEOUT_S = 2.0
"""Seconds between SIGTERM and SIGKILL for a child that did not exit at end-of-file."""

READY_LINE_BYTES_MAX = 4_096
LOG_BYTES_MAX = 16 * 1024 * 1024
"""A log file larger than this is moved aside (one generation is kept) when its child starts."""

LOG_TAIL_BYTES = 2_000
PIPE_BYTES_MAX = 1024 * 1024
"""The most that a pipe of Linux holds for a process without privileges (`/proc/sys/fs/pipe-max-size`)."""

RESTART_BACKOFF = Backoff(first_s=0.5, max_s=10.0)
STEADY_S = 10.0
"""A child that ran this long is restarted without the longer pauses that earlier failures caused."""


class ChildFailedError(Exception):
    """A child was not started, or did not become ready: it exited, printed another line, or exceeded its time limit.

    Unless the operating system refused to start it, the message ends with the child's log.
    """

    is_by_signal: bool = False
    """Whether a signal ended the child, which says nothing about the next start."""


@final
class RestartPause:
    """Computes the pause before a child is restarted."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, *, ran_s: float) -> float:
        """Seconds to wait after a child that ran for `ran_s` seconds; 0 if it was not started."""
        self._failures = 1 if ran_s >= STEADY_S else self._failures + 1
        return RESTART_BACKOFF.wait_s(self._failures)


@final
class ChildCommand(Value, kw_only=True):
    """The command line of a child process and its time limits."""

    name: str
    """Name of the child in log events."""
    args: Sequence[str]
    log_path: Path
    env: Mapping[str, str] | None = None
    """The complete environment; None inherits the server's."""
    start_timeout_s: float = 60.0
    stop_timeout_s: float = 10.0
    """Seconds from end-of-file on stdin until SIGTERM."""
    stdin: bytes = b""
    """What the child reads on stdin before it waits for end-of-file. At most 60 kB, which a pipe always takes."""
    says_stop: bool = False
    """Whether a stop is announced on stdin, so that the child can tell it from the death of its parent."""
    inherited: Sequence[int] = ()
    """Descriptors that the child inherits, under the same numbers."""

    __repr__ = hiding("stdin")


@final
class Child(Value):
    """A child process that reported that it is ready."""

    pid: int
    ready: str
    """The text after the word `ready`."""


async def run_child(command: ChildCommand, *, task_status: trio.TaskStatus[Child] = trio.TASK_STATUS_IGNORED) -> int:
    """Start a child, report it when it is ready, and return its exit code when it has exited.

    Call it as `child = await nursery.start(run_child, command)`. The caller decides how to handle the child's exit.

    Raises:
        ChildFailedError: The child never became ready, or the operating system could not start it (descriptors, memory,
            disk).

    Cancellation: the child is stopped first: end-of-file, then SIGTERM, then SIGKILL.
    """
    async with _started(command) as (process, log_file):
        try:
            child, rest = await _await_ready(command, process)
            _write(log_file, rest)
            task_status.started(child)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drain, process, log_file)
                exit_code = await process.wait()
                nursery.cancel_scope.cancel()
            return exit_code
        finally:
            # What it says while it stops is kept too, and it is not stopped by a full pipe.
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_drain, process, log_file)
                    await _stop(process, command)
                    nursery.cancel_scope.cancel()


@asynccontextmanager
async def _started(command: ChildCommand) -> AsyncIterator[tuple[trio.Process, BinaryIO]]:
    try:
        log_file = _open_log(command.log_path)
    except OSError as error:
        raise ChildFailedError(f"{command.name}: its log {command.log_path} cannot be opened: {error}") from error
    with log_file:
        try:
            process = await trio.lowlevel.open_process(
                list(command.args),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=None if command.env is None else dict(command.env),
                pass_fds=command.inherited,
                # A Ctrl-C at the terminal must reach only the server, which stops its children in order.
                start_new_session=True,
            )
        except OSError as error:
            raise ChildFailedError(f"{command.name}: cannot be started: {error}") from error
        if command.stdin:
            assert process.stdin is not None
            with suppress(trio.BrokenResourceError):  # it ended already, which is noticed next
                await process.stdin.send_all(command.stdin)
        yield process, log_file


async def _await_ready(command: ChildCommand, process: trio.Process) -> tuple[Child, bytes]:
    assert process.stdout is not None
    said = b""
    with trio.move_on_after(command.start_timeout_s) as patience:
        while b"\n" not in said and len(said) < READY_LINE_BYTES_MAX:
            chunk = await process.stdout.receive_some()
            if not chunk:
                break
            said += chunk
    line, newline, rest = said.partition(b"\n")
    word, _, ready = line.decode(errors="replace").partition(" ")
    if newline and word.strip() == "ready":
        return Child(process.pid, ready.strip()), rest
    if patience.cancelled_caught:
        reason = f"not ready after {command.start_timeout_s:g} s"
    elif said:
        reason = f"said {line!r} in place of ready"
    else:
        reason = f"ended with exit code {await process.wait()}"
    error = ChildFailedError(f"{command.name}: {reason}; its log ends:\n{_log_tail(command.log_path)}")
    error.is_by_signal = process.returncode is not None and process.returncode < 0
    raise error


async def _drain(process: trio.Process, log_file: BinaryIO) -> None:
    """Copy the child's stdout to its log, so that it never blocks on a full pipe.

    Cancellation: what is in the pipe by then is in the log. The end of the stream is not awaited: a process that the
    child left behind may hold it open.
    """
    assert isinstance(process.stdout, trio.lowlevel.FdStream)
    try:
        async for chunk in process.stdout:
            _write(log_file, chunk)
    finally:
        with suppress(OSError):  # nothing is in the pipe
            _write(log_file, os.read(process.stdout.fileno(), PIPE_BYTES_MAX))


def _write(log_file: BinaryIO, text: bytes | bytearray) -> None:
    # When the disk is full, lose log lines but keep the server running.
    with suppress(OSError):
        log_file.write(text)


async def _stop(process: trio.Process, command: ChildCommand) -> None:
    """Stop a child by end-of-file, then SIGTERM, then SIGKILL, each with a time limit; returns when it is reaped."""
    assert process.stdin is not None
    if command.says_stop:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # it ended already, or was asked before
            await process.stdin.send_all(STOP)
    await process.stdin.aclose()
    if await _gone_within(process, command.stop_timeout_s):
        return
    log.warning("child_does_not_leave", child=command.name, pid=process.pid)
    process.terminate()
    if await _gone_within(process, TERM_TIMEOUT_S):
        return
    log.warning("child_killed", child=command.name, pid=process.pid)
    process.kill()
    await process.wait()


async def _gone_within(process: trio.Process, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        await process.wait()
        return True
    return process.poll() is not None


def _open_log(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_name(path.name + ".1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)  # also narrows the mode of a file that an earlier version made readable by others
    return os.fdopen(descriptor, "ab", buffering=0)


def _log_tail(path: Path) -> str:
    with path.open("rb") as log_file:
        log_file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return log_file.read().decode(errors="replace")
