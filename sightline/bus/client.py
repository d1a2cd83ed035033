"""The NATS client of nats-py, changed for the bus. nats-py is pinned exactly, because private names are used.

- A frame goes to the bus when it is parsed. The library keeps a queue and a task for each subscription, so a broadcast
  and a frame to one server could overtake each other.
- With TLS wanted, nothing is sent to a server that does not offer it. The library would send the token unencrypted.
- All frames that wait are written at once. The library takes three tasks' turns and two checks for each.
- `abort` discards what was not sent. The library flushes old frames into a connection it gives up, and waits for that.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeAlias, final
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from typing_extensions import override

NO_RESPONDERS: Final = b"NATS/1.0 503"
CLOSE_TIMEOUT_S: Final = 1.0
FLUSH_TIMEOUT_S: Final = 2
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

OnMessage: TypeAlias = Callable[[bytes, bytes, bytes, bool], None]
"""Called with subject, reply subject, payload, and whether the message says that a subject has no subscriber."""


@final
class NatsClient(Client):
    """One connection to one server. It never reconnects: the bus makes another client."""

    def __init__(self, on_message: OnMessage, *, needs_tls: bool) -> None:
        super().__init__()
        self._on_message = on_message
        self._needs_tls = needs_tls

    @override
    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self._on_message(subject, reply, data, headers is not None and headers.startswith(NO_RESPONDERS))

    async def write(self, messages: Iterable[tuple[str, str, bytes]]) -> None:
        """Publish messages: subject, subject for replies, payload. Waits while the connection takes no more bytes."""
        writer = self._open_writer()
        parts: list[bytes] = []
        for subject, reply, payload in messages:
            parts += (f"PUB {subject} {reply} {len(payload)}\r\n".encode(), payload, b"\r\n")
        writer.write(b"".join(parts))
        await writer.drain()

    @override
    async def flush(self, timeout: int = FLUSH_TIMEOUT_S) -> None:
        """Wait until the server has what was written."""
        self._open_writer()
        await super().flush(timeout)

    @override
    def _connect_command(self) -> bytes:
        writer = self._writer()
        if self._needs_tls and (writer is None or writer.get_extra_info("ssl_object") is None):
            raise nats.errors.Error("the NATS server does not offer TLS")
        return super()._connect_command()

    async def abort(self) -> None:
        """Close the connection at once; bytes that were not sent are discarded, those in the kernel too."""
        writer = self._writer()
        if writer is not None:
            with suppress(OSError, AttributeError):  # closed already
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
        self._pending.clear()
        self._pending_data_size = 0
        # Ends the tasks of the library. It may fail, because the connection is gone.
        with suppress(OSError, RuntimeError, AttributeError, TimeoutError, nats.errors.Error):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.close()

    def _open_writer(self) -> asyncio.StreamWriter:
        """Return the writer. uvloop closes it at a reset, before the library knows, and then raises RuntimeError."""
        writer = self._writer()
        if writer is None or writer.transport.is_closing() or not self.is_connected:
            raise nats.errors.ConnectionClosedError
        return writer

    def _writer(self) -> asyncio.StreamWriter | None:
        transport = self._transport
        return transport._io_writer if isinstance(transport, TcpTransport) else None  # noqa: SLF001  no public name


def endpoint(url: str) -> str:
    """Host and port of a server's URL, without its credentials; for logs."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 4222}"
