"""The newest frame as JPEG, one at a time for polling agents or as a multipart stream; the last seconds as a clip."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from typing import Final, final

import trio

from sightline.actors.types import LiveFeed
from sightline.domain.access import Operation
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.geofence import Fix
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import MeterState
from sightline.evidence.signing import MP4
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Emit, Raw, Stream, TextHeaders
from sightline.http.pipeline.routes import Route
from sightline.http.resources.streams import StreamSlots
from sightline.http.schemas.base import iso
from sightline.http.schemas.sessions import ClipQueryString, FrameQueryString, FramesQueryString
from sightline.http.services import Services
from sightline.ports.evidence import ClipFacts, EvidenceUnavailableError, FrameFacts
from sightline.ports.video import (
    ClipMissing,
    ClipMissingReason,
    Frame,
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    PictureState,
)

BOUNDARY: Final = "sightline-frame"
_ERRORS: Final = (Code.SESSION_NOT_FOUND, Code.INVALID_STATE, Code.VIDEO_ERROR)
_MISSING: Final = {
    FrameMissingReason.NOT_DECODED: Refusal(
        Code.FRAME_NOT_AVAILABLE, "frame:notDecoded", "No picture has been decoded yet", retry_after_s=1
    ),
    FrameMissingReason.STALE: Refusal(
        Code.FRAME_NOT_AVAILABLE, "frame:stale", "The newest picture is older than maxAgeMs", retry_after_s=1
    ),
    FrameMissingReason.TOO_LARGE: Refusal(
        Code.FRAME_NOT_AVAILABLE, "frame:tooLarge", "The video is larger than this server decodes; watch it by WHEP"
    ),
}
_SIGNING_OFF: Final = Refusal(Code.INVALID_INPUT, "frame:signed", "This server does not sign frames")
_NOT_SIGNED: Final = Refusal(Code.VIDEO_ERROR, "frame:notSigned", "The frame could not be signed")
_IN_GEOFENCE: Final = {True: "true", False: "false", None: "unknown"}
_WAIT_MS: Final = 1_000
_WHOLE_NUMBER: Final = {"type": "integer", "minimum": 0}
_TIME: Final = {"type": "string", "format": "date-time"}
_HEADERS: Final[Mapping[str, tuple[Mapping[str, object], str]]] = {
    "etag": ({"type": "string"}, "The frame's sequence in quotes, with `s` at its end if it is signed"),
    "last-modified": ({"type": "string"}, "When the frame was captured, in whole seconds"),
    "x-svc-frame-sequence": (_WHOLE_NUMBER, "Counts the frames of a session; send it as `after`"),
    "x-svc-frame-captured-at": (_TIME, "When the frame was captured, by the publisher's clock if it sends one"),
    "x-svc-frame-age-ms": (_WHOLE_NUMBER, "Age of the frame at the time of the answer"),
    "x-svc-frame-width": (_WHOLE_NUMBER, "Pixels"),
    "x-svc-frame-height": (_WHOLE_NUMBER, "Pixels"),
    "x-svc-frame-state": (
        {"type": "string", "enum": [state.value for state in PictureState]},
        "Whether the picture moves, is black or is frozen, or `lost`: no frame arrives, and it is the last one",
    ),
    "x-svc-publisher-epoch": (
        _WHOLE_NUMBER,
        "Which publisher's picture it is: increases with each connection of a publisher",
    ),
    "x-svc-meter-state": ({"type": "string", "enum": [state.value for state in MeterState]}, "State of the meter"),
    "x-svc-in-geofence": (
        {"type": "string", "enum": list(_IN_GEOFENCE.values())},
        "Whether the position that the operator's device states is within the geofence",
    ),
    "x-svc-location": (
        {"type": "string"},
        "`lat,lng;accuracy=metres;at=instant` as the operator's device states it, or `unknown`",
    ),
}
_NO_CLIP: Final = {
    ClipMissingReason.OFF: Refusal(
        Code.INVALID_INPUT,
        "clip:off",
        "This server keeps no video for clips; its host can set SIGHTLINE_VIDEO_CLIP_SECONDS",
    ),
    ClipMissingReason.NOT_RECEIVED: Refusal(
        Code.FRAME_NOT_AVAILABLE, "clip:notReceived", "No video has arrived yet", retry_after_s=1
    ),
    ClipMissingReason.STALE: Refusal(
        Code.FRAME_NOT_AVAILABLE, "clip:stale", "No video has arrived for some seconds", retry_after_s=1
    ),
    ClipMissingReason.UNREADABLE: Refusal(
        Code.FRAME_NOT_AVAILABLE, "clip:unreadable", "The video that arrived cannot be written as a file"
    ),
}
_CLIP_SIGNING_OFF: Final = Refusal(Code.INVALID_INPUT, "clip:signed", "This server does not sign clips")
_CLIP_IS_WEBM: Final = Refusal(
    Code.INVALID_INPUT, "clip:signed", "The publisher sends VP8, and a WebM file cannot be signed; H.264 can"
)
_CLIP_NOT_SIGNED: Final = Refusal(Code.VIDEO_ERROR, "clip:notSigned", "The clip could not be signed")
_CLIP_HEADERS: Final[Mapping[str, tuple[Mapping[str, object], str]]] = {
    "x-svc-clip-from": (_TIME, "When the first picture was captured, by the publisher's clock if it sends one"),
    "x-svc-clip-to": (_TIME, "When the last picture was captured"),
    "x-svc-clip-age-ms": (_WHOLE_NUMBER, "Age of the last picture at the time of the answer"),
    "x-svc-clip-frames": (_WHOLE_NUMBER, "Number of pictures"),
    "x-svc-clip-width": (_WHOLE_NUMBER, "Pixels"),
    "x-svc-clip-height": (_WHOLE_NUMBER, "Pixels"),
    "x-svc-publisher-epoch": (_WHOLE_NUMBER, "Which publisher's video it is, as in a frame; a clip has one"),
    **{name: _HEADERS[name] for name in ("x-svc-meter-state", "x-svc-in-geofence", "x-svc-location")},
}


def etag(sequence: int, *, is_signed: bool = False) -> str:
    """The frame's tag: its sequence, whatever the size and quality, with `s` for the signed form."""
    return f'"{sequence}s"' if is_signed else f'"{sequence}"'


