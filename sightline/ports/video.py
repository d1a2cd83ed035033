"""Port of a video backend: live inputs, media events, the newest frame, WHIP and WHEP signalling."""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Protocol, TypeAlias, final

import trio
from msgspec import field

from sightline.domain.access import Holder
from sightline.domain.errors import VideoUnavailableError
from sightline.domain.session.model import VideoInput as VideoInput
from sightline.domain.value import Value, hiding


class MediaKind(Enum):
    """Kind of a media event of an input."""

    CONNECTED = "connected"
    """A publisher's transport connected."""
    DISCONNECTED = "disconnected"
    """The publisher disconnected and none took over within the grace time; `at_ms` is that of its last packet."""
    FRAMES = "frames"
    """Complete video frames arrived. Sent about once a second while frames arrive."""
    NO_RTP = "no_rtp"
    """Connected, but no media packet for two seconds; `at_ms` is the time of the last packet."""
    NO_FRAME = "no_frame"
    """Packets arrive, but no complete frame for two seconds; `at_ms` is the time of the last frame."""
    WATCHED = "watched"
    """Viewers are connected. Sent every few seconds while they are, and when one leaves that had video. External media
    servers do not send it."""
    LOST = "lost"
    """The server that held the input has ended: the input must be opened again."""


@final
class MediaEvent(Value, kw_only=True):
    """A media event of an input. Events of one input are in the order in which they happened."""

    ref: str
    session_id: str
    kind: MediaKind
    at_ms: int
    viewers: tuple[str, ...] = ()
    """With WATCHED: the workspaces of the viewers that are connected."""
    receiving: tuple[str, ...] = ()
    """With WATCHED: those of `viewers` that have reported since the last one that video arrives (RFC 3550, 6.4)."""


class PictureState(Enum):
    """Result of inspecting the decoded picture."""

    LIVE = "live"
    BLACK = "black"
    """Dark and uniform: a covered lens or a muted camera."""
    FROZEN = "frozen"
    """Frames arrive, but the picture has not changed for seconds."""
    LOST = "lost"
    """No frame arrives: the publisher is gone, or silent for 2 s. The picture is its last one."""


@final
class FrameQuery(Value, kw_only=True):
    """Parameters of a request for a frame."""

    width: int | None = None
    """Pixels, 16..1920; None is the source's width. Never enlarged; the height keeps the aspect."""
    quality: int = 80
    """JPEG quality, 1..95."""
    after: int | None = None
    """Return only a frame with a greater sequence."""
    wait_ms: int = 0
    """How long to wait for such a frame."""
    max_age_ms: int = 10_000
    """A frame received longer ago than this is stale."""


@final
class Frame(Value, kw_only=True):
    """The newest frame as a JPEG."""

    jpeg: bytes
    sequence: int
    """Strictly increasing per session, across publisher takeovers, restarts, and servers: the Unix time in ms at which
    the frame was complete, or more."""
    captured_at_ms: int
    """Capture time by the publisher's RTCP sender reports, else `received_at_ms`."""
    received_at_ms: int
    """When the kernel received the frame's last packet."""
    age_ms: int
    """From `received_at_ms` to the time of answering."""
    width: int
    height: int
    state: PictureState
    captured_by_rtcp: bool
    """True if `captured_at_ms` is reported by the publisher."""
    publisher_epoch: int
    """Which publisher's picture it is: the Unix time in ms at which its connection was there, or more. Increases with
    each one, a reconnection included."""

    __repr__ = hiding("jpeg")


class FrameMissingReason(Enum):
    """Why there is no frame."""

    NOT_DECODED = "not_decoded"
    """No complete keyframe has arrived yet, or none since a loss."""
    STALE = "stale"
    """The newest frame is older than `max_age_ms`."""
    NOT_NEWER = "not_newer"
    """No frame newer than `after` arrived within `wait_ms`."""
    TOO_LARGE = "too_large"
    """The publisher's pictures are larger than this server decodes."""


@final
class FrameMissing(Value, kw_only=True):
    """There is no frame to return."""

    reason: FrameMissingReason
    sequence: int | None = None
    """Sequence of the newest frame, if there is one."""
    is_lost: bool = False
    """True if there is a newest frame and none arrives after it, as in `PictureState.LOST`."""


FrameReply: TypeAlias = Frame | FrameMissing


@final
class Clip(Value, kw_only=True):
    """The last seconds of an input as they were received: encoded pictures in a container, without sound."""

    video: bytes
    media_type: str
    """video/mp4 (H.264, fragmented) or video/webm (VP8)."""
    started_at_ms: int
    """Capture time of the first picture by the publisher's RTCP sender reports, else when it was received."""
    ended_at_ms: int
    """The same of the newest picture."""
    captured_by_rtcp: bool
    """True if both are reported by the publisher."""
    received_at_ms: int
    """When the kernel received the newest picture's last packet."""
    age_ms: int
    """From `received_at_ms` to the time of answering."""
    frames: int
    width: int
    height: int
    publisher_epoch: int
    """Which publisher's video it is, as in a frame. A clip has one publisher."""

    __repr__ = hiding("video")


