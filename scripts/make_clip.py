# ruff: noqa: T201  # a script for people
"""Render the demo clip: `python scripts/make_clip.py sightline/video/assets/clip.mp4`.

A synthetic street seen from a slowly panning drone: houses, cars, a sun, a clock with hands, and the frame
number twice, as digits to read and as a row of blocks for tests (`sightline.video.assets.read_counter`).
720p30, H.264 constrained baseline, one keyframe a second, no B-frames: the format that every WebRTC client accepts.
"""

import math
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from sightline.video.assets import COUNTER_BITS, COUNTER_BLOCK, COUNTER_LEFT, COUNTER_TOP

WIDTH, HEIGHT, RATE, SECONDS = 1280, 720, 30, 8
SEGMENTS = {
    "0": "abcdef", "1": "bc", "2": "abged", "3": "abgcd", "4": "fgbc",
    "5": "afgcd", "6": "afgedc", "7": "abc", "8": "abcdefg", "9": "abcdfg",
}  # fmt: skip
BOXES = {
    "a": (0, 0, 1, 0.14), "b": (0.82, 0, 0.18, 0.5), "c": (0.82, 0.5, 0.18, 0.5), "d": (0, 0.86, 1, 0.14),
    "e": (0, 0.5, 0.18, 0.5), "f": (0, 0, 0.18, 0.5), "g": (0, 0.43, 1, 0.14),
}  # fmt: skip


def box(image, x, y, width, height, colour):
    """Fill a rectangle, clipped to the picture."""
    left, top = max(0, round(x)), max(0, round(y))
    image[top : max(top, round(y + height)), left : max(left, round(x + width))] = colour


def disc(image, x, y, radius, colour):
    """Draw a filled circle."""
    top, left = max(0, int(y - radius)), max(0, int(x - radius))
    rows, columns = np.ogrid[top : min(HEIGHT, int(y + radius) + 1), left : min(WIDTH, int(x + radius) + 1)]
    mask = (columns - x) ** 2 + (rows - y) ** 2 <= radius**2
    image[top : top + mask.shape[0], left : left + mask.shape[1]][mask] = colour


def digits(image, text, x, y, size, colour):
    """Write digits as seven segments."""
    for index, digit in enumerate(text):
        for segment in SEGMENTS[digit]:
            dx, dy, width, height = BOXES[segment]
            wide, high = size, size * 1.8
            box(image, x + index * size * 1.35 + dx * wide, y + dy * high, width * wide, height * high, colour)


def backdrop():
    """Draw a strip of sky and houses, twice as wide as the picture and seamless."""
    rng = np.random.default_rng(7)
    strip = np.zeros((HEIGHT, 2 * WIDTH, 3), np.uint8)
    rows = np.linspace(0, 1, 420)[:, None]
    strip[:420] = (np.array([92, 150, 215]) * (1 - rows) + np.array([196, 214, 228]) * rows)[:, None, :]
    strip[420:] = (74, 78, 82)
    strip[420:452] = (120, 124, 120)
    x = 0
    while x < 2 * WIDTH:
        width, height = int(rng.integers(90, 210)), int(rng.integers(130, 330))
        width = min(width, 2 * WIDTH - x)
        colour = rng.integers(70, 190, 3)
        box(strip, x, 420 - height, width - 6, height, colour)
        for wx in range(x + 12, x + width - 26, 30):
            for wy in range(420 - height + 14, 400, 36):
                box(strip, wx, wy, 14, 20, (238, 220, 140) if rng.random() < 0.45 else (48, 54, 66))
        x += width
    return strip


def render(strip, index):
    """Render one picture of the clip."""
    t = index / RATE
    pan = int(index * WIDTH / (RATE * SECONDS)) * 2 % (2 * WIDTH)
    image = np.roll(strip, -pan, axis=1)[:, :WIDTH].copy()
    disc(image, 160 + 40 * math.sin(t), 110, 46, (252, 226, 120))
    for lane in range(14):
        box(image, (lane * 110 - index * 9) % (WIDTH + 110) - 110, 560, 60, 8, (222, 222, 210))
    for number, (speed, y, colour) in enumerate(
        [(11, 476, (200, 40, 44)), (-8, 596, (40, 90, 200)), (15, 494, (240, 240, 240)), (-13, 618, (30, 150, 80))]
    ):
        x = (number * 370 + speed * index) % (WIDTH + 240) - 240
        box(image, x, y, 170, 44, colour)
        box(image, x + 34, y - 28, 96, 30, tuple(int(part * 0.7) for part in colour))
        disc(image, x + 38, y + 44, 17, (20, 20, 22))
        disc(image, x + 132, y + 44, 17, (20, 20, 22))
    disc(image, 1130, 130, 82, (245, 245, 240))
    disc(image, 1130, 130, 76, (30, 34, 44))
    for length, turn, thick in ((46, t / SECONDS, 6), (66, t, 4)):
        for step in range(length):
            angle = 2 * math.pi * turn - math.pi / 2
            disc(image, 1130 + step * math.cos(angle), 130 + step * math.sin(angle), thick, (255, 170, 60))
    box(image, 24, 640, 330, 66, (16, 16, 18))
    digits(image, f"{index:05d}", 36, 650, 26, (255, 220, 90))
    box(
        image, COUNTER_LEFT - 8, COUNTER_TOP - 8, COUNTER_BITS * COUNTER_BLOCK + 16, COUNTER_BLOCK + 16, (128, 128, 128)
    )
    for bit in range(COUNTER_BITS):
        colour = (250, 250, 250) if index >> (COUNTER_BITS - 1 - bit) & 1 else (8, 8, 8)
        box(image, COUNTER_LEFT + bit * COUNTER_BLOCK, COUNTER_TOP, COUNTER_BLOCK, COUNTER_BLOCK, colour)
    return image


def main(path: str, kbit: int = 0) -> None:
    """Render and encode. `kbit` sets a fixed bitrate and adds grain (for benchmarks), else the quality is fixed."""
    target = Path(path)
    grain = np.random.default_rng(1).integers(0, 14, (HEIGHT + 64, WIDTH + 64, 1), np.uint8)
    with av.open(str(target), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.time_base = Fraction(1, RATE)
        stream.codec_context.gop_size = RATE
        stream.codec_context.options = {
            "profile": "baseline", "level": "3.1", "preset": "slow" if not kbit else "fast",
            **({"crf": "27"} if not kbit else {"b": f"{kbit}k"}),
            "maxrate": f"{kbit or 1400}k", "bufsize": f"{kbit or 1400}k",
            "x264-params": f"keyint={RATE}:min-keyint={RATE}:scenecut=0:bframes=0",
        }  # fmt: skip
        strip = backdrop()
        for index in range(RATE * SECONDS):
            image = render(strip, index)
            if kbit:
                dx, dy = index * 37 % 64, index * 23 % 64
                image = np.clip(image.astype(np.int16) + grain[dy : dy + HEIGHT, dx : dx + WIDTH] - 7, 0, 255).astype(
                    np.uint8
                )
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
