"""Port of the evidence in frames: what a picture shows, embedded in the file, and a signature over it."""

from dataclasses import dataclass
from typing import Protocol, final

from sightline.domain.geofence import Fix
from sightline.ports.video import Frame


class EvidenceUnavailableError(Exception):
    """The picture cannot be signed; the message says why."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFacts:
    """What the server knows of one frame."""

    session_id: str
    frame: Frame
    fix: Fix | None
    """The newest position of the device when the frame was answered; None before the first heartbeat."""
    is_in_geofence: bool | None
    meter_state: str


class FrameEvidence(Protocol):
    """Embeds the facts of a frame in its JPEG."""

    def describe(self, facts: FrameFacts) -> bytes:
        """Return the JPEG with EXIF and XMP metadata. The encoded picture is not changed."""
        ...

    async def sign(self, jpeg: bytes, facts: FrameFacts) -> bytes:
        """Return the JPEG with a signed C2PA manifest that covers the picture and its metadata.

        Raises:
            EvidenceUnavailableError: The signing library or the certificate cannot be used.
        """
        ...

    def certificates(self) -> bytes:
        """The signing certificate and its issuers as PEM, in that order."""
        ...
