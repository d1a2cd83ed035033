"""HTTP calls: envelopes opened, errors raised by code, repeatable failures repeated with the same Idempotency-Key."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import httpx2
from pydantic import TypeAdapter, ValidationError

from sightline_client.errors import (
    ERRORS,
    ApiError,
    ClientClosedError,
    InvalidResponseError,
    NotReachedError,
    OutcomeUnknownError,
    SightlineError,
    reason_of,
)
from sightline_client.retry import RetryPolicy
from sightline_client.runtime import async_sleep, jitter, monotonic_s, new_key

T = TypeVar("T")
Json: TypeAlias = Mapping[str, Any]

LOG: Final = logging.getLogger("sightline_client.transport")
BEFORE_THE_REQUEST = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Failures in which the server received nothing."""


class AsyncTransport:
    """Makes calls with one credential: an API key, or the cookie that a sign-in set."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        *,
        url: str,
        key: str | None,
        retry: RetryPolicy,
        keys: Callable[[], str] = new_key,
    ) -> None:
        self.http = http
        self.url = url
        self.retry = retry
        self._headers = {} if not key else {"authorization": f"Bearer {key}"}
        self._new_key = keys
        self._is_reached = True

    def new_key(self) -> str:
        """Create an Idempotency-Key."""
        return self._new_key()

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the credential."""
        return dict(self._headers)

    def require_open(self) -> None:
        """Raise ClientClosedError if the client is closed."""
        if self.http.is_closed:
            raise ClientClosedError

    def use_cookie(self) -> None:
        """Send no API key from now on: the server prefers it to the cookie of a sign-in."""
        self._headers = {}

    async def get(self, kind: type[T] | TypeAdapter[T], path: str, query: Json | None = None) -> T:
        """Read, and validate the answer as `kind`."""
        return self._parse(kind, await self.data("GET", path, query=query))

    async def change(
        self,
        kind: type[T] | TypeAdapter[T],
        method: str,
        path: str,
        body: Json | None = None,
        *,
        key: str | None = None,
    ) -> T:
        """Make a change once, however often it is sent, and validate the answer as `kind`."""
        return self._parse(kind, await self.data(method, path, body=body, key=key or self.new_key()))

    async def data(
        self, method: str, path: str, *, body: Json | None = None, query: Json | None = None, key: str | None = None
    ) -> dict[str, Any]:
        """Make a call, repeated as the retry policy says, and return the `data` of its envelope.

        Raises:
            ApiError: The server refused the call.
            OutcomeUnknownError: The answer was lost, and so was that of every repetition.
            NotReachedError: No connection could be made.
        """
        response = await self.send(method, path, body=body, query=query, key=key)
        try:
            data: dict[str, Any] = response.json()["data"]
        except (ValueError, KeyError, TypeError):
            raise InvalidResponseError(self.url, response.status_code) from None
        return data

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Json | None = None,
        key: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> httpx2.Response:
        """Make a call, repeated as the retry policy says. Returns the response with status 200 or 304.

        Args:
            retry: The policy of this call; default: that of the client.
        """
        started_s, attempt, policy = monotonic_s(), 0, retry or self.retry
        while True:
            attempt += 1
            try:
                return await self._send_once(method, path, body, query, key)
            except SightlineError as error:
                elapsed_s = monotonic_s() - started_s
                delay_s = policy.delay_s(error, attempt=attempt, elapsed_s=elapsed_s, jitter=jitter())
                if delay_s is None:
                    raise
                self.note_failure(error, for_s=policy.longest_s)
            await async_sleep(delay_s)

    def note_failure(self, error: SightlineError, *, for_s: float | None = None, is_lost: bool = False) -> None:
        """Say once, until the server answers again, that calls wait for it.

        Args:
            for_s: How long this call is repeated; default: as long as others.
            is_lost: Say it of any error.
        """
        if (is_lost or isinstance(error, NotReachedError)) and self._is_reached:
            self._is_reached = False
            # A warning, because a program that sets up no logging prints only those.
            longest_s = self.retry.longest_s if for_s is None else for_s
            LOG.warning("%s Trying again for at most %.0f s.", error, longest_s)

    def note_end(self, session_id: str) -> None:
        """Warn that the session may still run, and for how long the client now tries to end it."""
        LOG.warning("Session %s may still run. Trying to end it for at most %.0f s.", session_id, self.retry.longest_s)

    def note_answer(self) -> None:
        """Say that the server answers again, if it did not."""
        if not self._is_reached:
            self._is_reached = True
            LOG.info("%s answers again.", self.url)

    async def _send_once(
        self, method: str, path: str, body: Json | None, query: Json | None, key: str | None
    ) -> httpx2.Response:
        self.require_open()
        headers = self.headers | ({} if key is None else {"idempotency-key": key})
        try:
            response = await self.http.request(method, self.address(path), json=body, params=query, headers=headers)
        except BEFORE_THE_REQUEST as error:
            raise NotReachedError(self.url, reason_of(error)) from error
        except httpx2.ProtocolError as error:
            # Its text can quote headers, among them the API key, so it must not reach a traceback either.
            raise OutcomeUnknownError(method, path, key, type(error).__name__) from None
        except httpx2.TransportError as error:
            raise OutcomeUnknownError(method, path, key, str(error) or type(error).__name__) from error
        self.note_answer()
        if response.status_code in (httpx2.codes.OK, httpx2.codes.NOT_MODIFIED):
            return response
        raise self.refusal(response, method, path, key)

    def address(self, path: str) -> str:
        """Return the URL of a path below /api/v1."""
        return f"{self.url}/api/v1{path}"

    def refusal(self, response: httpx2.Response, method: str, path: str, key: str | None) -> SightlineError:
        """Build the error of a response whose status is not 200."""
        try:
            body = response.json()
            code = str(body["code"])
        except (ValueError, KeyError, TypeError):
            if response.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:  # a proxy answers in place of the server
                return OutcomeUnknownError(method, path, key, f"status {response.status_code} without an error code")
            return InvalidResponseError(self.url, response.status_code)
        if code == "OUTCOME_UNKNOWN":
            return OutcomeUnknownError(method, path, key, code)
        return ERRORS.get(code, ApiError)(response.status_code, body, response.headers)

    def _parse(self, kind: type[T] | TypeAdapter[T], data: object) -> T:
        adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
        try:
            return adapter.validate_python(data)
        except ValidationError as error:
            raise InvalidResponseError(self.url, httpx2.codes.OK) from error
