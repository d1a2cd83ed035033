"""A view that is read like `cv2.VideoCapture`. Needs the extra `opencv`; OpenCV itself is not imported."""

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from sightline_client._sync.view import View
from sightline_client.errors import SessionOverError
from sightline_client.frame import Frame
from sightline_client.interrupts import uninterrupted

if TYPE_CHECKING:
    import numpy

CAP_PROP_FRAME_WIDTH: Final = 3
CAP_PROP_FRAME_HEIGHT: Final = 4
"""Numbers of OpenCV's properties."""


class VideoCapture:
    """Reads pictures of a view in OpenCV's form. Creating it requests the view and waits until it is LIVE.

    `release` ends the session, and so does leaving a `with` block. A program that does neither pays until the
    view's lease is over.

    Args:
        view: A view that has not been entered, as `Sightline.view` returns it.
        fps: At most this many pictures a second; default: as fast as they are read.
        width: Width in pixels; default: that of the source.

    Raises:
        SightlineError: As entering a view does. Nothing is left open then.
    """

    def __init__(self, view: View, *, fps: float | None = None, width: int | None = None) -> None:
        self.view = view
        self.frame: Frame | None = None
        """The frame of the last picture: age, location, state of the meter."""
        self._frames = view.frames(fps=fps, width=width)
        self._shape = (0, 0)
        view.__enter__()
        self._is_open = True

    def isOpened(self) -> bool:  # noqa: N802  as in OpenCV
        """Return whether more pictures may come: false once the session is over."""
        return self._is_open

    def read(self) -> "tuple[bool, numpy.ndarray | None]":
        """Wait for the next picture: (True, BGR array), or (False, None) when the session is over, for whatever reason:
        `view.session.end_reason` tells it.

        A picture is returned once, and pictures older than 2 s are never returned: while no video arrives, this waits.
        """
        if not self._is_open:
            return False, None
        try:
            self.frame = next(self._frames)
        except (StopIteration, SessionOverError):
            self.release()
            return False, None
        picture = self.frame.numpy()
        self._shape = picture.shape[:2]
        return True, picture

    def get(self, prop: int) -> float:
        """Return width or height of the last picture; 0.0 for other properties, as OpenCV does."""
        height, width = self._shape
        return float({CAP_PROP_FRAME_WIDTH: width, CAP_PROP_FRAME_HEIGHT: height}.get(prop, 0))

    @uninterrupted
    def release(self) -> None:
        """End the session, unless it is over.

        Raises:
            EndNotConfirmedError: The server did not confirm the end.
        """
        self._is_open = False
        self.view.end()

    def __enter__(self) -> Self:
        return self

    @uninterrupted
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
