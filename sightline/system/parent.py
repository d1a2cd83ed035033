"""The child's side of `sightline.system.children`. Imports nothing heavy: some children do little else."""

import os
import signal
import sys
import threading
from collections.abc import Callable


def say_ready(text: str = "") -> None:
    """Tell the parent that we serve."""
    sys.stdout.write(f"ready {text}".rstrip() + "\n")
    sys.stdout.flush()


def leave_with_parent(leave: Callable[[], None] | None = None) -> None:
    """From now on, leave when the parent is gone or asks us to: when stdin reaches its end.

    Args:
        leave: Called once, on a thread of its own; must end the process soon. Default: SIGTERM to ourselves.
    """
    thread = threading.Thread(target=_await_end, args=(leave or _terminate_self,), name="parent-watch", daemon=True)
    thread.start()


def _await_end(leave: Callable[[], None]) -> None:
    try:
        while os.read(0, 4_096):
            pass
    except OSError:
        pass
    leave()


def _terminate_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
