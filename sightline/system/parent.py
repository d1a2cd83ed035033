"""The child's half of `sightline.system.children`. Imports little, because some children need little memory."""

import os
import signal
import sys
import threading
from collections.abc import Callable


def say_ready(text: str = "") -> None:
    """Tell the parent that this process is ready."""
    sys.stdout.write(f"ready {text}".rstrip() + "\n")
    sys.stdout.flush()


def leave_with_parent(leave: Callable[[], None] | None = None) -> None:
    """Exit when the parent ends or asks for it, that is, when stdin reaches end-of-file.

    Args:
        leave: Called once, on its own thread; must end the process soon. Default: SIGTERM to this process.
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
