"""Headless Chromium publishes and plays, by hand-written offers and by the Eyevinn clients from npm."""

from pathlib import Path
from typing import Any

import pytest
import simplejpeg
import trio

from sightline.ports.video import MediaKind
from tests.video.interop.browser import Page, a_browser
from tests.video.support.harness import a_frame, a_rig, a_session_id, next_frame, play_json, publishing


async def watch(page: Page, *, frames: int, within_s: float = 90) -> dict[str, Any]:
    """Return what the video element shows after this many frames."""
    seen: dict[str, Any] = {}
    with trio.move_on_after(within_s):
        while True:
            seen = await page.run("window.watched()")
            if seen["frames"] >= frames:
                return seen
            await trio.sleep(0.1)
    raise AssertionError(f"only {seen}; errors {page.errors}; {await page.run('window.stats()')}")


@pytest.mark.parametrize("codec", ["video/VP8", "video/H264"])
async def test_chromium_publishes_and_another_plays(client_script: Path, codec: str):
    async with a_rig() as rig, a_browser(client_script) as (browser, url):
        made = await rig.backend.create_input(a_session_id())
        publisher = await browser.open(url)
        resource = await publisher.run(f"publishPlain({made.whip_url!r}, {codec!r})")
        assert resource.startswith(made.whip_url + "/"), "Location is exposed to scripts"
        await rig.heard(MediaKind.FRAMES)
        frame = await a_frame(rig.backend, made.ref)
        picture = simplejpeg.decode_jpeg(frame.jpeg)
        assert picture.std() > 20, "the fake camera's picture, not a flat one"
        viewer = await browser.open(url)
        await viewer.run(f"playPlain({made.whep_url!r})")
        first = await watch(viewer, frames=30)
        later = await watch(viewer, frames=first["frames"] + 60)
        assert later["time"] > first["time"] + 0.5
        # The browser raises its resolution while it probes the link; the shape of the picture stays.
        assert later["width"] * frame.height == later["height"] * frame.width
        stats = await viewer.run("window.stats()")
        assert stats["inbound-rtp audio"]["packetsReceived"] > 20
        heard = await play_json(made.whep_url, 6.0)
        assert heard["frames"] > 5
        assert heard["audio_ms"] > 2_000
        assert heard["audio_peak"] > 0.05
        sent = (await publisher.run("window.stats()"))["outbound-rtp video"]
        assert frame.captured_by_rtcp or (await next_frame(rig.backend, made.ref, frame.sequence)).captured_by_rtcp
        assert publisher.errors == viewer.errors == [], (publisher.errors, viewer.errors, sent)


async def test_the_eyevinn_clients_publish_and_play(client_script: Path):
    async with a_rig() as rig, a_browser(client_script) as (browser, url):
        made = await rig.backend.create_input(a_session_id())
        publisher = await browser.open(url)
        await publisher.run(f"publishEyevinn({made.whip_url!r})")
        await rig.heard(MediaKind.FRAMES)
        viewer = await browser.open(url)
        await viewer.run(f"playEyevinn({made.whep_url!r})")
        first = await watch(viewer, frames=30)
        assert (await watch(viewer, frames=first["frames"] + 30))["time"] > first["time"]
        await publisher.run("window.whip.destroy()")
        await rig.heard(MediaKind.DISCONNECTED)
        assert publisher.errors == viewer.errors == []


async def test_chromium_plays_the_clip_at_once(client_script: Path):
    async with a_rig() as rig, a_browser(client_script) as (browser, url):
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            viewer = await browser.open(url)
            began = trio.current_time()
            await viewer.run(f"playPlain({made.whep_url!r})")
            await watch(viewer, frames=1)
            assert trio.current_time() - began < 2
            seen = await watch(viewer, frames=90)
            assert (seen["width"], seen["height"]) == (1280, 720)
            assert viewer.errors == []
