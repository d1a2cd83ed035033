"""Chromium publishes simulcast: the server shows the highest layer that arrives, to each viewer the one that its link
carries."""

from pathlib import Path

import pytest
import structlog
import trio

from sightline.ports.video import Frame, FrameQuery
from tests.groups import rest_at_night
from tests.video.interop.browser import Page, a_browser
from tests.video.interop.test_chromium import watch
from tests.video.support.harness import Rig, a_frame, a_rig, a_session_id
from tests.video.support.lossy import LossyLink
from tests.video.support.shaped import ShapedLink

NARROW_BPS, WIDE_BPS = 300_000, 20_000_000
MOVING_FRAMES = 100
log = structlog.get_logger()


async def frames_until(rig: Rig, ref: str, width: int) -> Frame:
    """Poll until a frame has this width."""
    frame = await a_frame(rig.backend, ref)
    with trio.fail_after(90):
        while frame.width != width:
            reply = await rig.backend.frame(ref, FrameQuery(after=frame.sequence, wait_ms=5000))
            frame = reply if isinstance(reply, Frame) else frame
    return frame


async def picture_until(page: Page, *widths: int, within_s: float = 90) -> int:
    """Wait until the viewer shows one of these widths, and frames of it go on; gives the width."""
    seen = await watch(page, frames=1)
    with trio.fail_after(within_s):
        while True:
            later = await watch(page, frames=seen["frames"] + (20 if seen["width"] in widths else 1))
            if seen["width"] == later["width"] in widths:
                return int(later["width"])
            seen = later


@pytest.mark.parametrize("codec", rest_at_night(["video/VP8", "video/H264"], gate=1))
async def test_of_three_layers_with_the_lowest_first_the_highest_that_arrives_is_shown(client_script: Path, codec: str):
    async with a_rig() as rig, a_browser(client_script) as (browser, url):
        made = await rig.backend.create_input(a_session_id())
        publisher, viewer = await browser.open(url), await browser.open(url)
        assert await publisher.run(f"publishLayers({made.whip_url!r}, {codec!r})") == ["q", "h", "f"]
        assert (await frames_until(rig, made.ref, 1280)).height == 720
        await viewer.run(f"playPlain({made.whep_url!r})")
        await picture_until(viewer, 1280)
        await publisher.run("switchLayer('f', false)")
        assert (await frames_until(rig, made.ref, 640)).height == 360
        await picture_until(viewer, 640)
        await publisher.run("switchLayer('f', true)")
        await frames_until(rig, made.ref, 1280)
        await picture_until(viewer, 1280)
        assert publisher.errors == viewer.errors == []


@pytest.mark.alone
@pytest.mark.parametrize("codec", rest_at_night(["video/VP8", "video/H264"], gate=1))
async def test_each_viewer_gets_the_layer_that_its_link_carries(client_script: Path, codec: str):
    link = ShapedLink(rate_bps=NARROW_BPS, queue_max_s=0.3, shapes_uplink=False)
    links: dict[str, LossyLink] = {}
    async with a_rig(links=links) as rig, a_browser(client_script) as (browser, url):
        made = await rig.backend.create_input(a_session_id())
        publisher, wide, narrow = [await browser.open(url) for _ in range(3)]
        await publisher.run(f"publishLayers({made.whip_url!r}, {codec!r})")
        await frames_until(rig, made.ref, 1280)
        await wide.run(f"playPlain({made.whep_url!r})")
        await picture_until(wide, 1280)
        links["whep"] = link
        await narrow.run(f"playPlain({made.whep_url!r})")
        began = trio.current_time()
        width = await picture_until(narrow, 320, 640)
        fell_s = trio.current_time() - began
        before = (await narrow.run("window.stats()"))["inbound-rtp video"]
        await watch(
            narrow, frames=(await narrow.run("watched()"))["frames"] + MOVING_FRAMES, within_s=MOVING_FRAMES / 10
        )
        after = (await narrow.run("window.stats()"))["inbound-rtp video"]
        assert (await narrow.run("watched()"))["width"] < 1280
        await picture_until(wide, 1280)
        frame = await a_frame(rig.backend, made.ref)
        assert (frame.width, frame.height) == (1280, 720)
        link.rate_bps = WIDE_BPS
        began = trio.current_time()
        await picture_until(narrow, 1280, within_s=120)
        log.info(
            "layers_measured",
            codec=codec,
            width=width,
            fell_after_s=round(fell_s, 1),
            rose_after_s=round(trio.current_time() - began, 1),
            decoded_per_s=round(
                (after["framesDecoded"] - before["framesDecoded"])
                / ((after["timestamp"] - before["timestamp"]) / 1000),
                1,
            ),
            frozen_s=after.get("totalFreezesDuration"),
            dropped=link.dropped,
        )
        assert publisher.errors == wide.errors == narrow.errors == []
