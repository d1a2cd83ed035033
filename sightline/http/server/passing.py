"""Passes new connections between processes of one machine that accept on the same socket.

The process that accepts a connection looks at the first request line, without reading it, and may give the connection
to another process: the one beside the actor that the path names. The descriptor travels over a Unix datagram socket,
and the request is still in the connection's buffer. Only plain HTTP: bytes of TLS cannot be given away.
"""

import array
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import structlog
import trio

LOOK_BYTES: Final = 256
"""Bytes of the first request that are looked at."""
PATH_MAX: Final = 100
"""Longest path of a Unix socket that every system accepts."""
SUFFIX: Final = ".sock"

log = structlog.get_logger()


@final
class ConnectionPassing:
    """The socket of this process for connections that others give to it, and the way to theirs.

    Each process has a directory of its own in one common directory, and its socket in there is named after it.
    """

    def __init__(self, directory: Path, me: str, choose: Callable[[bytes], str | None]) -> None:
        """Bind the socket in this process's directory, which only this account may enter (mode 0700).

        Args:
            choose: Returns the name of the process that should serve a connection with these first bytes; None: this.

        Raises:
            OSError: The socket cannot be bound.
        """
        self._common = directory.parent
        self._choose = choose
        self._paths: dict[str, str | None] = {}
        for old in directory.glob(f"*{SUFFIX}"):
            old.unlink(missing_ok=True)
        self._path = directory / f"{me}{SUFFIX}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._path))

    @staticmethod
    def is_possible(directory: Path, me: str) -> bool:
        """Whether the path of the socket is short enough."""
        return len(str(directory / f"{me}{SUFFIX}").encode()) <= PATH_MAX

    async def give(self, sock: socket.socket) -> bool:
        """Wait for the first bytes of a connection; give it to another process if that should serve it.

        Returns:
            Whether it was given away. The caller then closes its descriptor.
        """
        await trio.lowlevel.wait_readable(sock)
        try:
            first = sock.recv(LOOK_BYTES, socket.MSG_PEEK)
        except OSError:
            return False
        to = self._choose(first)
        path = self._path_of(to) if to is not None else None
        if path is None:
            return False
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sock.fileno()]))]
            self._socket.sendmsg([b"c"], rights, 0, path)
        except OSError:  # it has ended, or has not taken the earlier ones yet
            self._paths.clear()
            return False
        return True

    def _path_of(self, process: str) -> str | None:
        if process not in self._paths:
            found = next(iter(self._common.glob(f"*/{process}{SUFFIX}")), None)
            if found is None:
                return None
            self._paths[process] = str(found)
        return self._paths[process]

    async def received(self) -> AsyncIterator[socket.socket]:
        """Connections that other processes give to this one."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                _, descriptors, _, _ = socket.recv_fds(self._socket, 16, 1)
            except BlockingIOError:
                continue
            except OSError as error:
                log.warning("connection_not_received", error=error.strerror)
                continue
            for descriptor in descriptors:
                yield socket.socket(fileno=descriptor)

    def close(self) -> list[socket.socket]:
        """Stop receiving connections. Returns those that other processes have sent and this one has not received."""
        if self._socket.fileno() < 0:
            return []
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        given: list[socket.socket] = []
        with suppress(OSError):  # there are no more
            while True:
                _, descriptors, _, _ = socket.recv_fds(self._socket, 16, 1)
                given += [socket.socket(fileno=descriptor) for descriptor in descriptors]
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        return given
