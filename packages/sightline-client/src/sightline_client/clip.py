"""A video file of the last seconds of a live session, and its metadata from the response headers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from sightline_client.frame import FrameLocation

SUFFIXES: Final = {"video/mp4": ".mp4", "video/webm": ".webm"}
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """The last seconds of a session: encoded pictures as they were received, without sound.

    Attributes:
        video: The file.
        media_type: `video/mp4` (H.264, fragmented) or `video/webm` (VP8).
        captured_from: When the first picture was captured: by the clock of the operator's device if it sends one,
            otherwise when the server received it.
        captured_to: The same of the last picture.
        age_ms: Age of the last picture at the time of the answer, in milliseconds.
        frames: Number of pictures.
        width: Width in pixels.
        height: Height in pixels.
        publisher_epoch: Which publisher's video it is, as in a frame. A clip has one publisher.
        meter_state: `RUNNING`, `PAUSED` or `STOPPED`.
        in_geofence: Whether `location` is inside the session's geofence; None if that is not known.
        location: Last location that the operator's device stated; None before its first usable heartbeat. The service
            cannot check it.
    """

    video: bytes = field(repr=False)
    media_type: str
    captured_from: datetime
    captured_to: datetime
    age_ms: int
    frames: int
    width: int
    height: int
    publisher_epoch: int
    meter_state: str
    in_geofence: bool | None
    location: FrameLocation | None

    @property
    def suffix(self) -> str:
        """The file name's end: `.mp4` or `.webm`."""
        return SUFFIXES[self.media_type]

    @property
    def seconds(self) -> float:
        """From the first picture to the last one. At least what was asked for, if the server has kept as much."""
        return (self.captured_to - self.captured_from).total_seconds()

    @classmethod
    def parse(cls, video: bytes, headers: Mapping[str, str]) -> Self:
        """Build a clip from a response of the clip call.

        Raises:
            KeyError, ValueError: A header is missing or malformed.
        """
        return cls(
            video=video,
            media_type=headers["content-type"],
            captured_from=datetime.fromisoformat(headers["x-svc-clip-from"]),
            captured_to=datetime.fromisoformat(headers["x-svc-clip-to"]),
            age_ms=int(headers["x-svc-clip-age-ms"]),
            frames=int(headers["x-svc-clip-frames"]),
            width=int(headers["x-svc-clip-width"]),
            height=int(headers["x-svc-clip-height"]),
            publisher_epoch=int(headers["x-svc-publisher-epoch"]),
            meter_state=headers["x-svc-meter-state"],
            in_geofence=_FLAGS.get(headers["x-svc-in-geofence"]),
            location=FrameLocation.parse(headers["x-svc-location"]),
        )
