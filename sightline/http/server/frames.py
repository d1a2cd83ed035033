"""WebSocket frames of the server's side, without any socket (RFC 6455, section 5). No extension is ever agreed on.

A message is handed out whole and bounded, so its text is checked once, at its end. A frame that announces too much is
refused by its header, before its payload is kept.
"""

from typing import TypeAlias

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
NO_STATUS = 1005
ABNORMAL = 1006
BAD_TEXT = 1007
TOO_BIG = 1009
INTERNAL = 1011

_FIN = 0x80
_RESERVED = 0x70
_MASKED = 0x80
_CONTROL_BYTES_MAX = 125
# Empty fragments have no size that could be bounded.
_PIECES_MAX = 1024
# RFC 6455, 7.4.1 and the registry: what a peer may say when it closes.
_CODES_OF_PEERS = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})

Frame: TypeAlias = tuple[int, bytes]


class FrameError(Exception):
    """The peer broke the protocol. `code` is what it is told."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class FrameReader:
    """Bytes in; whole messages (TEXT, BINARY) and control frames (CLOSE, PING, PONG) out."""

    __slots__ = ("_buffer", "_kind", "_max_bytes", "_pieces", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = b""
        self._kind = CONTINUATION
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Keep what was read."""
        self._buffer = self._buffer + data if self._buffer else data

    def next(self) -> Frame | None:
        """The next message or control frame, None when more bytes are needed.

        Raises:
            FrameError: Nothing further can be read then.
        """
        while True:
            frame = self._next_frame()
            if frame is None:
                return None
            first, payload = frame
            opcode = first & 0x0F
            if opcode >= CLOSE:
                return opcode, payload
            if first & _FIN and not self._pieces and opcode:
                self._size = 0
                return opcode, payload
            message = self._join(first, opcode, payload)
            if message is not None:
                return message

    def _join(self, first: int, opcode: int, payload: bytes) -> Frame | None:
        if opcode:
            self._kind = opcode
        self._pieces.append(payload)
        if len(self._pieces) > _PIECES_MAX:
            raise FrameError(TOO_BIG)
        if not first & _FIN:
            return None
        message = self._kind, b"".join(self._pieces)
        self._pieces = []
        self._kind = CONTINUATION
        self._size = 0
        return message

    def _next_frame(self) -> Frame | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        self._check_header(first, second)
        size = second & 0x7F
        start = 2
        if size == 126:
            start = 4
        elif size == 127:
            start = 10
        if len(buffer) < start:
            return None
        if start > 2:
            size = int.from_bytes(buffer[2:start], "big")
            if size < (126 if start == 4 else 1 << 16):
                raise FrameError(PROTOCOL_ERROR)
        self._check_size(first, size)
        end = start + 4 + size
        if len(buffer) < end:
            return None
        payload = _unmask(buffer[start : start + 4], buffer[start + 4 : end])
        self._buffer = buffer[end:]
        if first & 0x0F < CLOSE:
            self._size += size
        return first, payload

    def _check_header(self, first: int, second: int) -> None:
        opcode = first & 0x0F
        if first & _RESERVED or not second & _MASKED:
            raise FrameError(PROTOCOL_ERROR)
        if opcode >= CLOSE:
            if opcode > PONG or not first & _FIN or second & 0x7F > _CONTROL_BYTES_MAX:
                raise FrameError(PROTOCOL_ERROR)
        elif opcode > BINARY or (opcode == CONTINUATION) != bool(self._pieces):
            raise FrameError(PROTOCOL_ERROR)

    def _check_size(self, first: int, size: int) -> None:
        if first & 0x0F < CLOSE and self._size + size > self._max_bytes:
            raise FrameError(TOO_BIG)


def _unmask(mask: bytes, payload: bytes) -> bytes:
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")


def encode_frame(opcode: int, payload: bytes) -> bytes:
    """One whole, unmasked frame."""
    size = len(payload)
    if size < 126:
        head = bytes((_FIN | opcode, size))
    elif size < 1 << 16:
        head = bytes((_FIN | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FIN | opcode, 127)) + size.to_bytes(8, "big")
    return head + payload


def encode_close(code: int, reason: str = "") -> bytes:
    """A close frame; a reason that is too long is cut."""
    return encode_frame(CLOSE, code.to_bytes(2, "big") + reason.encode()[: _CONTROL_BYTES_MAX - 2])


def decode_text(payload: bytes) -> str:
    """The text of a message. Raises FrameError."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise FrameError(BAD_TEXT) from error


def decode_close(payload: bytes) -> int:
    """The code of the peer's close frame. Raises FrameError."""
    if not payload:
        return NO_STATUS
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (code in _CODES_OF_PEERS or 3000 <= code < 5000):
        raise FrameError(PROTOCOL_ERROR)
    decode_text(payload[2:])
    return code
