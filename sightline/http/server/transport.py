"""Reads and writes of one connection: a plain socket, one system call per small response, or a trio stream (TLS)."""

import socket
from typing import Protocol

import trio

from sightline.http.server.asgi import ClientGoneError
from sightline.http.server.parser import READ_BYTES

_WRITE_BYTES = 64 * 1024
_NEVER = float("inf")


class Transport(Protocol):
    """A byte stream to one client. `write_deadline` is infinite unless a write waits for the client to read."""

    write_deadline: float

    async def receive(self) -> bytes:
        """Return the next bytes; empty when the connection is closed or broken."""
        ...

    async def send(self, data: bytes) -> None:
        """Write all bytes. Raises ClientGoneError. After cancellation an unknown part was written."""
        ...

    async def finish(self) -> None:
        """Close the sending direction."""
        ...

    async def close(self) -> None:
        """Close. Never raises; may be called again."""
        ...


class SocketTransport:
    """A non-blocking TCP socket, used directly: trio's stream costs a scheduler turn and two checks per write."""

    __slots__ = ("_socket", "_write_s", "write_deadline")

    def __init__(self, sock: socket.socket, write_s: float) -> None:
        self._socket = sock
        self._write_s = write_s
        self.write_deadline = _NEVER

    async def receive(self) -> bytes:
        """See Transport."""
        while True:
            try:
                await trio.lowlevel.wait_readable(self._socket)
                return self._socket.recv(READ_BYTES)
            except (BlockingIOError, InterruptedError):
                continue
            except (OSError, trio.ClosedResourceError):
                return b""

    async def send(self, data: bytes) -> None:
        """See Transport."""
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            raise ClientGoneError(error.errno, "the peer has gone") from error
        if sent < len(data):
            await self._send_rest(memoryview(data)[sent:])

    async def _send_rest(self, rest: memoryview) -> None:
        try:
            while rest:
                self.write_deadline = trio.current_time() + self._write_s
                await trio.lowlevel.wait_writable(self._socket)
                try:
                    rest = rest[self._socket.send(rest) :]
                except (BlockingIOError, InterruptedError):
                    continue
        except (OSError, trio.ClosedResourceError) as error:
            raise ClientGoneError("the peer has gone") from error
        finally:
            self.write_deadline = _NEVER

    async def finish(self) -> None:
        """See Transport."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    async def close(self) -> None:
        """See Transport."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class StreamTransport:
    """A trio stream, such as TLS."""

    __slots__ = ("_stream", "_write_s", "write_deadline")

    def __init__(self, stream: trio.abc.Stream, write_s: float) -> None:
        self._stream = stream
        self._write_s = write_s
        self.write_deadline = _NEVER

    async def receive(self) -> bytes:
        """See Transport."""
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def send(self, data: bytes) -> None:
        """See Transport."""
        try:
            for start in range(0, len(data), _WRITE_BYTES):
                self.write_deadline = trio.current_time() + self._write_s
                await self._stream.send_all(data[start : start + _WRITE_BYTES])
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientGoneError("the peer has gone") from error
        finally:
            self.write_deadline = _NEVER

    async def finish(self) -> None:
        """Does nothing: half-close is not interoperable with TLS."""

    async def close(self) -> None:
        """See Transport."""
        await trio.aclose_forcefully(self._stream)
