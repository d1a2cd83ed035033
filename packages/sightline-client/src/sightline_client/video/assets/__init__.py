"""The demo clip, and how tests read the frame number that is drawn in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

COUNTER_BITS: Final = 10
COUNTER_BLOCK: Final = 32
COUNTER_LEFT: Final = 880
COUNTER_TOP: Final = 660
CLIP_WIDTH: Final = 1280
CLIP_RATE: Final = 30
CLIP_FRAMES: Final = 240


def clip_path() -> Path:
    """A short H.264 clip: 1280x720, 30 frames a second, 8 s, one keyframe a second, no B-frames."""
    return Path(__file__).parent / "clip.mp4"


def read_counter(luma_at: Callable[[int, int], float], width: int) -> int | None:
    """The frame number drawn in a picture of the clip.

    Args:
        luma_at: Brightness 0..255 at (x, y).
        width: Of the picture; the clip's or smaller.

    Returns:
        None if a block is neither clearly black nor clearly white: the picture is damaged.
    """
    scale = width / CLIP_WIDTH
    value = 0
    for bit in range(COUNTER_BITS):
        x = (COUNTER_LEFT + (bit + 0.5) * COUNTER_BLOCK) * scale
        luma = luma_at(int(x), int((COUNTER_TOP + COUNTER_BLOCK / 2) * scale))
        if 70 < luma < 180:
            return None
        value = value << 1 | (luma >= 180)
    return value
