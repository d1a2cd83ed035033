"""Signals of commands that must end what they began: a session, or the programs of a local server."""

import signal


def stop_like_ctrl_c() -> None:
    """Let SIGTERM stop the command like Ctrl-C, and SIGINT also if it was ignored at the start.

    A shell without job control ignores SIGINT in its background jobs, and service managers send SIGTERM. Call it before
    the event loop starts.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
