"""Calls to the API of an engine: one bound for time and size of an answer, and one error for all that can be wrong."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import httpx
import orjson
import trio

from sightline.domain.errors import VideoUnavailableError

ANSWER_BYTES_MAX: Final = 16 << 20
"""A page of 10,000 paths of MediaMTX has 4 MB."""


async def call_engine(
    engine: str,
    method: str,
    url: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] = MappingProxyType({}),
    body: object = None,
) -> tuple[int, bytes]:
    """Call an engine; returns the status and the body of its answer.

    Args:
        engine: Name for errors.
        timeout_s: For the whole call, however slowly the answer comes.

    Raises:
        VideoUnavailableError: No complete answer came in time, or it is too long.
    """
    content, size = bytearray(), 0
    try:
        with trio.fail_after(timeout_s):
            async with httpx.AsyncClient(timeout=timeout_s) as http:
                plain = {
                    "accept-encoding": "identity",
                    **headers,
                }  # a compressed answer could be a thousand times longer
                async with http.stream(method, url, headers=plain, json=body) as reply:
                    async for piece in reply.aiter_raw():
                        size += len(piece)
                        if size <= ANSWER_BYTES_MAX:  # the rest is read, within the time, and dropped
                            content += piece
                    if size > ANSWER_BYTES_MAX:
                        raise VideoUnavailableError(f"{engine} answered more than {ANSWER_BYTES_MAX >> 20} MB")
                    return reply.status_code, bytes(content)
    except (httpx.HTTPError, trio.TooSlowError) as error:
        raise VideoUnavailableError(f"{engine} does not answer: {type(error).__name__}") from error


def object_of(engine: str, content: bytes) -> dict[str, Any]:
    """Parse the JSON object of an answer.

    Raises:
        VideoUnavailableError: It is none.
    """
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise VideoUnavailableError(f"{engine} answered no JSON") from error
    if not isinstance(found, dict):
        raise VideoUnavailableError(f"{engine} answered JSON of another form than documented")
    return found
