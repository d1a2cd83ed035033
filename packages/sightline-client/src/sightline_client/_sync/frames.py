"""Frames of a LIVE session, one after the other."""

from typing import Final, Protocol, Self

from sightline_client.errors import FrameNotAvailableError, InvalidArgumentError, InvalidStateError
from sightline_client.frame import Frame
from sightline_client.runtime import monotonic_s, sync_sleep

FRAME_WAIT_MS: Final = 5_000
FRAME_RETRY_S: Final = 0.25


class Fetch(Protocol):
    """Fetches the newest frame, or None if none is newer than the sequence `after` within `FRAME_WAIT_MS`."""

    def __call__(self, after: int | None, /) -> Frame | None:
        """Raises InvalidStateError if the session is over."""


class Frames:
    """Iterates over new frames until the session is over. A loop over it may be left at any time: nothing is open."""

    def __init__(self, fetch: Fetch, *, fps: float | None, width: int | None, proved: bool = False) -> None:
        if fps is not None and not fps > 0:
            raise InvalidArgumentError(f"fps={fps!r} is not above 0. Pass frames a second, such as 1 or 0.2.")
        if width is not None and width < 1:
            raise InvalidArgumentError(f"width={width!r} is below 1. Pass pixels, such as 768.")
        self._fetch = fetch
        self._proved = proved
        self._interval_s = 0.0 if fps is None else 1 / fps
        self._next_s = monotonic_s()
        self._after: int | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Frame:
        sync_sleep(max(0.0, self._next_s - monotonic_s()))
        while True:
            requested_s = monotonic_s()
            try:
                frame = self._fetch(self._after)
            except FrameNotAvailableError:
                sync_sleep(FRAME_RETRY_S)
                continue
            except InvalidStateError:
                raise StopIteration from None
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