def named_sequence(if_none_match: str | None) -> int | None:
    """The newest frame sequence that If-None-Match names; None if it names none."""
    tags = (each.strip().removeprefix("W/").strip('"').removesuffix("s") for each in (if_none_match or "").split(","))
    return max((int(tag) for tag in tags if tag.isascii() and tag.isdigit() and len(tag) <= 16), default=None)


def feed_headers(feed: LiveFeed) -> TextHeaders:
    """Headers that describe the session when the frame was answered."""
    return (
        ("x-svc-meter-state", feed.meter_state),
        ("x-svc-in-geofence", _IN_GEOFENCE[feed.is_in_geofence]),
        ("x-svc-location", location_text(feed.last_fix)),
    )


def location_text(fix: Fix | None) -> str:
    """`lat,lng;accuracy=metres;at=instant`, or `unknown`."""
    if fix is None:
        return "unknown"
    return f"{fix.lat:.6f},{fix.lng:.6f};accuracy={fix.accuracy_m:g};at={iso(fix.at_ms)}"


def frame_headers(frame: Frame, *, is_signed: bool) -> TextHeaders:
    """Headers that describe the picture."""
    return (
        ("etag", etag(frame.sequence, is_signed=is_signed)),
        ("last-modified", http_date(frame.captured_at_ms)),
        ("x-svc-frame-sequence", str(frame.sequence)),
        ("x-svc-frame-captured-at", iso(frame.captured_at_ms)),
        ("x-svc-frame-age-ms", str(frame.age_ms)),
        ("x-svc-frame-width", str(frame.width)),
        ("x-svc-frame-height", str(frame.height)),
        ("x-svc-frame-state", frame.state.value),
        ("x-svc-publisher-epoch", str(frame.publisher_epoch)),
    )


