"""The process that media workers are forked from: it has imported what they need (ADR 0259).

Each byte on the control socket, which is stdin, brings the sockets of a new worker; the answer is its pid, or 0 if the
operating system refused the fork. When the control socket closes, the template waits for its workers, whose sockets
close too, and ends. It has one thread, no event loop and no file of its own: nothing that a worker would share by
mistake.
"""

import gc
import os
import socket
import struct
from contextlib import suppress
from typing import Final

SOCKETS: Final = 2
"""Of a worker: its requests, and the TCP connections that are passed to it."""
PID: Final = struct.Struct("!I")


def await_fork() -> tuple[socket.socket, socket.socket] | None:
    """Serve requests. Returns its sockets in each worker; None in the template when the control socket has closed."""
    gc.collect()
    gc.freeze()  # a collection in a worker then writes to no page that it shares with the others
    with socket.socket(fileno=os.dup(0)) as control:
        _close_stdin()
        while descriptors := socket.recv_fds(control, 1, SOCKETS)[1]:
            pid = _fork()
            if pid == 0:
                requests, connections = (socket.socket(fileno=each) for each in descriptors)
                return requests, connections
            for each in descriptors:
                os.close(each)
            control.send(PID.pack(pid or 0))
            _collect_ended(os.WNOHANG)  # a request for another worker follows each end
    _collect_ended(0)
    return None


def _close_stdin() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _fork() -> int | None:
    """The pid of the new worker, 0 in it, None if it could not be forked."""
    try:
        return os.fork()
    except OSError:  # too many processes, or no memory
        return None


def _collect_ended(options: int) -> None:
    """Collect the exit codes of workers, so that they leave the table of processes."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass
