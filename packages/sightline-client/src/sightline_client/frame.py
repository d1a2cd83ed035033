"""A JPEG frame of a live session and its metadata from the response headers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Final, Self

from sightline_client.errors import MissingExtraError

if TYPE_CHECKING:
    import numpy
    from PIL import Image

FRAME_MAX_AGE_MS: Final = 2_000
"""Age beyond which the frame calls return no frame by default: an agent would take an old scene for the present one."""
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class FrameLocation:
    """Where the operator's device was, by its last heartbeat."""

    lat: float
    lng: float
    accuracy_m: float
    at: datetime

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse `lat,lng;accuracy=metres;at=instant`; None if the text is `unknown`."""
        if ";" not in text:
            return None
        point, accuracy, at = text.split(";")
        lat, lng = point.split(",")
        instant = datetime.fromisoformat(at.removeprefix("at="))
        return cls(float(lat), float(lng), float(accuracy.removeprefix("accuracy=")), instant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A JPEG frame.

    Attributes:
        jpeg: The picture.
        sequence: Increases with every new frame of the session. It begins anywhere and has gaps: it is no counter.
        captured_at: When the frame was captured: by the clock of the operator's device if it sends one, otherwise when
            the server received it.
        age_ms: Age at the time of the answer, in milliseconds.
        width: Width of the source in pixels, before scaling.
        height: Height of the source in pixels, before scaling.
        state: `live`, `black`, `frozen`, or `lost`: no frame arrives, and this is the last one.
        publisher_epoch: Which publisher's picture it is: increases with each connection of a publisher. 0 if the server
            is of an earlier version.
        meter_state: `RUNNING`, `PAUSED` or `STOPPED`.
        in_geofence: Whether `location` is inside the session's geofence; None if that is not known.
        location: Last location that the operator's device stated; None before its first usable heartbeat. The service
            cannot check it.
    """

    jpeg: bytes = field(repr=False)
    sequence: int
    captured_at: datetime
    age_ms: int
    width: int
    height: int
    state: str
    publisher_epoch: int
    meter_state: str
    in_geofence: bool | None
    location: FrameLocation | None

    @classmethod
    def parse(cls, jpeg: bytes, headers: Mapping[str, str]) -> Self:
        """Build a frame from a response of the frame call.

        Raises:
            KeyError, ValueError: A header is missing or malformed.
        """
        return cls(
            jpeg=jpeg,
            sequence=int(headers["x-svc-frame-sequence"]),
            captured_at=datetime.fromisoformat(headers["x-svc-frame-captured-at"]),
            age_ms=int(headers["x-svc-frame-age-ms"]),
            width=int(headers["x-svc-frame-width"]),
            height=int(headers["x-svc-frame-height"]),
            state=headers["x-svc-frame-state"],
            publisher_epoch=int(headers.get("x-svc-publisher-epoch", "0")),
            meter_state=headers["x-svc-meter-state"],
            in_geofence=_FLAGS.get(headers["x-svc-in-geofence"]),
            location=FrameLocation.parse(headers["x-svc-location"]),
        )

    @property
    def is_proved(self) -> bool:
        """Whether the meter ran and the position was inside the geofence: a frame that is paid for."""
        return self.meter_state == "RUNNING" and self.in_geofence is True

    def numpy(self, colorspace: str = "BGR") -> "numpy.ndarray[tuple[int, int, int], numpy.dtype[numpy.uint8]]":
        """Decode to an array of height x width x 3. BGR is what OpenCV expects; RGB is possible too.

        Raises:
            MissingExtraError: The extra `frames` is not installed.
        """
        try:
            from simplejpeg import decode_jpeg
        except ImportError:
            raise MissingExtraError("frames") from None
        decoded: numpy.ndarray[tuple[int, int, int], numpy.dtype[numpy.uint8]] = decode_jpeg(self.jpeg, colorspace)
        return decoded

    def pil(self) -> "Image.Image":
        """Decode to a Pillow image.

        Raises:
            MissingExtraError: The extra `frames` is not installed.
        """
        try:
            from PIL import Image
        except ImportError:
            raise MissingExtraError("frames") from None
        return Image.open(BytesIO(self.jpeg))
