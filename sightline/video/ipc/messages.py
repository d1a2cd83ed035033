"""Conversion of the port's values to and from messages between the server and a worker."""

from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from sightline.ports.video import (
    Clip,
    ClipMissing,
    ClipMissingReason,
    ClipReply,
    Frame,
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    FrameReply,
    PictureState,
    SignalReply,
    SignalRequest,
)
from sightline.video.ipc.framing import Header
from sightline.video.options import IceServer, NetOptions, Options


def options_to_wire(options: Options) -> Header:
    """Settings for a worker. The URL secret stays with the server."""
    fields: dict[str, Any] = to_builtins(options, builtin_types=(bytes,))
    fields.pop("secret")
    return fields


def options_from_wire(fields: Header) -> Options:
    """Settings as received by a worker."""
    net: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields["net"].items()
    }
    servers = tuple(IceServer(**server) for server in fields["ice_servers"])
    return Options(**{**fields, "secret": b"", "net": NetOptions(**net), "ice_servers": servers})


def request_to_wire(request: SignalRequest) -> tuple[Header, bytes]:
    """A signalling request as header and body."""
    return {
        "kind": request.kind,
        "method": request.method,
        "token": request.token,
        "resource": request.resource,
        "headers": dict(request.headers),
        "base_url": request.base_url,
        "client_ip": request.client_ip,
    }, request.body


def request_from_wire(fields: Header, body: bytes) -> SignalRequest:
    """The signalling request that was sent."""
    return SignalRequest(**fields, body=body)


def reply_to_wire(reply: SignalReply) -> tuple[Header, bytes]:
    """A signalling reply as header and body."""
    return {"status": reply.status, "headers": [list(pair) for pair in reply.headers]}, reply.body


def reply_from_wire(fields: Header, body: bytes) -> SignalReply:
    """The signalling reply that was sent."""
    headers = tuple((str(name), str(value)) for name, value in fields["headers"])
    return SignalReply(status=int(fields["status"]), headers=headers, body=body)


def query_to_wire(query: FrameQuery) -> Header:
    """A frame query."""
    return {
        "width": query.width,
        "quality": query.quality,
        "after": query.after,
        "wait_ms": query.wait_ms,
        "max_age_ms": query.max_age_ms,
    }


def query_from_wire(fields: Header) -> FrameQuery:
    """The frame query that was sent."""
    return FrameQuery(**fields)


def frame_to_wire(reply: FrameReply) -> tuple[Header, bytes]:
    """A frame reply as header and body."""
    if isinstance(reply, FrameMissing):
        return {"missing": reply.reason.value, "sequence": reply.sequence, "lost": reply.is_lost}, b""
    is_lost = reply.state is PictureState.LOST
    fields: Header = {
        "sequence": reply.sequence,
        "captured_at_ms": reply.captured_at_ms,
        "received_at_ms": reply.received_at_ms,
        "age_ms": reply.age_ms,
        "width": reply.width,
        "height": reply.height,
        # A server of an earlier version, which asks this one during an upgrade, does not know the state `lost`.
        "state": (PictureState.FROZEN if is_lost else reply.state).value,
        "lost": is_lost,
        "captured_by_rtcp": reply.captured_by_rtcp,
        "publisher_epoch": reply.publisher_epoch,
    }
    return fields, reply.jpeg


def frame_from_wire(fields: Header, body: bytes) -> FrameReply:
    """The frame reply that was sent."""
    if "missing" in fields:
        return FrameMissing(
            reason=FrameMissingReason(fields["missing"]), sequence=fields["sequence"], is_lost=fields.get("lost", False)
        )
    return Frame(
        jpeg=body,
        sequence=fields["sequence"],
        captured_at_ms=fields["captured_at_ms"],
        received_at_ms=fields["received_at_ms"],
        age_ms=fields["age_ms"],
        width=fields["width"],
        height=fields["height"],
        state=PictureState.LOST if fields.get("lost", False) else PictureState(fields["state"]),
        captured_by_rtcp=fields["captured_by_rtcp"],
        publisher_epoch=fields.get("publisher_epoch", 0),
    )


def clip_to_wire(reply: ClipReply) -> tuple[Header, bytes]:
    """A clip reply as header and body."""
    if isinstance(reply, ClipMissing):
        return {"missing": reply.reason.value}, b""
    fields = asdict(reply)
    return {"clip": fields}, fields.pop("video")


def clip_from_wire(fields: Header, body: bytes) -> ClipReply:
    """The clip reply that was sent."""
    if "missing" in fields:
        return ClipMissing(reason=ClipMissingReason(fields["missing"]))
    return Clip(**fields["clip"], video=body)
