"""Starts media workers: forks of one process that has imported what they need (ADR 0259)."""

import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from subprocess import DEVNULL
from typing import Final, final

import trio

from sightline.domain.errors import VideoUnavailableError

START_S: Final = 60.0
"""Time for the imports: a second on an idle machine, 20 s on a busy one."""
STOP_S: Final = 3.0
TRIES: Final = 2
PID: Final = struct.Struct("!I")
ALLOCATOR: Final = {"MALLOC_MMAP_THRESHOLD_": str(4 << 20), "MALLOC_ARENA_MAX": "2"}
"""glibc's malloc: pictures are returned to the operating system when their decoder is released, instead of kept in
the arena of the thread that allocated them."""
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Only a process with one thread can be forked safely, and numpy would start more."""


@final
class WorkerTemplate:
    """The process that is forked. It is started by `open_template`, and again by a request when it has died."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._control: socket.socket | None = None
        self._process: trio.Process | None = None

    async def fork(self, requests: socket.socket, connections: socket.socket) -> int:
        """Start a worker that has copies of these sockets. Returns its pid.

        Raises:
            VideoUnavailableError: The operating system could not start it (descriptors, memory, processes).
        """
        async with self._lock:
            problem: Exception | None = None
            for _ in range(TRIES):  # the template may have died since the last request
                try:
                    pid = await self._ask(requests, connections)
                except (OSError, EOFError, trio.TooSlowError) as error:
                    problem = error
                    continue
                if pid == 0:
                    raise VideoUnavailableError("a media worker cannot be forked")
                return pid
            raise VideoUnavailableError(f"a media worker cannot be started: {problem}") from problem

    async def begin(self) -> None:
        """Start the process, without waiting for its imports.

        Raises:
            OSError: The operating system refused.
        """
        async with self._lock:
            await self._start()

    async def _ask(self, requests: socket.socket, connections: socket.socket) -> int:
        try:
            with trio.fail_after(START_S):
                control = self._control or await self._start()
                socket.send_fds(control, [b"\n"], [requests.fileno(), connections.fileno()])
                answer = b""
                while len(answer) < PID.size:
                    await trio.lowlevel.wait_readable(control)
                    part = control.recv(PID.size - len(answer))
                    if not part:
                        raise EOFError("its template has died")
                    answer += part
        except BaseException:  # also cancelled: a late answer would be taken for that of the next request
            await self.stop(0)
            raise
        (pid,) = PID.unpack(answer)
        return int(pid)

    async def _start(self) -> socket.socket:
        control, theirs = socket.socketpair()
        control.setblocking(False)
        self._control = control
        with theirs:
            self._process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "sightline.video.worker"],
                stdin=theirs.fileno(),
                stdout=DEVNULL,
                env=ALLOCATOR | ONE_THREAD | _without_secrets(os.environ),
            )
        return control

    async def stop(self, within_s: float = STOP_S) -> None:
        """End the process when its workers have ended, or without them after this time."""
        control, process, self._control, self._process = self._control, self._process, None, None
        if control is not None:
            control.close()
        if process is None:
            return
        with trio.CancelScope(shield=True):
            with trio.move_on_after(within_s):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are no settings: a worker parses what strangers send, and gets its options by its socket."""
    return {name: value for name, value in environment.items() if not name.startswith("SIGHTLINE_")}


@asynccontextmanager
async def open_template() -> AsyncIterator[WorkerTemplate]:
    """Run the process during the block. It is importing its libraries at first; the first request waits for that."""
    template = WorkerTemplate()
    try:
        with suppress(OSError):  # the first request tries again
            await template.begin()
        yield template
    finally:
        await template.stop()
