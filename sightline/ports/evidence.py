"""Port of the evidence in frames and clips: what a picture shows, embedded in the file, and a signature over it."""

from typing import final

from sightline.domain.geofence import Fix
from sightline.domain.value import Value
from sightline.ports.video import Clip, Frame


class EvidenceUnavailableError(Exception):
    """The picture cannot be signed; the message says why."""


@final
class FrameFacts(Value, kw_only=True):
    """What the server knows of one frame."""

    session_id: str
    frame: Frame
    fix: Fix | None
    """The newest position of the device when the frame was answered; None before the first heartbeat."""
    is_in_geofence: bool | None
    meter_state: str


@final
class ClipFacts(Value, kw_only=True):
    """What the server knows of one clip. The position is that of its end."""

    session_id: str
    clip: Clip
    fix: Fix | None
    is_in_geofence: bool | None
    meter_state: str
