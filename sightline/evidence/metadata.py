"""EXIF 2.32 and XMP metadata of a frame, as the two APP1 segments of its JPEG.

Written by hand because it runs once per frame: 20 tags are about 40 microseconds, and the EXIF libraries for Python
either decode the picture (Pillow) or are unmaintained (piexif).
"""

import struct
from datetime import UTC, datetime
from typing import Final, TypeAlias

from sightline.domain.geofence import Fix
from sightline.evidence.origins import stated_by_operator
from sightline.ports.evidence import ClipFacts, FrameFacts

_SOI: Final = b"\xff\xd8"
_APP1: Final = b"\xff\xe1"
_ASCII: Final = 2
_LONG: Final = 4
_RATIONAL: Final = 5
_UNDEFINED: Final = 7
_BYTE: Final = 1
_MICRO: Final = 1_000_000

XMP_NAMESPACE: Final = "urn:sightline:frame:1.0/"
"""Namespace of the XMP properties that no standard schema has."""
_IN_GEOFENCE: Final = {True: "true", False: "false", None: "unknown"}

_Tag = tuple[int, int, int, bytes]
"""Tag number, type, count, and value as bytes."""
Properties: TypeAlias = dict[str, str | int | float | None]


def frame_properties(facts: FrameFacts) -> Properties:
    """The facts as names and values, as they appear in the XMP packet and in the C2PA manifest."""
    frame = facts.frame
    own: Properties = {
        "sessionId": facts.session_id,
        "sequence": frame.sequence,
        "capturedAt": _iso(frame.captured_at_ms),
        "capturedBy": "publisher" if frame.captured_by_rtcp else "server",
        "receivedAt": _iso(frame.received_at_ms),
        "publisherEpoch": frame.publisher_epoch,
        "pictureState": frame.state.value,
    }
    return own | _state_properties(facts)


def clip_properties(facts: ClipFacts) -> Properties:
    """The facts of a clip as names and values, as they appear in the C2PA manifest."""
    clip = facts.clip
    own: Properties = {
        "sessionId": facts.session_id,
        "capturedFrom": _iso(clip.started_at_ms),
        "capturedTo": _iso(clip.ended_at_ms),
        "capturedBy": "publisher" if clip.captured_by_rtcp else "server",
        "receivedAt": _iso(clip.received_at_ms),
        "frames": clip.frames,
        "publisherEpoch": clip.publisher_epoch,
    }
    return own | _state_properties(facts)


def _state_properties(facts: FrameFacts | ClipFacts) -> Properties:
    fix = facts.fix
    return {
        "meterState": facts.meter_state,
        "inGeofence": _IN_GEOFENCE[facts.is_in_geofence],
        "lat": None if fix is None else round(fix.lat, 6),
        "lng": None if fix is None else round(fix.lng, 6),
        "accuracyM": None if fix is None else fix.accuracy_m,
        "positionAt": None if fix is None else _iso(fix.at_ms),
    }


def with_metadata(facts: FrameFacts, software: str) -> bytes:
    """Return the frame's JPEG with EXIF and XMP inserted after its start marker.

    Args:
        software: Name and version of this server, for the Software tag.

    Raises:
        ValueError: The frame is not a JPEG.
    """
    jpeg = facts.frame.jpeg
    if not jpeg.startswith(_SOI):
        raise ValueError("not a JPEG")
    exif = b"Exif\x00\x00" + _exif(facts, software)
    xmp = b"http://ns.adobe.com/xap/1.0/\x00" + _xmp(facts, software)
    return b"".join((_SOI, _segment(exif), _segment(xmp), jpeg[2:]))


def _segment(content: bytes) -> bytes:
    return _APP1 + struct.pack(">H", len(content) + 2) + content


