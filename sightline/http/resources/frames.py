"""The newest frame as JPEG: one at a time for polling agents, or as a multipart stream."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from typing import Final, final

import trio

from sightline.actors.types import LiveFeed
from sightline.domain.access import Operation
from sightline.domain.errors import RefusedError
from sightline.domain.geofence import Fix
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import MeterState
from sightline.http.pipeline.call import Call, Emit, Raw, Stream, TextHeaders
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Route
from sightline.http.resources.streams import StreamSlots
from sightline.http.schemas.base import iso
from sightline.http.schemas.sessions import FrameQueryString, FramesQueryString
from sightline.http.services import Services
from sightline.ports.video import Frame, FrameMissing, FrameMissingReason, FrameQuery, PictureState

BOUNDARY: Final = "sightline-frame"
_ERRORS: Final = (Code.SESSION_NOT_FOUND, Code.INVALID_STATE, Code.VIDEO_ERROR)
_MISSING: Final = {
    FrameMissingReason.NOT_DECODED: Refusal(Code.FRAME_NOT_AVAILABLE, "frame:notDecoded", retry_after_s=1),
    FrameMissingReason.STALE: Refusal(Code.FRAME_NOT_AVAILABLE, "frame:stale", retry_after_s=1),
}
_IN_GEOFENCE: Final = {True: "true", False: "false", None: "unknown"}
_WAIT_MS: Final = 1_000
_WHOLE_NUMBER: Final = {"type": "integer", "minimum": 0}
_TIME: Final = {"type": "string", "format": "date-time"}
_HEADERS: Final[Mapping[str, tuple[Mapping[str, object], str]]] = {
    "etag": ({"type": "string"}, "The frame's sequence in quotes"),
    "last-modified": ({"type": "string"}, "When the frame was captured, in whole seconds"),
    "x-svc-frame-sequence": (_WHOLE_NUMBER, "Counts the frames of a session; send it as `after`"),
    "x-svc-frame-captured-at": (_TIME, "When the frame was captured"),
    "x-svc-frame-age-ms": (_WHOLE_NUMBER, "Age of the frame at the time of the answer"),
    "x-svc-frame-width": (_WHOLE_NUMBER, "Pixels"),
    "x-svc-frame-height": (_WHOLE_NUMBER, "Pixels"),
    "x-svc-frame-state": (
        {"type": "string", "enum": [state.value for state in PictureState]},
        "Whether the picture moves, is black, or is frozen",
    ),
    "x-svc-meter-state": ({"type": "string", "enum": [state.value for state in MeterState]}, "State of the meter"),
    "x-svc-in-geofence": (
        {"type": "string", "enum": list(_IN_GEOFENCE.values())},
        "Whether the device is within the geofence",
    ),
    "x-svc-location": ({"type": "string"}, "`lat,lng;accuracy=metres;at=instant`, or `unknown`"),
}


def etag(sequence: int) -> str:
    """The frame's tag. Frames differ by sequence alone, whatever size and quality they are sent in."""
    return f'"{sequence}"'


def named_sequence(if_none_match: str | None) -> int | None:
    """The newest frame sequence that If-None-Match names; None if it names none."""
    tags = (each.strip().removeprefix("W/").strip('"') for each in (if_none_match or "").split(","))
    return max((int(tag) for tag in tags if tag.isascii() and tag.isdigit() and len(tag) <= 16), default=None)


def feed_headers(feed: LiveFeed) -> TextHeaders:
    """What the service says of the feed, beside the picture."""
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


def frame_headers(frame: Frame) -> TextHeaders:
    """What is known of the picture."""
    return (
        ("etag", etag(frame.sequence)),
        ("last-modified", http_date(frame.captured_at_ms)),
        ("x-svc-frame-sequence", str(frame.sequence)),
        ("x-svc-frame-captured-at", iso(frame.captured_at_ms)),
        ("x-svc-frame-age-ms", str(frame.age_ms)),
        ("x-svc-frame-width", str(frame.width)),
        ("x-svc-frame-height", str(frame.height)),
        ("x-svc-frame-state", frame.state.value),
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
        "as there is a newer frame, else 304. Never returns a placeholder picture.",
        operation=Operation.READ_SESSION,
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
        await call.pace_rate(RateClass.FRAME, f"{call.workspace_id}/{session_id}", query.wait_ms)
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
        shared = (("cache-control", "no-store"), *feed_headers(feed))
        if isinstance(reply, FrameMissing):
            if reply.reason is not FrameMissingReason.NOT_NEWER:
                raise RefusedError(_MISSING[reply.reason])
            tags = () if reply.sequence is None else (("etag", etag(reply.sequence)),)
            return Raw(status=304, headers=(*shared, *tags))
        headers = (*shared, *frame_headers(reply))
        if is_named(call.headers.get("if-none-match"), etag(reply.sequence)):
            return Raw(status=304, headers=headers)
        return Raw(headers=(("content-type", "image/jpeg"), *headers), body=reply.jpeg)

    @Route(
        "GET",
        "/api/v1/sessions/{id}/frames",
        "streamFrames",
        "video",
        "Frames as multipart/x-mixed-replace",
        description="Each part is one JPEG with the headers of the frame call. Ends with the session.",
        operation=Operation.READ_SESSION,
        rate=RateClass.FRAME,
        query=FramesQueryString,
        media_type="multipart/x-mixed-replace",
        errors=_ERRORS,
    )
    async def frames(self, call: Call) -> Stream:
        """Frames one after the other, each once, at most `fps` a second, until the session ends."""
        query: FramesQueryString = call.query
        session_id, workspace_id = call.params["id"], call.workspace_id
        call.limit_rate(RateClass.FRAME, f"{workspace_id}/{session_id}")
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
            except RefusedError:
                return
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
            if isinstance(reply, FrameMissing):
                if reply.reason is not FrameMissingReason.NOT_NEWER:
                    await trio.sleep(self._services.options.frame_retry_ms / 1_000)
                continue
            after = reply.sequence
            await emit(_part(reply, feed))
            await trio.sleep_until(next_s)


def _part(frame: Frame, feed: LiveFeed) -> bytes:
    lines = [f"--{BOUNDARY}", "content-type: image/jpeg", f"content-length: {len(frame.jpeg)}"]
    lines += [f"{name}: {value}" for name, value in (*feed_headers(feed), *frame_headers(frame))]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + frame.jpeg + b"\r\n"
