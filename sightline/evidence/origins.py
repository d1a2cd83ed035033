"""Who states each fact of a frame or clip: a signature proves who signed, and not that what others stated is true."""

from enum import StrEnum
from typing import Final

from sightline.ports.evidence import ClipFacts, FrameFacts


class Origin(StrEnum):
    """Where a fact comes from, in the words that the manifest has."""

    PUBLISHED = "published by the operator's device; the service does not know what made it"
    STATED = "stated by the operator's device"
    DEVICE_CLOCK = "clock of the operator's device"
    RECORDED = "recorded by the service"
    SERVICE_CLOCK = "clock of the service, when it arrived"
    FROM_PICTURE = "computed by the service from the picture"
    FROM_STATED = "computed by the service from the stated position"
    FROM_MEDIA = "computed by the service from the received video and the stated positions"


_OF_OPERATOR = frozenset({Origin.PUBLISHED, Origin.STATED, Origin.DEVICE_CLOCK})


_SHARED: Final[dict[str, str]] = {
    "sessionId": Origin.RECORDED,
    "capturedBy": Origin.RECORDED,
    "receivedAt": Origin.SERVICE_CLOCK,
    "publisherEpoch": Origin.RECORDED,
    "meterState": Origin.FROM_MEDIA,
    "inGeofence": Origin.FROM_STATED,
    "lat": Origin.STATED,
    "lng": Origin.STATED,
    "accuracyM": Origin.STATED,
    "positionAt": Origin.SERVICE_CLOCK,
}


def origins_of(facts: FrameFacts) -> dict[str, str]:
    """The origin of the picture and of each fact of `frame_properties`."""
    return {
        "picture": Origin.PUBLISHED,
        "sequence": Origin.RECORDED,
        "capturedAt": _captured(facts.frame.captured_by_rtcp),
        "pictureState": Origin.FROM_PICTURE,
        **_SHARED,
    }


def clip_origins_of(facts: ClipFacts) -> dict[str, str]:
    """The origin of the video and of each fact of `clip_properties`."""
    captured = _captured(facts.clip.captured_by_rtcp)
    return {
        "picture": Origin.PUBLISHED,
        "capturedFrom": captured,
        "capturedTo": captured,
        "frames": Origin.RECORDED,
        **_SHARED,
    }


def _captured(by_rtcp: bool) -> Origin:
    return Origin.DEVICE_CLOCK if by_rtcp else Origin.SERVICE_CLOCK


def stated_by_operator(facts: FrameFacts) -> str:
    """The names of what the operator's device states, separated by spaces."""
    return " ".join(name for name, origin in origins_of(facts).items() if origin in _OF_OPERATOR)
