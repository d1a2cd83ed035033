"""The REST interface as a trio client: envelopes opened, errors raised, credentials kept out of sight."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, final

import httpx

from sightline.client.errors import ApiError

TIMEOUT_S = 35.0
"""Longer than the server's own limit for a call."""


@final
@dataclass(frozen=True, slots=True)
class JpegFrame:
    """One JPEG frame of a live session. `sequence` increases with every new frame."""

    jpeg: bytes
    sequence: int
    headers: Mapping[str, str]


@final
class Api:
    """HTTP client with one credential: an API key, or the cookie that a sign-in set."""

    def __init__(self, base_url: str, *, key: str | None = None) -> None:
        headers = {"authorization": f"Bearer {key}"} if key is not None else {}
        self._http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the HTTP connections."""
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Make one API call and return the `data` of the envelope.

        Raises:
            ApiError: The service refused the call.
            httpx.TransportError: The outcome is unknown. Repeat the call with the same idempotency key.
        """
        headers = {"idempotency-key": idempotency_key} if idempotency_key is not None else {}
        response = await self._http.request(method, f"/api/v1{path}", json=body, params=query, headers=headers)
        if response.status_code != httpx.codes.OK:
            raise _error(response)
        data: dict[str, Any] = response.json()["data"]
        return data

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Make a GET call."""
        return await self.call("GET", path, query=query or None)

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        """Make a POST call; without arguments it has no body."""
        return await self.call("POST", path, body or None)

    async def frame(self, session_id: str, **query: Any) -> JpegFrame | None:
        """Fetch the newest frame. None if no frame is available, or none is newer than `after`."""
        response = await self._http.get(f"/api/v1/sessions/{session_id}/frame", params=query)
        if response.status_code == httpx.codes.OK:
            return JpegFrame(response.content, int(response.headers["x-svc-frame-sequence"]), response.headers)
        if response.status_code == httpx.codes.NOT_MODIFIED:
            return None
        error = _error(response)
        if error.code == "FRAME_NOT_AVAILABLE":
            return None
        raise error


def _error(response: httpx.Response) -> ApiError:
    try:
        body = response.json()
    except ValueError:
        body = {"message": response.text[:200]}
    return ApiError(response.status_code, body)
