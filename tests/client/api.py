"""The Python client with raw calls, as tests use it: paths and JSON, and each call made once."""

from typing import Any

from httpx2 import AsyncClient

from sightline_client import NO_RETRY, AsyncSightline, Frame, FrameNotAvailableError


class Api(AsyncSightline):
    """A client that repeats nothing, so that a test sees the first answer."""

    def __init__(self, url: str, *, key: str | None = None, http: AsyncClient | None = None) -> None:
        super().__init__(url, key, retry=NO_RETRY, http=http)

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        return await self.call("GET", path, query=query or None)

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        """Make a POST call without Idempotency-Key; without arguments it has no body."""
        return await self.call("POST", path, body or None)

    async def frame(self, session_id: str, **query: Any) -> Frame | None:
        """Fetch the newest frame; None if there is none yet, or none newer than `after`."""
        try:
            return await self.sessions.frame(session_id, **query)
        except FrameNotAvailableError:
            return None
