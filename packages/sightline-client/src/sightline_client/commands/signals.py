"""Signals of commands that must end what they began, a session or a local server, or that have no other end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def stop_like_ctrl_c() -> None:
    """Let SIGTERM stop the command like Ctrl-C, and SIGINT also if it was ignored at the start.

    A shell without job control ignores SIGINT in its background jobs, and service managers send SIGTERM. Call it before
    the event loop starts.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


@contextmanager
def until_stopped() -> Iterator[None]:
    """Leave the block at Ctrl-C or SIGTERM: the work of a command that has no other end is done then."""
    stop_like_ctrl_c()
    with suppress(KeyboardInterrupt):
        yield
