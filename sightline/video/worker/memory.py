"""The limit of a worker's memory: a worker over it ends itself, and the server starts another with the same inputs."""

import os
import resource
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import structlog

CHECK_EVERY_S: Final = 0.1
IDLE_CHECK_EVERY_S: Final = 0.5
"""While memory is below half of the limit and does not grow: each look costs an idle process a wake-up."""
HARD: Final = 2.0
"""The operating system refuses memory above this multiple of the limit, in addition to what the worker has reserved at
its start, so that no allocation between two checks is felt by other processes."""
EXIT_CODE: Final = 75
_STATM: Final = Path("/proc/self/statm")
log = structlog.get_logger()


def resident_mb() -> int:
    """Resident memory of this process in MB; 0 where the operating system does not say."""
    return _statm(1)


def _statm(field: int) -> int:
    """A field of statm in MB: 1 is resident memory, 5 data and stacks, as RLIMIT_DATA counts."""
    try:
        pages = int(_STATM.read_text().split()[field])
    except OSError:
        return 0
    return pages * resource.getpagesize() // 1_000_000


def pause_s(before_mb: int, resident_mb: int, limit_mb: int) -> float:
    """Seconds until the next check, from the resident memory of the last two checks."""
    is_calm = resident_mb <= before_mb and resident_mb < limit_mb / 2
    return IDLE_CHECK_EVERY_S if is_calm else CHECK_EVERY_S


@final
class MemoryLimit:
    """Watches the memory of this process in a thread, so that a busy event loop does not delay it.

    Args:
        limit_mb: Resident memory at which the process ends; 0 watches nothing.
        end: Ends the process.
        harden: Also set the hard limit.
    """

    def __init__(self, limit_mb: int, *, end: Callable[[int], object] = os._exit, harden: bool = True) -> None:
        self._limit_mb = limit_mb
        self._end = end
        self._harden = harden

    def start(self) -> None:
        """Set the hard limit, and begin to watch."""
        if not self._limit_mb:
            return
        if self._harden:
            self._set_hard_limit()
        threading.Thread(target=self._watch, name="memory", daemon=True).start()

    def _set_hard_limit(self) -> None:
        with suppress(OSError, ValueError):  # macOS accepts it without an effect
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            hard = int(_statm(5) + self._limit_mb * HARD) * 1_000_000
            resource.setrlimit(resource.RLIMIT_DATA, (hard if most < 0 else min(hard, most), most))

    def _watch(self) -> None:
        never, before = threading.Event(), 0
        while (resident := resident_mb()) <= self._limit_mb:
            never.wait(pause_s(before, resident, self._limit_mb))
            before = resident
        log.error("media_worker_memory_exceeded", resident_mb=resident, limit_mb=self._limit_mb, pid=os.getpid())
        sys.stderr.flush()
        self._end(EXIT_CODE)
