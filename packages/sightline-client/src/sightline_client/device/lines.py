"""The lines of a stream of bytes: of a receiver, or of what a publisher prints."""

from collections.abc import AsyncIterator
from typing import Final

from anyio.abc import ByteReceiveStream

LINE_BYTES_MAX: Final = 8_192


async def lines_of(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    """Yield each line, without the whitespace around it. What has LINE_BYTES_MAX bytes without an end is left out."""
    waiting = b""
    async for chunk in stream:
        *lines, waiting = (waiting + chunk).split(b"\n")
        if len(waiting) > LINE_BYTES_MAX:
            waiting = b""
        for line in lines:
            yield line.strip()
    if waiting:
        yield waiting.strip()
