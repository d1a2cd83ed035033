"""Messages between the server and a media worker: a JSON header and raw bytes, both length-prefixed. Sans-IO."""

import struct
from typing import Any, Final, final

import orjson

_PREFIX: Final = struct.Struct("!II")
MESSAGE_MAX_BYTES: Final = 64 * 1024 * 1024
Header = dict[str, Any]


class BrokenPipeMessageError(Exception):
    """The other side sent bytes that are not a message."""


def encode(header: Header, body: bytes = b"") -> bytes:
    """One message as bytes."""
    head = orjson.dumps(header)
    return _PREFIX.pack(len(head), len(body)) + head + body


@final
class Decoder:
    """Splits a byte stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[Header, bytes]]:
        """Add bytes; returns every message that is now complete.

        Raises:
            BrokenPipeMessageError: A length exceeds MESSAGE_MAX_BYTES.
        """
        self._buffer += data
        messages: list[tuple[Header, bytes]] = []
        while len(self._buffer) >= _PREFIX.size:
            head_size, body_size = _PREFIX.unpack_from(self._buffer)
            end = _PREFIX.size + head_size + body_size
            if end > MESSAGE_MAX_BYTES:
                raise BrokenPipeMessageError(f"a message of {end} bytes")
            if len(self._buffer) < end:
                break
            head = orjson.loads(memoryview(self._buffer)[_PREFIX.size : _PREFIX.size + head_size])
            body = bytes(memoryview(self._buffer)[_PREFIX.size + head_size : end])
            del self._buffer[:end]
            messages.append((head, body))
        return messages
