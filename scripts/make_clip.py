# ruff: noqa: T201  # a script for people
"""Render the demo clip, which is packages/sightline-client/src/sightline_client/video/assets/clip.mp4.

Usage: `python scripts/make_clip.py FILE`.

A synthetic street: houses, cars, a sun, a clock with hands, people who walk on the near pavement, and the frame number
twice, as digits and as a row of blocks for tests (`sightline_client.video.assets.read_counter`). The people are drawn
so that the HOG detector of OpenCV finds them (examples/people_counter.py).
720p30, H.264 constrained baseline, one keyframe a second, no B-frames: the format that every WebRTC client accepts.
"""

import math
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from sightline_client.video.assets import COUNTER_BITS, COUNTER_BLOCK, COUNTER_LEFT, COUNTER_TOP

WIDTH, HEIGHT, RATE, SECONDS = 1280, 720, 30, 8
KERB, NEAR = 300, 440  # pavement of the houses, near pavement
STEPS = 7  # pairs of steps of a person in the clip
SEGMENTS = {
    "0": "abcdef", "1": "bc", "2": "abged", "3": "abgcd", "4": "fgbc",
    "5": "afgcd", "6": "afgedc", "7": "abc", "8": "abcdefg", "9": "abcdfg",
}  # fmt: skip
SKIN = (214, 170, 140)
# Speed (whole pictures per clip, so that it loops), where it starts, feet, height, coat, trousers.
PEOPLE = (
    (1, 200, 632, 300, (58, 62, 74), (38, 42, 58)),
    (-1, 760, 640, 312, (120, 40, 48), (44, 44, 52)),
    (1, 1180, 618, 286, (36, 78, 70), (50, 48, 46)),
)
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


def limb(image, start, end, radius, colour):
    """Draw a line with round ends and smooth edges."""
    (x0, y0), (x1, y1) = start, end
    reach = radius + 2
    left, top = max(0, int(min(x0, x1) - reach)), max(0, int(min(y0, y1) - reach))
    right, bottom = min(WIDTH, int(max(x0, x1) + reach) + 1), min(HEIGHT, int(max(y0, y1) + reach) + 1)
    if left >= right or top >= bottom:
        return
    rows, columns = np.ogrid[top:bottom, left:right]
    dx, dy = x1 - x0, y1 - y0
    along = np.clip(((columns - x0) * dx + (rows - y0) * dy) / max(dx * dx + dy * dy, 1e-6), 0, 1)
    cover = np.clip(radius + 0.5 - np.hypot(columns - x0 - along * dx, rows - y0 - along * dy), 0, 1)[..., None]
    patch = image[top:bottom, left:right]
    patch[:] = (patch * (1 - cover) + np.array(colour) * cover).astype(np.uint8)


def joint(origin, length, angle):
    """Return the end of a limb that hangs from `origin`, swung by `angle`."""
    return origin[0] + length * math.sin(angle), origin[1] + length * math.cos(angle)


