"""Publishing over a bad network: no damaged picture is served, and pictures resume within a second.

The frame number drawn in the clip is read from every served JPEG, and the picture is compared with that frame of
the file. Loss, jitter and reordering come from a seeded UDP proxy.
"""

import itertools
from dataclasses import dataclass

import av
import numpy as np
import pytest
import simplejpeg
import structlog
import trio

from sightline.ports.video import Frame, FrameMissing, FrameMissingReason, FrameQuery
from sightline_client.video.assets import CLIP_FRAMES, CLIP_RATE, clip_path
from tests.groups import rest_at_night
from tests.video.support.harness import a_frame, a_rig, a_session_id, counter_of, play_json, publishing
from tests.video.support.lossy import LossyLink

WATCH_S = 5.0
WIDTH = 320
MAX_AGE_MS = 2_000
"""Age that our clients ask for."""
log = structlog.get_logger()


@dataclass
class BurstyLink(LossyLink):
    """Loses packets for `burst_s` at the end of every `every_s`."""

    every_s: float = 8.0
    burst_s: float = 3.0

    @property
    def is_in_burst(self) -> bool:
        return trio.current_time() % self.every_s >= self.every_s - self.burst_s

    def fate(self) -> float | None:
        return super().fate() if self.is_in_burst else 0.0


@pytest.fixture(scope="module")
def clip_pictures() -> list[np.ndarray]:
    """Return every frame of the clip in the size that these tests poll."""
    with av.open(str(clip_path())) as container:
        return [
            frame.reformat(width=WIDTH, height=180, format="rgb24").to_ndarray() for frame in container.decode(video=0)
        ]


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    error = np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


@pytest.mark.parametrize(("loss", "jitter_ms", "seed"), rest_at_night([(0.05, 50.0, 14), (0.02, 50.0, 11)], gate=1))
async def test_no_damaged_picture_is_served_and_pictures_come_back_within_two_seconds(
    clip_pictures: list[np.ndarray], loss: float, jitter_ms: float, seed: int
):
    link = LossyLink(loss=loss, jitter_ms=jitter_ms, seed=seed)
    async with a_rig(links={"whip": link}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            frame = await a_frame(rig.backend, made.ref)
            served: list[Frame] = []
            ends = trio.current_time() + WATCH_S
            while trio.current_time() < ends:
                reply = await rig.backend.frame(
                    made.ref, FrameQuery(after=frame.sequence, wait_ms=3000, width=WIDTH, quality=90)
                )
                assert isinstance(reply, Frame), reply
                frame = reply
                served.append(frame)
    assert link.dropped >= 4, "the link did harm"
    assert len(served) > WATCH_S * 4, f"only {len(served)} frames"
    numbers: list[int] = []
    for one in served:
        number = counter_of(one.jpeg)
        assert number is not None, "the counter is damaged"
        numbers.append(number)
        likeness = psnr(simplejpeg.decode_jpeg(one.jpeg), clip_pictures[number])
        assert likeness > 27, f"frame {number} differs from the clip: {likeness:.1f} dB"
    # Measured on the clip's timeline. A worker that is late by 0.3 s drops pictures up to the next keyframe too.
    longest = max((after - before) % CLIP_FRAMES for before, after in itertools.pairwise(numbers)) / CLIP_RATE
    assert longest <= 2.0, f"the longest time without a picture: {longest:.2f} s"


async def test_a_viewer_behind_loss_keeps_its_picture():
    async with a_rig(links={"whep": LossyLink(loss=0.03, jitter_ms=10.0, seed=21)}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            watched = await play_json(made.whep_url, 3.0)
    assert watched["frames"] > 5, watched


async def test_in_bursts_of_loss_no_old_picture_is_answered_as_the_present_one():
    link = BurstyLink(loss=0.3, seed=31)
    replies: list[tuple[bool, Frame | FrameMissing]] = []
    async with a_rig(links={"whip": link}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            ends = trio.current_time() + 2 * link.every_s
            while trio.current_time() < ends:
                is_in_burst = link.is_in_burst
                replies.append((is_in_burst, await rig.backend.frame(made.ref, FrameQuery(max_age_ms=MAX_AGE_MS))))
                await trio.sleep(0.05)  # interval of a poller
    ages = sorted(reply.age_ms for _, reply in replies if isinstance(reply, Frame))
    missing = [reply.reason for _, reply in replies if isinstance(reply, FrameMissing)]
    between = [reply for is_in_burst, reply in replies if not is_in_burst]
    log.info(
        "bursts_measured",
        dropped=link.dropped,
        oldest_ms=ages[-1],
        p95_ms=ages[len(ages) * 95 // 100],
        missing=len(missing),
    )
    assert link.dropped > 100, "the link did harm"
    assert ages[-1] <= MAX_AGE_MS + 100
    assert set(missing) <= {FrameMissingReason.STALE}
    assert sum(isinstance(reply, Frame) for reply in between) > 0.8 * len(between)
