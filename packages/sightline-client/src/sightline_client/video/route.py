"""The way from this machine to a server. aioice cannot restart ICE, so clients that lose it connect again."""

import asyncio
import socket
from dataclasses import dataclass
from typing import Final, final

LOOK_S: Final = 0.2
"""Interval at which the machine's addresses are looked at: one bound socket, 20 microseconds."""


@final
@dataclass(frozen=True, slots=True)
class Route:
    """The addresses of a connection to the server."""

    local: str
    remote: str

    @property
    def is_gone(self) -> bool:
        """Whether this machine does not have the local address any more. ICE notices after about 8 s."""
        family = socket.AF_INET6 if ":" in self.local else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            try:
                sock.bind((self.local, 0))
            except OSError:
                return True
        return False

    async def another(self) -> None:
        """Wait until the server can be reached from an address of this machine."""
        family = socket.AF_INET6 if ":" in self.remote else socket.AF_INET
        while True:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                try:
                    sock.connect((self.remote, 9))  # sends nothing: it looks for a route
                except OSError:
                    await asyncio.sleep(LOOK_S)
                else:
                    return
