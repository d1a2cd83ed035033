"""RTP payloads of H.264 and VP8: keyframe detection, frame starts, conversion to the decoder's bitstream.

Source: RFC 6184 (H.264 over RTP), RFC 7741 (VP8 over RTP), RFC 6386 section 9.1 (VP8 frame tag).
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, final

from sightline.domain.value import Value
from sightline.video.media.picture_size import (
    PictureSize,
    shown_size_of_h264,
    shown_size_of_vp8,
    sizes_of_h264,
    sizes_of_vp8,
)

NAL_IDR, NAL_SEI, NAL_SPS, NAL_PPS, NAL_AUD, NAL_STAP_A, NAL_FU_A = 5, 6, 7, 8, 9, 24, 28
_START: Final = b"\0\0\0\1"


class PayloadFormat(Protocol):
    """RTP payload format of one codec."""

    name: str
    """As in SDP, upper case."""
    decoder: str
    """Name of the decoder in libavcodec."""

    def for_stream(self) -> "PayloadFormat":
        """A format for one more stream, which keeps nothing of other streams."""
        ...

    def is_key(self, payload: bytes) -> bool:
        """True if the packet belongs to a keyframe."""
        ...

    def surely_opens(self, payload: bytes) -> bool:
        """True if the packet is certainly the first of its frame."""
        ...

    def complete(self, payloads: Sequence[bytes], *, key: bool) -> tuple[bytes, ...] | None:
        """The frame's payloads with the parameter sets that a new viewer needs; None if the frame has no picture."""
        ...

    def unpack(self, payloads: Sequence[bytes]) -> bytes:
        """The frame as the decoder takes it."""
        ...

    def sizes(self, bitstream: bytes) -> list[PictureSize]:
        """The sizes that an unpacked frame declares.

        Raises:
            UnreadableSizeError: One of them cannot be read.
        """
        ...

    def shown_size(self, bitstream: bytes) -> tuple[int, int]:
        """Width and height in pixels of an unpacked keyframe.

        Raises:
            UnreadableSizeError: They cannot be read.
        """
        ...


def _nals(payload: bytes) -> Iterator[bytes]:
    """The complete NAL units of one payload; none for a fragment."""
    kind = payload[0] & 0x1F if payload else 0
    if 0 < kind < 24:
        yield payload
    elif kind == NAL_STAP_A:
        at = 1
        while at + 2 < len(payload):
            size = int.from_bytes(payload[at : at + 2], "big")
            yield payload[at + 2 : at + 2 + size]
            at += 2 + size


def _nal_kinds(payload: bytes) -> list[int]:
    if len(payload) >= 2 and payload[0] & 0x1F == NAL_FU_A:
        return [payload[1] & 0x1F]
    return [nal[0] & 0x1F for nal in _nals(payload) if nal]


@final
class H264Format:
    """H.264, packetization modes 0 and 1. Keeps parameter sets, which some senders send only once."""

    name = "H264"
    decoder = "h264"

    def __init__(self, parameter_sets: Sequence[bytes] = ()) -> None:
        self._described = parameter_sets
        self._sets: dict[int, bytes] = {nal[0] & 0x1F: nal for nal in parameter_sets if nal}

    def for_stream(self) -> "H264Format":
        """A format with the parameter sets of the session description only."""
        return H264Format(self._described)

    @property
    def profile(self) -> str | None:
        """profile-level-id from the stream's SPS, six hex digits; None before the first SPS."""
        sps = self._sets.get(NAL_SPS)
        return sps[1:4].hex() if sps is not None and len(sps) >= 4 else None

    def is_key(self, payload: bytes) -> bool:
        """True for any part of an IDR picture."""
        if len(payload) < 2:
            return False
        kind = payload[0] & 0x1F
        if kind == NAL_FU_A:
            return payload[1] & 0x1F == NAL_IDR
        return kind == NAL_IDR or (kind == NAL_STAP_A and NAL_IDR in _nal_kinds(payload))

    def surely_opens(self, payload: bytes) -> bool:
        """True if the first NAL unit is a delimiter, SPS or SEI, which precede the picture's first slice."""
        if len(payload) < 4:
            return False
        kind = payload[0] & 0x1F
        if kind == NAL_STAP_A:
            kind = payload[3] & 0x1F
        return kind in (NAL_SEI, NAL_SPS, NAL_AUD)

    def complete(self, payloads: Sequence[bytes], *, key: bool) -> tuple[bytes, ...] | None:
        """Add the kept parameter sets to a keyframe without them; None for a frame of parameter sets only."""
        has_sps = has_picture = False
        for payload in payloads:
            kind = payload[0] & 0x1F
            if kind == NAL_FU_A:
                has_picture = True
                continue
            for nal in _nals(payload):
                nal_kind = nal[0] & 0x1F if nal else 0
                if nal_kind in (NAL_SPS, NAL_PPS):
                    self._sets[nal_kind] = nal
                    has_sps = has_sps or nal_kind == NAL_SPS
                elif nal_kind in (1, 2, 3, 4, NAL_IDR):
                    has_picture = True
        if not has_picture:
            return None
        if key and not has_sps:
            if not (NAL_SPS in self._sets and NAL_PPS in self._sets):
                return None
            return (self._sets[NAL_SPS], self._sets[NAL_PPS], *payloads)
        return tuple(payloads)

    def unpack(self, payloads: Sequence[bytes]) -> bytes:
        """Annex B bytes."""
        out = bytearray()
        for payload in payloads:
            if len(payload) >= 2 and payload[0] & 0x1F == NAL_FU_A:
                if payload[1] & 0x80:
                    out += _START
                    out.append(payload[0] & 0xE0 | payload[1] & 0x1F)
                out += payload[2:]
            else:
                for nal in _nals(payload):
                    out += _START
                    out += nal
        return bytes(out)

    def sizes(self, bitstream: bytes) -> list[PictureSize]:
        """The sizes in the frame's sequence parameter sets."""
        return sizes_of_h264(bitstream)

    def shown_size(self, bitstream: bytes) -> tuple[int, int]:
        """The size in a keyframe's first sequence parameter set, after cropping."""
        return shown_size_of_h264(bitstream)


