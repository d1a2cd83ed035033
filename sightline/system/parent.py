"""The child's half of `sightline.system.children`. Imports little, because some children need little memory."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

PR_SET_PDEATHSIG: Final = 1
"""From prctl.h: the signal that the kernel sends to this process when its parent ends."""
EXIT_FAILED: Final = 3
STOP: Final = b"stop\n"
"""What a parent that stops in order writes to the child's stdin before it closes it, if the child wants to know."""
LIBC: Final = ctypes.CDLL(None)
"""Loaded here, because little may be done between fork and exec."""


def say_ready(text: str = "") -> None:
    """Tell the parent that this process is ready."""
    sys.stdout.write(f"ready {text}".rstrip() + "\n")
    sys.stdout.flush()


def leave_with_parent(leave: Callable[[], None] | None = None, *, if_killed: Callable[[], None] | None = None) -> None:
    """Exit when the parent ends or asks for it, that is, when stdin reaches end-of-file.

    Args:
        leave: Called once, on its own thread; must end the process soon. Default: SIGTERM to this process.
        if_killed: Called instead when the parent ended without a word (`ChildCommand.says_stop`).
    """
    calls = (leave or _terminate_self, if_killed or leave or _terminate_self)
    thread = threading.Thread(target=_await_end, args=calls, name="parent-watch", daemon=True)
    thread.start()


def _await_end(leave: Callable[[], None], if_killed: Callable[[], None]) -> None:
    said = b""
    try:
        while read := os.read(0, 4_096):
            said = (said + read)[-len(STOP) :]
    except OSError:
        pass
    if said == STOP:
        leave()
    else:
        if_killed()


def _terminate_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def die_with_parent(signal_number: int, parent: int) -> None:
    """Have the kernel send the signal to this process when its parent ends. Only on Linux; elsewhere without effect.

    For `preexec_fn` of a program that does not watch its parent.

    Args:
        parent: Process id of the parent, read before the fork.
    """
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, int(signal_number))
        if os.getppid() != parent:
            # The parent ended before the kernel was asked.
            os._exit(EXIT_FAILED)
