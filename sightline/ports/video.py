"""Live video as a need: inputs, media liveness, the newest frame, WHIP and WHEP signalling."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias, final, runtime_checkable

import trio

from sightline.domain.session.model import VideoInput as VideoInput


class MediaKind(Enum):
    """What happened to the media of an input."""

    CONNECTED = "connected"
    """A publisher's transport came up."""
    DISCONNECTED = "disconnected"
    """The publisher has gone and none took over within the grace time; `at_ms` is when it was last there."""
    FRAMES = "frames"
    """New whole video frames arrived; about once a second while they do, never otherwise."""
    NO_RTP = "no_rtp"
    """Connected, but no media packet for two seconds; `at_ms` is the last packet."""
    NO_FRAME = "no_frame"
    """Packets flow, yet no whole frame came out of them for two seconds; `at_ms` is the last frame."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MediaEvent:
    """A fact about an input's media, in the order in which it happened per input."""

    ref: str
    session_id: str
    kind: MediaKind
    at_ms: int


class PictureState(Enum):
    """What a look at the decoded picture says."""

    LIVE = "live"
    BLACK = "black"
    """Dark and flat all over: a covered lens, a muted camera."""
    FROZEN = "frozen"
    """Frames keep coming but the picture has not changed for seconds."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FrameQuery:
    """Which frame a poller wants."""

    width: int | None = None
    """Pixels, 16..1920; None is the source's width. Never enlarged; the height keeps the aspect."""
    quality: int = 80
    """JPEG quality, 1..95."""
    after: int | None = None
    """Only a frame with a greater sequence will do."""
    wait_ms: int = 0
    """How long to wait for it."""
    max_age_ms: int = 10_000
    """A frame received longer ago than this is stale."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The newest frame as a JPEG."""

    jpeg: bytes = field(repr=False)
    sequence: int
    """Strictly rising per session, over publisher takeovers, worker restarts and server restarts."""
    captured_at_ms: int
    """When the camera took it, by the publisher's RTCP sender reports, else when it was received."""
    received_at_ms: int
    age_ms: int
    """Since it was received whole, at the time of answering: what the server itself can vouch for."""
    width: int
    height: int
    state: PictureState
    captured_by_rtcp: bool
    """True: `captured_at_ms` is the publisher's claim."""


class FrameMissingReason(Enum):
    """Why there is no frame to give."""

    NOT_DECODED = "not_decoded"
    """Nothing whole has arrived yet, or nothing since a loss."""
    STALE = "stale"
    """The newest frame is older than `max_age_ms`."""
    NOT_NEWER = "not_newer"
    """Nothing newer than `after` came within `wait_ms`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FrameMissing:
    """No frame, and why."""

    reason: FrameMissingReason
    sequence: int | None = None
    """The newest sequence there is, if any."""


FrameReply: TypeAlias = Frame | FrameMissing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequest:
    """A WHIP or WHEP request as it came in over HTTP; the backend decides everything about it."""

    kind: str
    """"whip" or "whep"."""
    method: str
    token: str = field(repr=False)
    """The path segment after /whip/ or /whep/."""
    resource: str | None = None
    """The path segment after the token, if any."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """All request headers, names in lower case."""
    body: bytes = field(default=b"", repr=False)
    base_url: str = ""
    """Scheme and authority as the client sees them, without a trailing slash: for an absolute Location."""
    client_ip: str = ""
    """Address of the client, for limits; empty if it is not known."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReply:
    """What to answer, word for word."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class VideoBackend(Protocol):
    """A video engine."""

    async def create_input(self, session_id: str) -> VideoInput:
        """Open the input of a session; the same session always gets the same answer.

        Nothing is stored: after a restart of the server it must be called again for each live session, and
        until then its publishers and viewers are answered 404.

        Raises:
            VideoUnavailableError: The engine is down; nothing was opened.
        """
        ...

    async def close_input(self, ref: str) -> None:
        """Disconnect everybody and forget the input. Idempotent; an unknown ref is no error."""
        ...

    def describe_input(self, session_id: str) -> VideoInput:
        """The input of a session as `create_input` answers it, without touching the engine."""
        ...

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """Media facts of all inputs. One reader; FRAMES coalesce while it is slow, nothing else is lost."""
        ...

    async def frame(self, ref: str, query: FrameQuery) -> FrameReply:
        """The newest frame that satisfies the query.

        Raises:
            VideoUnavailableError: The engine is down or did not answer in time.
        """
        ...

    async def signal(self, request: SignalRequest) -> SignalReply:
        """Answer one WHIP or WHEP request. Never raises for what a client sent."""
        ...


@runtime_checkable
class EngineHooks(Protocol):
    """A backend on an external engine that calls us back."""

    async def engine_hook(self, engine: str, headers: Mapping[str, str], body: bytes) -> int:
        """Take a callback of the named engine, as it came in; gives the HTTP status to answer.

        Args:
            headers: With lower-case names.
        """
        ...