def _exif(facts: FrameFacts, software: str) -> bytes:
    captured = _utc(facts.frame.captured_at_ms)
    stamp = captured.strftime("%Y:%m:%d %H:%M:%S")
    description = f"Session {facts.session_id}, frame {facts.frame.sequence}"
    exif = [
        (0x9000, _UNDEFINED, 4, b"0232"),
        _ascii(0x9003, stamp),  # DateTimeOriginal
        _ascii(0x9011, "+00:00"),  # OffsetTimeOriginal
        _ascii(0x9291, f"{captured.microsecond // 1000:03d}"),  # SubSecTimeOriginal
    ]
    gps = [] if facts.fix is None else _gps(facts.fix)
    first: list[_Tag] = [_ascii(0x010E, description), _ascii(0x0131, software), _ascii(0x0132, stamp)]
    # The two pointers come last: their tag numbers are the highest. Sizes are known before the offsets are.
    count = len(first) + 1 + bool(gps)
    exif_at = 8 + _directory_size(first, count)
    gps_at = exif_at + _directory_size(exif, len(exif))
    first.append((0x8769, _LONG, 1, struct.pack(">I", exif_at)))
    if gps:
        first.append((0x8825, _LONG, 1, struct.pack(">I", gps_at)))
    header = struct.pack(">2sHI", b"MM", 42, 8)
    return header + _directory(first, 8) + _directory(exif, exif_at) + (_directory(gps, gps_at) if gps else b"")


def _gps(fix: Fix) -> list[_Tag]:
    at = _utc(fix.at_ms)
    clock = ((at.hour, 1), (at.minute, 1), (at.second * 1000 + at.microsecond // 1000, 1000))
    return [
        (0, _BYTE, 4, bytes((2, 3, 0, 0))),
        _ascii(1, "N" if fix.lat >= 0 else "S"),
        _rationals(2, *_degrees(fix.lat)),
        _ascii(3, "E" if fix.lng >= 0 else "W"),
        _rationals(4, *_degrees(fix.lng)),
        _rationals(7, *clock),
        _ascii(18, "WGS-84"),
        _ascii(29, at.strftime("%Y:%m:%d")),
        _rationals(31, (min(round(fix.accuracy_m * 1000), 0xFFFFFFFF), 1000)),  # GPSHPositioningError
    ]


def _degrees(value: float) -> tuple[tuple[int, int], ...]:
    """Degrees, minutes and seconds as rationals; the seconds carry the six decimals of the degrees."""
    micro = round(abs(value) * _MICRO)
    degrees, rest = divmod(micro, _MICRO)
    minutes, rest = divmod(rest * 60, _MICRO)
    return ((degrees, 1), (minutes, 1), (rest * 60, _MICRO))


def _ascii(tag: int, text: str) -> _Tag:
    value = text.encode("ascii", "replace") + b"\x00"
    return (tag, _ASCII, len(value), value)


def _rationals(tag: int, *values: tuple[int, int]) -> _Tag:
    return (tag, _RATIONAL, len(values), b"".join(struct.pack(">II", *value) for value in values))


def _directory_size(tags: list[_Tag], count: int) -> int:
    """Bytes of a directory of `count` entries, those of `tags` with their values."""
    return 2 + 12 * count + 4 + sum(_padded(value) for *_, value in tags if len(value) > 4)


def _padded(value: bytes) -> int:
    return len(value) + len(value) % 2


def _directory(tags: list[_Tag], at: int) -> bytes:
    values_at = at + 2 + 12 * len(tags) + 4
    entries, values = [struct.pack(">H", len(tags))], []
    for tag, kind, count, value in tags:
        if len(value) <= 4:
            entries.append(struct.pack(">HHI4s", tag, kind, count, value))
            continue
        entries.append(struct.pack(">HHII", tag, kind, count, values_at))
        values.append(value + b"\x00" * (len(value) % 2))
        values_at += _padded(value)
    return b"".join((*entries, struct.pack(">I", 0), *values))


def _xmp(facts: FrameFacts, software: str) -> bytes:
    # Every value is a number, an ISO time, a UUID or of a fixed set of words, so nothing needs escaping.
    values = frame_properties(facts) | {"statedByOperator": stated_by_operator(facts)}
    properties = " ".join(f'sightline:{name}="{value}"' for name, value in values.items() if value is not None)
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" '
        f'xmlns:sightline="{XMP_NAMESPACE}" xmp:CreatorTool="{software}" '
        f'xmp:CreateDate="{_iso(facts.frame.captured_at_ms)}" {properties}/>'
        '</rdf:RDF></x:xmpmeta><?xpacket end="r"?>'
    ).encode()


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC).replace(microsecond=at_ms % 1000 * 1000)


def _iso(at_ms: int) -> str:
    return f"{_utc(at_ms).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"
