"""Server-sent events that resume after a lost connection."""

import json
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from sightline_client._sync.transport import BEFORE_THE_REQUEST, Transport
from sightline_client.errors import NotReachedError, OutcomeUnknownError, SightlineError, reason_of
from sightline_client.event import MODELS, Event
from sightline_client.models import Session
from sightline_client.runtime import jitter, monotonic_s, sync_sleep

SILENCE_S: Final = 40.0
"""The server sends a comment every 15 s; a connection that is silent for longer is lost."""


class Events:
    """Events of a session or workspace, used as context manager and iterator.

    The current state comes first, then every change. After a lost connection, and after the hour that a stream
    lasts, the stream is opened again with Last-Event-ID: the current state comes again, states in between do not.
    The iterator ends when the server closes the stream of a session that is over.
    """

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = path
        self._last_id: int | None = None
        self._is_over = False
        self._response: httpx2.Response | None = None
        self._stream: Iterator[httpx2.ServerSentEvent] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        first_failure_s: float | None = None
        attempt = 0
        while True:
            try:
                return self._next_of_stream()
            except (httpx2.TransportError, StopIteration, SightlineError) as lost:
                self._close()
                if self._is_over and isinstance(lost, StopIteration):
                    raise
                attempt += 1
                first_failure_s = monotonic_s() if first_failure_s is None else first_failure_s
                error = (
                    lost if isinstance(lost, SightlineError) else OutcomeUnknownError("GET", self._path, None, "lost")
                )
                elapsed_s = monotonic_s() - first_failure_s
                delay_s = self._transport.retry.delay_s(error, attempt=attempt, elapsed_s=elapsed_s, jitter=jitter())
                if delay_s is None:
                    # The text of a protocol error can quote the API key.
                    raise error from (None if isinstance(lost, httpx2.ProtocolError) else lost)
                self._transport.note_failure(error, is_lost=attempt > 1)  # the first attempt often succeeds at once
            sync_sleep(delay_s)

    def _next_of_stream(self) -> Event:
        if self._stream is None:
            self._stream = self._open()
        sent = next(self._stream)
        data: dict[str, Any] = json.loads(sent.data)
        self._last_id = int(sent.id)
        model = MODELS.get(sent.event)
        value = None if model is None else model.model_validate(data)
        self._is_over = self._is_over or (
            sent.event == "session" and isinstance(value, Session) and value.state.is_over
        )
        return Event(self._last_id, sent.event, value, data)

    def _open(self) -> Iterator[httpx2.ServerSentEvent]:
        self._transport.require_open()
        headers = self._transport.headers | {"accept": "text/event-stream"}
        if self._last_id is not None:
            headers["last-event-id"] = str(self._last_id)
        timeout = httpx2.Timeout(SILENCE_S)
        request = self._transport.http.build_request(
            "GET", self._transport.address(self._path), headers=headers, timeout=timeout
        )
        try:
            self._response = self._transport.http.send(request, stream=True)
        except BEFORE_THE_REQUEST as error:
            raise NotReachedError(self._transport.url, reason_of(error)) from error
        if self._response.status_code != httpx2.codes.OK:
            self._response.read()
            raise self._transport.refusal(self._response, "GET", self._path, None)
        self._transport.note_answer()
        return iter(httpx2.EventSource(self._response))

    def _close(self) -> None:
        stream, response = self._stream, self._response
        self._stream = self._response = None
        if isinstance(stream, Generator):
            stream.close()
        if response is not None:
            response.close()
