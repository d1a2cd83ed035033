"""Frames of a LIVE session, one after the other."""

import logging
import math
from collections.abc import Mapping
from typing import Final, Protocol, Self

from sightline_client._sync.transport import Transport
from sightline_client.errors import FrameNotAvailableError, InvalidArgumentError, InvalidStateError, SightlineError
from sightline_client.frame import FRAME_MAX_AGE_MS, Frame
from sightline_client.models import Session
from sightline_client.retry import RetryPolicy
from sightline_client.runtime import monotonic_s, sync_sleep
from sightline_client.wire import given, session_segment

LOG: Final = logging.getLogger("sightline_client")
FRAME_WAIT_MS: Final = 5_000
FRAME_RETRY_S: Final = 0.25
SILENT_S: Final = 5.0
"""Time without a picture after which a loop over frames says so."""

LOOK_EVERY_S: Final = 1.0
"""Shortest time after which a loop without pictures looks again whether the meter is paused."""


def fetch_frame(
    transport: Transport, session_id: str, query: Mapping[str, object], *, retry: RetryPolicy | None = None
) -> Frame | None:
    """Fetch a frame; None if the server has no newer one than the query asks for."""
    path = f"/sessions/{session_segment(session_id)}/frame"
    response = transport.send("GET", path, query=query, retry=retry)
    return Frame.parse(response.content, response.headers) if response.status_code == 200 else None


def fetch_next(
    transport: Transport,
    session_id: str,
    after: int | None,
    *,
    width: int | None,
    quality: int | None,
    signed: bool | None,
) -> Frame | None:
    """Fetch the next frame for a loop over frames, as `AsyncFetch` does. It outlives a restart of the server."""
    query = given(
        width=width, quality=quality, maxAgeMs=FRAME_MAX_AGE_MS, after=after, waitMs=FRAME_WAIT_MS, signed=signed
    )
    return fetch_frame(transport, session_id, query, retry=transport.retry.through_restarts)


class Fetch(Protocol):
    """Fetches the newest frame, or None if none is newer than the sequence `after` within `FRAME_WAIT_MS`."""

    def __call__(self, after: int | None, /) -> Frame | None:
        """Raises InvalidStateError if the session is over."""


class ReadSession(Protocol):
    """Reads the session whose frames are fetched."""

    def __call__(self) -> Session:
        """Raises SightlineError if the key may not read it, or the server does not answer."""


class Frames:
    """Iterates over new frames until the session is over. A loop over it may be left at any time: nothing is open.

    It logs a warning when no picture has come for SILENT_S, one when the meter pauses meanwhile, and a line when
    pictures come again.
    """

    def __init__(
        self,
        fetch: Fetch,
        read: ReadSession,
        *,
        fps: float | None,
        width: int | None,
        proved: bool = False,
    ) -> None:
        if fps is not None and not fps > 0:
            raise InvalidArgumentError(f"fps={fps!r} is not above 0. Pass frames a second, such as 1 or 0.2.")
        if width is not None and width < 1:
            raise InvalidArgumentError(f"width={width!r} is below 1. Pass pixels, such as 768.")
        self._fetch = fetch
        self._read = read
        self._is_silent = False
        self._look_s = 0.0
        self._proved = proved
        self._interval_s = 0.0 if fps is None else 1 / fps
        self._next_s = monotonic_s()
        self._after: int | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Frame:
        sync_sleep(max(0.0, self._next_s - monotonic_s()))
        waits_since_s = monotonic_s()
        while True:
            self._note_silence(monotonic_s() - waits_since_s)
            requested_s = monotonic_s()
            try:
                frame = self._fetch(self._after)
            except FrameNotAvailableError:
                sync_sleep(FRAME_RETRY_S)
                continue
            except InvalidStateError:
                raise StopIteration from None
            if frame is not None:
                waits_since_s = monotonic_s()
                self._note_picture()
            if frame is not None and self._proved and not frame.is_proved:
                self._after = frame.sequence
                sync_sleep(FRAME_RETRY_S)
            elif frame is not None:
                # A call that waited for video counts from its answer: the next frame is a whole interval later.
                now_s = monotonic_s()
                is_late = self._after is None or now_s - requested_s > self._interval_s
                self._next_s = (now_s if is_late else requested_s) + self._interval_s
                self._after = frame.sequence
                return frame

    def _note_silence(self, waited_s: float) -> None:
        """Say once, until a picture comes, that none does, with the state of the session if the key may read it.

        The server may learn only later that the meter is paused: that is said when it does.
        """
        if waited_s < SILENT_S or monotonic_s() < self._look_s:
            return
        is_first, self._is_silent = not self._is_silent, True
        self._look_s = monotonic_s() + LOOK_EVERY_S
        try:
            session = self._read()
        except SightlineError:  # a key that only sees frames, or a server that is away: the next fetch tells
            if is_first:
                LOG.warning("No picture has come for %.0f s. Waiting for the next one.", waited_s)
            self._look_s = math.inf
            return
        if session.state.is_over:
            return
        reason = session.pause_reason
        paused = "" if reason is None else f", paused ({reason}): you are not charged meanwhile"
        if is_first:
            said = "No picture has come for %.0f s. Session %s is %s%s. Waiting for the next one."
            LOG.warning(said, waited_s, session.id, session.state, paused)
        elif paused:
            LOG.warning("Session %s is %s%s.", session.id, session.state, paused)
        if paused:
            self._look_s = math.inf

    def _note_picture(self) -> None:
        if self._is_silent:
            self._is_silent, self._look_s = False, 0.0
            LOG.info("Pictures come again.")
