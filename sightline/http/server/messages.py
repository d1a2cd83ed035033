"""Joins WebSocket frames, which wsproto decodes, into whole messages of bounded size."""

from collections.abc import Iterator
from typing import Final, final

from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

_FRAMES_MAX: Final = 1024
"""Frames per message. Empty fragments add no bytes, so the size limit alone would not end a message of them."""


@final
class MessageReader:
    """Decodes what a client sends. No extension is negotiated, so a frame with a reserved bit is an error."""

    __slots__ = ("_bytes", "_frames", "_max_bytes", "_protocol", "_size", "_text")

    def __init__(self, protocol: FrameProtocol, max_bytes: int) -> None:
        self._protocol = protocol
        self._max_bytes = max_bytes
        self._reset()

    def _reset(self) -> None:
        self._text = ""
        self._bytes = b""
        self._size = 0
        self._frames = 0

    def feed(self, data: bytes) -> None:
        """Add bytes that were read from the connection."""
        self._protocol.receive_bytes(data)

    def frames(self) -> Iterator[Frame]:
        """Yield each whole message (TEXT, BINARY) and each control frame (CLOSE, PING, PONG) received so far.

        Raises:
            ParseFailed: The client broke RFC 6455 or a limit; `code` is the close code to send.
        """
        for frame in self._protocol.received_frames():
            if frame.opcode.iscontrol():
                yield frame
                continue
            self._add(frame)
            if frame.message_finished:
                message = self._text if frame.opcode is Opcode.TEXT else self._bytes
                self._reset()
                yield Frame(frame.opcode, message, frame_finished=True, message_finished=True)

    def _add(self, frame: Frame) -> None:
        payload = frame.payload
        if isinstance(payload, str):
            self._size += len(payload.encode())
            self._text += payload
        else:
            assert isinstance(payload, bytes)
            self._size += len(payload)
            self._bytes += payload
        self._frames += frame.frame_finished
        if self._size > self._max_bytes or self._frames > _FRAMES_MAX:
            raise ParseFailed("message too big", CloseReason.MESSAGE_TOO_BIG)