class ClipMissingReason(Enum):
    """Why there is no clip."""

    OFF = "off"
    """The server keeps no video for clips."""
    NOT_RECEIVED = "not_received"
    """No keyframe of the present publisher has arrived yet."""
    STALE = "stale"
    """The newest picture is older than 10 s."""
    UNREADABLE = "unreadable"
    """What the publisher sends cannot be put into a file."""


@final
class ClipMissing(Value, kw_only=True):
    """There is no clip to return."""

    reason: ClipMissingReason


ClipReply: TypeAlias = Clip | ClipMissing


@final
class SignalRequest(Value, kw_only=True):
    """A WHIP or WHEP request as received over HTTP."""

    kind: str
    """"whip" or "whep"."""
    method: str
    token: str
    """The path segment after /whip/ or /whep/."""
    resource: str | None = None
    """The path segment after the token, if any."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """All request headers, names in lower case."""
    body: bytes = b""
    base_url: str = ""
    """Scheme and authority as the client sees them, without a trailing slash. Used for an absolute Location header."""
    client_ip: str = ""
    """Address of the client, for rate limits; empty if unknown."""

    __repr__ = hiding("token", "body")


@final
class SignalReply(Value, kw_only=True):
    """The HTTP response to a WHIP or WHEP request."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


MayWatch: TypeAlias = Callable[[Holder], Awaitable[bool]]
"""Whether a credential may watch video now. Raises UnavailableError when that cannot be decided."""


@final
class WatchAccess:
    """Asks whether a viewer may watch. Bootstrap connects it to identity when both are there."""

    def __init__(self) -> None:
        self.may_watch: MayWatch | None = None
        self._withdrawn = trio.Event()

    def withdraw(self) -> None:
        """Let the viewers of this server be checked now: access of some of them was withdrawn."""
        self._withdrawn.set()
        self._withdrawn = trio.Event()

    async def next_check(self, recheck_ms: int) -> None:
        """Wait until viewers are to be checked again: after `recheck_ms`, or when access was withdrawn."""
        with trio.move_on_after(recheck_ms / 1000):
            await self._withdrawn.wait()

    async def is_allowed(self, holder: Holder) -> bool:
        """Whether the credential may watch now.

        Raises:
            UnavailableError: That cannot be decided now.
        """
        if self.may_watch is None:
            raise VideoUnavailableError("the server is starting")
        return await self.may_watch(holder)


class VideoBackend(Protocol):
    """A media server."""

    async def create_input(self, session_id: str) -> VideoInput:
        """Open the input of a session that starts. Idempotent: the same session always gets the same input.

        Raises:
            VideoUnavailableError: The engine is down; nothing was opened.
        """
        ...

    async def reopen_input(self, session_id: str) -> VideoInput:
        """Find the input of a LIVE session, or open it again. Idempotent.

        Nothing is stored: call it for each LIVE session after a restart of the server. Until then publishers and
        viewers get 404. One of several servers first looks for the input on the others.

        Raises:
            VideoUnavailableError: The engine is down, or a server that may have the input does not answer.
        """
        ...

    async def close_input(self, ref: str) -> None:
        """Disconnect all peers and remove the input. Idempotent; an unknown ref is not an error."""
        ...

    def describe_input(self, session_id: str) -> VideoInput:
        """The input of a session as `create_input` returns it, without calling the engine."""
        ...

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """Media events of all inputs, for one reader. FRAMES coalesce while it is slow; no other event is lost."""
        ...

    async def frame(self, ref: str, query: FrameQuery) -> FrameReply:
        """The newest frame that satisfies the query.

        Raises:
            VideoUnavailableError: The engine is down or did not answer in time.
        """
        ...

    async def clip(self, ref: str, seconds: int) -> ClipReply:
        """The last seconds, 1..30, from the keyframe before them on, or as many as the server has kept.

        Raises:
            VideoUnavailableError: The engine is down or did not answer in time.
        """
        ...

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The play URL of an input for one credential, whose access is checked when it is used and while it plays.

        Pure, and the same at each call. An engine that cannot check returns the URL as it is.
        """
        ...

    async def signal(self, request: SignalRequest) -> SignalReply:
        """Answer one WHIP or WHEP request. Raises no error for invalid client input."""
        ...


class LocalVideo(VideoBackend, Protocol):
    """The backend on the media workers, or the media server, of this server alone."""

    def has_input(self, session_id: str) -> bool:
        """Whether the session's input is open here."""
        ...

    def session_of_signal(self, request: SignalRequest) -> str | None:
        """The session that a WHIP or WHEP request names, if this backend answers those of other servers' inputs."""
        ...

    async def engine_hook(self, engine: str, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a callback of an external media server; returns the HTTP status, 404 for an unknown one."""
        ...
