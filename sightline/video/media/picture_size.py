"""Sizes of pictures, read from parameter sets and frame headers before anything is decoded. Pure.

A picture counts by its coded size, before cropping, because that is what a decoder allocates. Where libavcodec accepts
more than one reading of a parameter set, the largest one counts.

Source: ITU-T H.264 (08/2021), 7.3.2.1.1 (sequence parameter set), A.3.1 (levels); RFC 6386, section 9.1 (VP8).
"""

import math
import re
from collections.abc import Iterator
from typing import Final, final

from sightline.domain.value import Value

BLOCK: Final = 16
"""Pixels of a macroblock's side."""
SPS_MAX_BYTES: Final = 1_024
"""A real one has at most 700, with all scaling lists."""
SPS_MAX_PER_FRAME: Final = 8
"""Different ones. Encoders send one, some of them again before each slice."""
SPS_MAX_COPIES: Final = 256
GOLOMB_MAX_BITS: Final = 31
PICTURES_OF_LARGEST: Final = 6
"""Reference pictures of the largest size that a stream may ask for; smaller ones more, as levels of H.264 do."""
MOTION_DATA: Final = 1.4
"""Memory of a picture with its motion data, divided by that of its samples; measured with libavcodec 62."""
_SPS: Final = re.compile(rb"\x00\x00\x01[\x07\x27\x47\x67\x87\xa7\xc7\xe7]")
_NAL_END: Final = re.compile(rb"\x00\x00[\x00\x01\x02]")
_WITH_CHROMA_FORMAT: Final = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135, 144})
_READ_DIFFERENTLY: Final = frozenset({139, 134, 135, 144})
"""Profiles whose sets the standard and libavcodec read differently."""
_CHROMA: Final = (0.5, 0.5, 1.0, 2.0)
"""Chroma samples per luma sample by chroma_format_idc; grey counts as 4:2:0."""


class PictureTooLargeError(Exception):
    """The stream declares pictures that are larger than this server decodes."""


class UnreadableSizeError(Exception):
    """The stream declares a size that cannot be read."""


@final
class PictureSize(Value):
    """What a stream declares about its pictures."""

    width: int
    height: int
    """Coded size in pixels, whole macroblocks."""
    references: int
    """Pictures that the decoder keeps at most."""
    octets: int
    """Memory of one picture."""

    @property
    def memory(self) -> int:
        """Memory of a decoder in bytes: references, the picture in work and the one shown, with motion data."""
        return int(self.octets * MOTION_DATA * (self.references + 2))


@final
class PictureLimit(Value):
    """The largest picture that is decoded.

    Attributes:
        width, height: Either way round: the area counts, in whole macroblocks. No side is longer than
            sqrt(8 x area), as in the levels of H.264.
    """

    width: int = 3_840
    height: int = 2_160

    @property
    def area(self) -> int:
        """Coded pixels."""
        return _whole(self.width) * _whole(self.height)

    @property
    def side(self) -> int:
        """Longest side in pixels."""
        return math.isqrt(8 * self.area)

    @property
    def decoder_max_pixels(self) -> int:
        """The same limit for libavcodec, which rounds lines up."""
        return self.area + 128 * self.side

    def require(self, size: PictureSize) -> None:
        """Check a size.

        Raises:
            PictureTooLargeError: The picture, or the references that the stream asks for, are too large.
        """
        if size.width * size.height > self.area or max(size.width, size.height) > self.side:
            raise PictureTooLargeError(f"{size.width}x{size.height} is larger than {self.width}x{self.height}")
        if size.references * size.octets > PICTURES_OF_LARGEST * self.area * 3 // 2:
            raise PictureTooLargeError(f"{size.references} references of {size.width}x{size.height}")


def _whole(pixels: int) -> int:
    return -(-pixels // BLOCK) * BLOCK


@final
class _Bits:
    """Reads bits of a parameter set."""

    def __init__(self, data: bytes) -> None:
        self._text = f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}"
        self._at = 0

    def take(self, count: int) -> int:
        text = self._text[self._at : self._at + count]
        if len(text) < count:
            raise UnreadableSizeError("the sequence parameter set ends early")
        self._at += count
        return int(text, 2) if count else 0

    def golomb(self) -> int:
        zeros = self._text.find("1", self._at) - self._at
        if not 0 <= zeros <= GOLOMB_MAX_BITS:
            raise UnreadableSizeError("an Exp-Golomb number of more than 31 bits, or none")
        self._at += zeros + 1
        return (1 << zeros) - 1 + self.take(zeros)

    def signed_golomb(self) -> int:
        number = self.golomb()
        return (number + 1) // 2 if number % 2 else -(number // 2)


def sizes_of_h264(bitstream: bytes) -> list[PictureSize]:
    """The sizes that the sequence parameter sets in Annex B bytes declare, in all readings.

    Start codes are searched in the bytes that the decoder gets, because an RTP payload may contain further ones.

    Raises:
        UnreadableSizeError: A set cannot be read, or there are more than a stream can use.
    """
    sets: set[bytes] = set()
    for count, match in enumerate(_SPS.finditer(bitstream)):
        payload = bitstream[match.end() : match.end() + SPS_MAX_BYTES]
        end = _NAL_END.search(payload)
        sets.add(payload if end is None else payload[: end.start()])
        if len(sets) > SPS_MAX_PER_FRAME or count >= SPS_MAX_COPIES:
            raise UnreadableSizeError(f"{len(sets)} sequence parameter sets in {count + 1} places of a frame")
    return [size for raw in sets for size in _readings(raw)]


