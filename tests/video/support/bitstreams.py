"""H.264 written bit by bit: any declared size and number of references at a few bytes a frame, also untrue ones."""

from collections.abc import Iterator

START = b"\0\0\0\1"
GREY_BLOCK = "00100111"
"""An intra macroblock of one byte: I_16x16, DC prediction, no residual."""


def ue(number: int) -> str:
    """An unsigned Exp-Golomb number."""
    text = f"{number + 1:b}"
    return "0" * (len(text) - 1) + text


def nal(header: int, bits: str) -> bytes:
    """A NAL unit: header, bits with the stop bit, escape bytes."""
    bits += "1"
    bits += "0" * (-len(bits) % 8)
    body = int(bits, 2).to_bytes(len(bits) // 8, "big")
    out, zeros = bytearray([header]), 0
    for byte in body:
        if zeros == 2 and byte <= 3:
            out.append(3)
            zeros = 0
        out.append(byte)
        zeros = zeros + 1 if byte == 0 else 0
    return bytes(out)


def an_sps(
    width: int, height: int, *, references: int = 1, shown: tuple[int, int] | None = None, identity: int = 0
) -> bytes:
    """A baseline set. `shown` crops the picture to that size."""
    bits = f"{66:08b}{0:08b}{51:08b}" + ue(identity) + ue(0) + ue(2) + ue(references) + "0"
    bits += ue(width // 16 - 1) + ue(height // 16 - 1) + "1" + "1"
    if shown is None:
        bits += "0"
    else:
        bits += "1" + ue(0) + ue((width - shown[0]) // 2) + ue(0) + ue((height - shown[1]) // 2)
    return nal(0x67, bits + "0")


def a_pps(*, sps: int = 0) -> bytes:
    """A set for CAVLC, with control of the deblocking filter."""
    return nal(0x68, ue(0) + ue(sps) + "0" + "0" + ue(0) + ue(0) + ue(0) + "0" + "00" + "1" * 3 + "1" + "0" + "0")


def a_grey_keyframe(width: int, height: int, *, blocks: int | None = None) -> bytes:
    """An IDR slice of one byte a macroblock; with `blocks`, only the first ones."""
    count = width * height // 256 if blocks is None else blocks
    header = ue(0) + ue(7) + ue(0) + f"{0:04b}" + ue(0) + "0" + "0" + "1" + ue(1)
    return nal(0x65, header + GREY_BLOCK * count)


def a_still_frame(width: int, height: int, number: int) -> bytes:
    """A P slice that skips all macroblocks, and is kept as a reference."""
    header = ue(0) + ue(5) + ue(0) + f"{number % 16:04b}" + "0" + "0" + "0" + "1" + ue(1)
    return nal(0x61, header + ue(width * height // 256))


def a_group(width: int, height: int, frames: int, **sps: object) -> Iterator[list[bytes]]:
    """NAL units of a keyframe with its sets and of the still frames after it."""
    yield [an_sps(width, height, **sps), a_pps(), a_grey_keyframe(width, height)]  # type: ignore[arg-type]
    for number in range(1, frames):
        yield [a_still_frame(width, height, number)]


def annex_b(nals: list[bytes]) -> bytes:
    """The units with start codes."""
    return b"".join(START + each for each in nals)
