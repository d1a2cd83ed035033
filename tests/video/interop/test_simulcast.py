"""Chromium publishes simulcast: the server shows the highest layer that arrives."""

from pathlib import Path

import pytest
import trio

from sightline.ports.video import Frame, FrameQuery
from tests.video.interop.browser import Page, a_browser
from tests.video.interop.test_chromium import watch
from tests.video.support.harness import Rig, a_frame, a_rig, a_session_id


async def frames_until(rig: Rig, ref: str, width: int) -> Frame:
    """Poll until a frame has this width."""
    frame = await a_frame(rig.backend, ref)
    with trio.fail_after(40):
        while frame.width != width:
            reply = await rig.backend.frame(ref, FrameQuery(after=frame.sequence, wait_ms=5000))
            frame = reply if isinstance(reply, Frame) else frame
    return frame


async def picture_until(page: Page, width: int) -> None:
    """Wait until the viewer shows this width, and frames of it go on."""
    seen = await watch(page, frames=1)
    with trio.fail_after(20):
        while seen["width"] != width:
            seen = await watch(page, frames=seen["frames"] + 1)
    assert (await watch(page, frames=seen["frames"] + 20))["width"] == width


@pytest.mark.parametrize("codec", ["video/VP8", "video/H264"])
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