def _vp8_body(payload: bytes) -> int | None:
    """Where the VP8 data starts behind the payload descriptor."""
    at = 1
    if payload[0] & 0x80:
        if len(payload) < 2:
            return None
        extension = payload[1]
        at = 2
        if extension & 0x80:
            if len(payload) <= at:
                return None
            at += 2 if payload[at] & 0x80 else 1
        at += bool(extension & 0x40) + bool(extension & 0x30)
    return at if at < len(payload) else None


@final
class Vp8Numbers(Value):
    """The running numbers in a payload descriptor of VP8 (RFC 7741, section 4.2), and where each stands; None: not
    sent."""

    picture_id: int | None = None
    picture_at: int = 0
    picture_mask: int = 0x7F
    level0: int | None = None
    """TL0PICIDX, which counts the frames of the lowest temporal layer."""
    level0_at: int = 0
    key_index: int | None = None
    """KEYIDX, which counts keyframes."""
    key_at: int = 0


def vp8_numbers(payload: bytes) -> Vp8Numbers:
    """Read the running numbers of a payload, as far as its descriptor is whole."""
    if len(payload) < 2 or not payload[0] & 0x80:
        return Vp8Numbers()
    extension, at = payload[1], 2
    found: dict[str, int] = {}
    if extension & 0x80 and at < len(payload):
        is_long = bool(payload[at] & 0x80) and at + 1 < len(payload)
        value = int.from_bytes(payload[at : at + 2], "big") & 0x7FFF if is_long else payload[at] & 0x7F
        found |= {"picture_id": value, "picture_at": at, "picture_mask": 0x7FFF if is_long else 0x7F}
        at += 1 + is_long
    if extension & 0x40 and at < len(payload):
        found |= {"level0": payload[at], "level0_at": at}
        at += 1
    if extension & 0x10 and at < len(payload):
        found |= {"key_index": payload[at] & 0x1F, "key_at": at}
    return Vp8Numbers(**found)


@final
class Vp8Shift(Value):
    """What is added to the running numbers of one stream, so that they continue those of the one sent before it."""

    picture: int = 0
    level0: int = 0
    key: int = 0

    def apply(self, payload: bytes) -> bytes:
        """The payload with its numbers shifted."""
        known = vp8_numbers(payload)
        changed = bytearray(payload)
        if known.picture_id is not None:
            value = (known.picture_id + self.picture) & known.picture_mask
            if known.picture_mask > 0x7F:
                changed[known.picture_at : known.picture_at + 2] = (0x8000 | value).to_bytes(2, "big")
            else:
                changed[known.picture_at] = value
        if known.level0 is not None:
            changed[known.level0_at] = (known.level0 + self.level0) & 0xFF
        if known.key_index is not None:
            changed[known.key_at] = payload[known.key_at] & 0xE0 | (known.key_index + self.key) & 0x1F
        return bytes(changed)


def continuing(before: bytes, after: bytes) -> Vp8Shift:
    """The shift by which a keyframe's first payload continues the numbers of the last frame that was sent."""
    old, new = vp8_numbers(before), vp8_numbers(after)

    def step(sent: int | None, coming: int | None) -> int:
        return 0 if sent is None or coming is None else sent + 1 - coming

    return Vp8Shift(
        picture=step(old.picture_id, new.picture_id),
        level0=step(old.level0, new.level0),
        key=step(old.key_index, new.key_index),
    )


@final
class Vp8Format:
    """VP8."""

    name = "VP8"
    decoder = "vp8"

    def for_stream(self) -> "Vp8Format":
        """Nothing is kept, so all streams share it."""
        return self

    def is_key(self, payload: bytes) -> bool:
        """True for the first packet of a keyframe."""
        at = _vp8_body(payload) if payload else None
        return at is not None and self.surely_opens(payload) and not payload[at] & 1

    def surely_opens(self, payload: bytes) -> bool:
        """True at the start of partition 0."""
        return bool(payload) and payload[0] & 0x17 == 0x10

    def complete(self, payloads: Sequence[bytes], *, key: bool) -> tuple[bytes, ...] | None:
        """Return the payloads if they start with the first packet of the frame; None otherwise."""
        del key
        return tuple(payloads) if payloads and self.surely_opens(payloads[0]) else None

    def unpack(self, payloads: Sequence[bytes]) -> bytes:
        """The frame without descriptors."""
        parts = ((payload, _vp8_body(payload)) for payload in payloads if payload)
        return b"".join(payload[at:] for payload, at in parts if at is not None)

    def sizes(self, bitstream: bytes) -> list[PictureSize]:
        """The size in a keyframe's header."""
        return sizes_of_vp8(bitstream)

    def shown_size(self, bitstream: bytes) -> tuple[int, int]:
        """The size in a keyframe's header."""
        return shown_size_of_vp8(bitstream)