def _readings(raw: bytes) -> Iterator[PictureSize]:
    """The size by the standard; then by the other readings that libavcodec tries, where they succeed."""
    if len(raw) == SPS_MAX_BYTES:
        raise UnreadableSizeError(f"a sequence parameter set of {SPS_MAX_BYTES} bytes or more")
    clean = raw.replace(b"\0\0\3", b"\0\0")
    if not clean:
        raise UnreadableSizeError("an empty sequence parameter set")
    is_high = clean[0] in _WITH_CHROMA_FORMAT
    yield _read_sps(clean, is_high=is_high)
    others = [(clean, False)] if clean[0] in _READ_DIFFERENTLY else []
    if raw != clean:  # after an error libavcodec reads the set again with its escape bytes
        others += [(raw, is_high)]
    for data, as_high in others:
        try:
            yield _read_sps(data, is_high=as_high)
        except UnreadableSizeError:
            continue


def _read_sps(data: bytes, *, is_high: bool) -> PictureSize:
    return _read_to_height(_Bits(data), is_high=is_high)[0]


def _read_to_height(bits: _Bits, *, is_high: bool) -> tuple[PictureSize, int, int]:
    """Read the set as far as the height: the size, chroma_format_idc, and 2 if the set allows fields, else 1."""
    bits.take(24)  # profile, constraints, level
    bits.golomb()  # id
    chroma, depth = _read_chroma(bits) if is_high else (1, 8)
    bits.golomb()  # log2_max_frame_num_minus4
    _skip_picture_order(bits)
    references = bits.golomb()
    bits.take(1)  # gaps in frame numbers
    width, height = bits.golomb() + 1, bits.golomb() + 1
    fields = 1 if bits.take(1) else 2
    width, height = BLOCK * width, BLOCK * height * fields
    samples = width * height * (1 if depth == 8 else 2)
    return PictureSize(width, height, references, int(samples * (1 + _CHROMA[chroma]))), chroma, fields


def shown_size_of_h264(bitstream: bytes) -> tuple[int, int]:
    """Width and height in pixels, after cropping, that the first sequence parameter set in Annex B bytes declares.

    Raises:
        UnreadableSizeError: There is none, or it cannot be read.
    """
    match = _SPS.search(bitstream)
    if match is None:
        raise UnreadableSizeError("a keyframe without a sequence parameter set")
    payload = bitstream[match.end() : match.end() + SPS_MAX_BYTES]
    end = _NAL_END.search(payload)
    clean = (payload if end is None else payload[: end.start()]).replace(b"\0\0\3", b"\0\0")
    if not clean:
        raise UnreadableSizeError("an empty sequence parameter set")
    bits = _Bits(clean)
    size, chroma, fields = _read_to_height(bits, is_high=clean[0] in _WITH_CHROMA_FORMAT)
    bits.take(fields)  # adaptive between frame and fields, if it allows fields; direct_8x8_inference
    if not bits.take(1):
        return size.width, size.height
    left, right, top, bottom = (bits.golomb() for _ in range(4))
    width = size.width - (left + right) * (2 if chroma in (1, 2) else 1)
    height = size.height - (top + bottom) * (2 if chroma == 1 else 1) * fields
    if width < 1 or height < 1:
        raise UnreadableSizeError("the sequence parameter set crops the whole picture")
    return width, height


def _read_chroma(bits: _Bits) -> tuple[int, int]:
    """(chroma_format_idc, bits per sample)."""
    chroma = bits.golomb()
    if chroma >= len(_CHROMA):
        raise UnreadableSizeError(f"chroma format {chroma}")
    if chroma == 3:
        bits.take(1)
    depth = 8 + max(bits.golomb(), bits.golomb())
    bits.take(1)
    if bits.take(1):
        for index in range(12 if chroma == 3 else 8):
            if bits.take(1):
                _skip_scaling_list(bits, 16 if index < 6 else 64)
    return chroma, depth


def _skip_scaling_list(bits: _Bits, length: int) -> None:
    scale = 8
    for _ in range(length):
        scale = (scale + bits.signed_golomb()) % 256
        if not scale:
            return


def _skip_picture_order(bits: _Bits) -> None:
    kind = bits.golomb()
    if kind == 0:
        bits.golomb()
    elif kind == 1:
        bits.take(1)
        bits.signed_golomb()
        bits.signed_golomb()
        for _ in range(min(256, bits.golomb())):
            bits.signed_golomb()


def sizes_of_vp8(frame: bytes) -> list[PictureSize]:
    """The size that a VP8 keyframe declares; none for another frame.

    Raises:
        UnreadableSizeError: A keyframe is cut or has no start code.
    """
    if not frame or frame[0] & 1:
        return []
    width, height = (_whole(pixels) for pixels in shown_size_of_vp8(frame))
    return [PictureSize(width, height, 3, width * height * 3 // 2)]


def shown_size_of_vp8(frame: bytes) -> tuple[int, int]:
    """Width and height in pixels that a VP8 keyframe declares.

    Raises:
        UnreadableSizeError: It is cut or has no start code.
    """
    if len(frame) < 10 or frame[3:6] != b"\x9d\x01\x2a":
        raise UnreadableSizeError("a VP8 keyframe without its header")
    width, height = (int.from_bytes(frame[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    return width, height