def person(image, x, feet, size, facing, stride, coat, trousers):
    """Draw a walker, `size` pixels tall; `stride` is the phase of the step in radians, `facing` is 1 or -1 (left)."""
    bob = 0.008 * size * math.cos(2 * stride)
    hip, shoulder = feet - 0.47 * size + bob, feet - 0.81 * size + bob
    for side, shade in ((-1, 0.72), (1, 1.0)):  # the far leg and arm first
        swing = 0.32 * side * math.sin(stride)
        legs, sleeve = ([int(part * shade) for part in colour] for colour in (trousers, coat))
        knee = joint((x + side * 0.035 * size, hip), 0.23 * size, swing)
        bend = 0.35 * max(0.0, math.cos(stride) * side)
        ankle = joint(knee, 0.22 * size, swing - facing * bend)
        limb(image, (x + side * 0.035 * size, hip), knee, 0.052 * size, legs)
        limb(image, knee, ankle, 0.036 * size, legs)
        limb(image, ankle, (ankle[0] + facing * 0.045 * size, ankle[1] + 0.01 * size), 0.024 * size, (28, 26, 26))
        if side > 0:
            for y, half, thick in ((0.05, 0.05, 0.06), (0.14, 0.045, 0.062), (0.22, 0.04, 0.062), (0.32, 0.04, 0.06)):
                line = shoulder + y * size
                limb(image, (x - half * size, line), (x + half * size, line), thick * size, coat)
            limb(image, (x, shoulder - 0.05 * size), (x, shoulder), 0.03 * size, SKIN)
            limb(image, (x, shoulder - 0.115 * size), (x, shoulder - 0.085 * size), 0.058 * size, SKIN)
            top = shoulder - 0.138 * size
            limb(image, (x - facing * 0.012 * size, top), (x + facing * 0.01 * size, top), 0.05 * size, (46, 36, 30))
        arm = (x + side * 0.085 * size, shoulder + 0.03 * size)
        elbow = joint(arm, 0.17 * size, -swing * 0.8)
        hand = joint(elbow, 0.15 * size, -swing * 0.8 + facing * 0.15)
        limb(image, arm, elbow, 0.032 * size, sleeve)
        limb(image, elbow, hand, 0.026 * size, sleeve)
        limb(image, hand, hand, 0.026 * size, SKIN)


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
    rows = np.linspace(0, 1, KERB)[:, None]
    strip[:KERB] = (np.array([92, 150, 215]) * (1 - rows) + np.array([196, 214, 228]) * rows)[:, None, :]
    strip[KERB:] = (74, 78, 82)
    strip[KERB : KERB + 14] = (120, 124, 120)
    strip[NEAR:] = (176, 174, 166)
    strip[NEAR : NEAR + 8] = (132, 132, 126)
    x = 0
    while x < 2 * WIDTH:
        width, height = int(rng.integers(90, 210)), int(rng.integers(90, 230))
        width = min(width, 2 * WIDTH - x)
        colour = rng.integers(70, 190, 3)
        box(strip, x, KERB - height, width - 6, height, colour)
        for wx in range(x + 12, x + width - 26, 30):
            for wy in range(KERB - height + 14, KERB - 20, 36):
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
        box(image, (lane * 110 - index * 9) % (WIDTH + 110) - 110, 372, 60, 6, (222, 222, 210))
    for number, (speed, y, colour) in enumerate(
        [(11, 330, (200, 40, 44)), (-8, 386, (40, 90, 200)), (15, 338, (240, 240, 240)), (-13, 392, (30, 150, 80))]
    ):
        x = (number * 370 + speed * index) % (WIDTH + 240) - 240
        box(image, x, y, 124, 30, colour)
        box(image, x + 26, y - 20, 70, 22, tuple(int(part * 0.7) for part in colour))
        disc(image, x + 28, y + 30, 12, (20, 20, 22))
        disc(image, x + 98, y + 30, 12, (20, 20, 22))
    for turns, start, feet, size, coat, trousers in PEOPLE:
        lap = WIDTH + 200
        x = (start + turns * lap * index / (RATE * SECONDS)) % lap - 100
        facing = 1 if turns > 0 else -1
        person(image, x, feet, size, facing, 2 * math.pi * STEPS * index / (RATE * SECONDS) + start, coat, trousers)
    disc(image, 1130, 130, 82, (245, 245, 240))
    disc(image, 1130, 130, 76, (30, 34, 44))
    for length, turn, thick in ((46, t / SECONDS, 6), (66, t, 4)):
        for step in range(length):
            angle = 2 * math.pi * turn - math.pi / 2
            disc(image, 1130 + step * math.cos(angle), 130 + step * math.sin(angle), thick, (255, 170, 60))
    box(image, 24, 644, 330, 66, (16, 16, 18))
    digits(image, f"{index:05d}", 36, 654, 26, (255, 220, 90))
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
            **({"crf": "29"} if not kbit else {"b": f"{kbit}k"}),
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
