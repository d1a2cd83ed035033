"""Threads that decode and encode pictures, shared fairly between the inputs of a worker.

The input that used the least processor time lately goes first. Inputs that use much have one thread, which has a lower
priority also for the operating system; the other thread is for the rest. Belongs to one asyncio loop.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar, final

HEAVY_NICE: Final = 10
"""Priority of the thread of heavy inputs: packets and the frames of others go first if processors are scarce."""
HALF_LIFE_MS: Final = 2_000.0
"""Processor time of an input counts half after this time."""
HEAVY_MS: Final = 700.0
"""An input that has used more than this lately is heavy: a quarter of a processor, steadily."""
LONG_JOB_MS: Final = 100.0
"""An input with a job of this length lately is heavy too, and so is one whose jobs are not known yet."""
LONG_JOB_FORGET_MS: Final = 10_000.0

Result = TypeVar("Result")


@final
class PictureThreads:
    """The threads of one worker.

    Args:
        mono_ms: The loop's monotonic milliseconds.
        cpu_s: Processor time of the calling thread.
    """

    def __init__(self, *, mono_ms: Callable[[], float], cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._mono_ms = mono_ms
        self._cpu_s = cpu_s
        self._light = _Lane("picture")
        self._heavy = _Lane("picture-heavy", nice=HEAVY_NICE)
        self._waiting: list[_Job] = []
        self._is_stopped = False

    def share(self) -> "PictureShare":
        """The share of one input."""
        return PictureShare(self)

    def now_ms(self) -> float:
        """Monotonic milliseconds."""
        return self._mono_ms()

    def submit(self, job: "_Job") -> None:
        """Run a job when it is its share's turn."""
        self._waiting.append(job)
        self._start_jobs()

    def _start_jobs(self) -> None:
        now_ms = self._mono_ms()
        self._waiting = [job for job in self._waiting if not job.done.cancelled()]
        while self._waiting and not self._is_stopped:
            job = min(self._waiting, key=lambda each: (each.share.is_heavy(now_ms), each.share.used_ms(now_ms)))
            lanes = (self._heavy,) if job.share.is_heavy(now_ms) else (self._light, self._heavy)
            lane = next((each for each in lanes if not each.is_busy), None)
            if lane is None:
                return
            self._waiting.remove(job)
            lane.is_busy = True
            running = asyncio.get_running_loop().run_in_executor(lane.executor, job.work, self._cpu_s)
            running.add_done_callback(partial(self._finished, job, lane))

    def _finished(self, job: "_Job", lane: "_Lane", running: asyncio.Future[Any]) -> None:
        lane.is_busy = False
        if running.cancelled():  # stopped
            job.done.cancel()
            return
        result, error, used_s = running.result()
        job.share.charge(used_s * 1_000, self._mono_ms())
        if not job.done.done():
            if error is None:
                job.done.set_result(result)
            else:
                job.done.set_exception(error)
        self._start_jobs()

    def stop(self) -> None:
        """Start no further job."""
        self._is_stopped = True
        for job in self._waiting:
            job.done.cancel()
        self._waiting.clear()
        for lane in (self._light, self._heavy):
            lane.executor.shutdown(wait=False, cancel_futures=True)


@final
class _Lane:
    """One thread."""

    def __init__(self, name: str, *, nice: int = 0) -> None:
        self.is_busy = False
        self.executor = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_be_nice, initargs=(nice,))


def _be_nice(nice: int) -> None:
    """Lower the priority of the calling thread; elsewhere than on Linux it would be that of the process."""
    if nice and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


@final
class PictureShare:
    """What one input has used of the threads. Made by `PictureThreads.share`."""

    def __init__(self, threads: PictureThreads) -> None:
        self._threads = threads
        self._used_ms = 0.0
        self._longest_ms = LONG_JOB_MS
        self._at_ms = self._long_at_ms = threads.now_ms()

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a blocking function in a thread when it is this input's turn.

        Cancellation: a function that has started still ends; one that waits is dropped.
        """
        job = _Job(self, function)
        self._threads.submit(job)
        result: Result = await job.done
        return result

    def used_ms(self, now_ms: float) -> float:
        """Processor time lately, older time counting less."""
        return self._used_ms * float(0.5 ** ((now_ms - self._at_ms) / HALF_LIFE_MS))

    def is_heavy(self, now_ms: float) -> bool:
        """Whether this input must leave a thread to others."""
        is_long = self._longest_ms >= LONG_JOB_MS and now_ms - self._long_at_ms < LONG_JOB_FORGET_MS
        return is_long or self.used_ms(now_ms) > HEAVY_MS

    def charge(self, used_ms: float, now_ms: float) -> None:
        """Count a job's processor time."""
        self._used_ms = self.used_ms(now_ms) + used_ms
        self._at_ms = now_ms
        is_known = self._longest_ms > LONG_JOB_MS and now_ms - self._long_at_ms < LONG_JOB_FORGET_MS
        if not is_known or used_ms >= LONG_JOB_MS:
            self._longest_ms, self._long_at_ms = used_ms, now_ms


@final
class _Job:
    """A function that waits for a thread."""

    def __init__(self, share: PictureShare, function: Callable[[], Any]) -> None:
        self.share = share
        self._function = function
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def work(self, cpu_s: Callable[[], float]) -> tuple[Any, Exception | None, float]:
        """Runs in the thread; gives the result or the error, and the processor time used."""
        began_s = cpu_s()
        try:
            return self._function(), None, cpu_s() - began_s
        except Exception as error:  # noqa: BLE001  # passed on to the caller
            return None, error, cpu_s() - began_s