def http_date(at_ms: int) -> str:
    """RFC 9110 section 5.6.7."""
    return _http_second(at_ms // 1000)


@lru_cache(maxsize=64)
def _http_second(at_s: int) -> str:
    return format_datetime(datetime.fromtimestamp(at_s, UTC), usegmt=True)


def is_named(if_none_match: str | None, tag: str) -> bool:
    """Whether If-None-Match names the tag (RFC 9110 section 13.1.2, weak comparison)."""
    if if_none_match is None:
        return False
    named = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return tag in named or "*" in named


@final
class FrameResources:
    """/sessions/{id}/frame and /frames."""

    def __init__(self, services: Services, slots: StreamSlots) -> None:
        self._services = services
        self._slots = slots

    @Route(
        "GET",
        "/api/v1/sessions/{id}/frame",
        "getFrame",
        "video",
        "The newest frame as JPEG",
        description="The headers describe the frame and the feed. With `after` and `waitMs` the answer is sent as soon "
        "as there is a newer frame, else 304. Never returns a placeholder picture. The JPEG has EXIF and XMP "
        "metadata (capture time, position, session, sequence); with `signed=1` it is also signed by C2PA. The position "
        "and the picture are what the operator's device sent: a signature does not make them true.",
        operation=Operation.WATCH_VIDEO,
        rate=RateClass.FRAMES,
        query=FrameQueryString,
        media_type="image/jpeg",
        response_headers=_HEADERS,
        errors=(*_ERRORS, Code.FRAME_NOT_AVAILABLE),
        is_hot=True,
    )
    async def frame(self, call: Call) -> Raw:
        """The newest frame, or the next one after `after`. Never a placeholder."""
        query: FrameQueryString = call.query
        session_id = call.params["id"]
        await call.pace_rate(RateClass.FRAME, f"{call.budget}/{session_id}", query.wait_ms)
        feed = await self._services.broker.reads.live_feed(session_id, call.workspace_id)
        after = query.after
        if after is None and query.wait_ms > 0:  # a conditional request that waits, waits for a newer frame
            after = named_sequence(call.headers.get("if-none-match"))
        reply = await self._services.video.frame(
            feed.video_ref,
            FrameQuery(
                width=query.width,
                quality=query.quality,
                after=after,
                wait_ms=query.wait_ms,
                max_age_ms=query.max_age_ms,
            ),
        )
        if query.wait_ms > 0:
            feed = await self._services.broker.reads.live_feed(session_id, call.workspace_id)
        is_signed = self._signs(query.signed)
        shared = (("cache-control", "no-store"), *feed_headers(feed))
        if isinstance(reply, FrameMissing):
            if reply.reason is not FrameMissingReason.NOT_NEWER:
                raise RefusedError(_MISSING[reply.reason])
            tags = () if reply.sequence is None else (("etag", etag(reply.sequence, is_signed=is_signed)),)
            state = (("x-svc-frame-state", PictureState.LOST.value),) if reply.is_lost else ()
            return Raw(status=304, headers=(*shared, *tags, *state))
        headers = (*shared, *frame_headers(reply, is_signed=is_signed))
        if is_named(call.headers.get("if-none-match"), etag(reply.sequence, is_signed=is_signed)):
            return Raw(status=304, headers=headers)
        picture = await self._picture(session_id, reply, feed, is_signed=is_signed)
        self._services.broker.reads.note_picture(feed, call.workspace_id)
        return Raw(headers=(("content-type", "image/jpeg"), *headers), body=picture)

    def _signs(self, is_asked: bool) -> bool:
        """Whether to sign the frame, by the setting and the query.

        Raises:
            RefusedError: The query asks for a signature and this server does not sign.
        """
        policy = self._services.options.frame_signing
        if is_asked and policy == "off":
            raise RefusedError(_SIGNING_OFF)
        return is_asked or policy == "always"

    async def _picture(self, session_id: str, frame: Frame, feed: LiveFeed, *, is_signed: bool) -> bytes:
        """The frame's JPEG with EXIF and XMP, and with a C2PA manifest if it is to be signed."""
        facts = FrameFacts(
            session_id=session_id,
            frame=frame,
            fix=feed.last_fix,
            is_in_geofence=feed.is_in_geofence,
            meter_state=feed.meter_state,
        )
        described = self._services.evidence.describe(facts)
        if not is_signed:
            return described
        try:
            return await self._services.evidence.sign(described, facts)
        except EvidenceUnavailableError as error:
            raise RefusedError(_NOT_SIGNED) from error

    @Route(
        "GET",
        "/api/v1/sessions/{id}/frames",
        "streamFrames",
        "video",
        "Frames as multipart/x-mixed-replace",
        description="Each part is one JPEG with the headers of the frame call. Ends with the session.",
        operation=Operation.WATCH_VIDEO,
        takes_ticket=True,
        rate=RateClass.FRAME,
        query=FramesQueryString,
        media_type="multipart/x-mixed-replace",
        errors=_ERRORS,
    )
    async def frames(self, call: Call) -> Stream:
        """Frames one after the other, each once, at most `fps` a second, until the session ends."""
        query: FramesQueryString = call.query
        session_id, workspace_id = call.params["id"], call.workspace_id
        call.limit_rate(RateClass.FRAME, f"{call.budget}/{session_id}")
        self._signs(query.signed)
        await self._services.broker.reads.live_feed(session_id, workspace_id)
        self._slots.require_free(workspace_id)

        async def write(emit: Emit) -> None:
            lifetime_s = self._services.options.stream_lifetime_ms / 1_000
            with self._slots.held(workspace_id), trio.move_on_after(lifetime_s):
                await self._send_frames(emit, session_id, workspace_id, query)
            await emit(f"--{BOUNDARY}--\r\n".encode())

        content_type = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
        return Stream(write=write, headers=(("content-type", content_type), ("cache-control", "no-store")))

    async def _send_frames(self, emit: Emit, session_id: str, workspace_id: str, query: FramesQueryString) -> None:
        after: int | None = None
        while True:
            next_s = trio.current_time() + 1 / query.fps
            try:
                feed = await self._services.broker.reads.live_feed(session_id, workspace_id)
                reply = await self._services.video.frame(
                    feed.video_ref,
                    FrameQuery(
                        width=query.width,
                        quality=query.quality,
                        after=after,
                        wait_ms=_WAIT_MS,
                        max_age_ms=query.max_age_ms,
                    ),
                )
            except RefusedError:
                return
            except (UnavailableError, OutcomeUnknownError):  # a media worker or another server is being replaced
                await trio.sleep(self._services.options.frame_retry_ms / 1_000)
                continue
            if isinstance(reply, FrameMissing):
                if reply.reason is not FrameMissingReason.NOT_NEWER:
                    await trio.sleep(self._services.options.frame_retry_ms / 1_000)
                continue
            after = reply.sequence
            is_signed = self._signs(query.signed)
            picture = await self._picture(session_id, reply, feed, is_signed=is_signed)
            headers = (*feed_headers(feed), *frame_headers(reply, is_signed=is_signed))
            await emit(_part(picture, headers))
            self._services.broker.reads.note_picture(feed, workspace_id)
            await trio.sleep_until(next_s)


def _part(picture: bytes, headers: TextHeaders) -> bytes:
    lines = [f"--{BOUNDARY}", "content-type: image/jpeg", f"content-length: {len(picture)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + picture + b"\r\n"


@final
class ClipResources:
    """/sessions/{id}/clip."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "GET",
        "/api/v1/sessions/{id}/clip",
        "getClip",
        "video",
        "The last seconds as a video file",
        description="Fragmented MP4 of H.264, or WebM (`video/webm`) if the publisher sends VP8: the pictures as they "
        "were received, without sound. It starts at the keyframe before the seconds asked for, and is shorter if the "
        "server has kept less, the publisher is new, or the size of H.264 has changed. With `signed=1` an MP4 is "
        "signed by C2PA. The position and the pictures are what the operator's device sent: a signature does not make "
        "them true.",
        operation=Operation.WATCH_VIDEO,
        rate=RateClass.FRAMES,
        query=ClipQueryString,
        media_type=MP4,
        response_headers=_CLIP_HEADERS,
        errors=(*_ERRORS, Code.FRAME_NOT_AVAILABLE),
    )
    async def clip(self, call: Call) -> Raw:
        """The last seconds of the present publisher."""
        query: ClipQueryString = call.query
        session_id = call.params["id"]
        call.limit_rate(RateClass.CLIP, f"{call.budget}/{session_id}")
        feed = await self._services.broker.reads.live_feed(session_id, call.workspace_id)
        policy = self._services.options.frame_signing
        if query.signed and policy == "off":
            raise RefusedError(_CLIP_SIGNING_OFF)
        clip = await self._services.video.clip(feed.video_ref, query.seconds)
        if isinstance(clip, ClipMissing):
            raise RefusedError(_NO_CLIP[clip.reason])
        video = clip.video
        if query.signed or policy == "always":
            video = await self._signed(
                ClipFacts(
                    session_id=session_id,
                    clip=clip,
                    fix=feed.last_fix,
                    is_in_geofence=feed.is_in_geofence,
                    meter_state=feed.meter_state,
                )
            )
        headers = (
            ("content-type", clip.media_type),
            ("cache-control", "no-store"),
            *feed_headers(feed),
            ("x-svc-clip-from", iso(clip.started_at_ms)),
            ("x-svc-clip-to", iso(clip.ended_at_ms)),
            ("x-svc-clip-age-ms", str(clip.age_ms)),
            ("x-svc-clip-frames", str(clip.frames)),
            ("x-svc-clip-width", str(clip.width)),
            ("x-svc-clip-height", str(clip.height)),
            ("x-svc-publisher-epoch", str(clip.publisher_epoch)),
        )
        self._services.broker.reads.note_picture(feed, call.workspace_id)
        return Raw(headers=headers, body=video)

    async def _signed(self, facts: ClipFacts) -> bytes:
        if facts.clip.media_type != MP4:
            raise RefusedError(_CLIP_IS_WEBM)
        try:
            return await self._services.evidence.sign_clip(facts)
        except EvidenceUnavailableError as error:
            raise RefusedError(_CLIP_NOT_SIGNED) from error
