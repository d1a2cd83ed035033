"""Chromium plays over a link slower than the stream: it keeps receiving keyframes."""

from pathlib import Path

import pytest
import structlog
import trio

from tests.video.interop.browser import a_browser
from tests.video.support.harness import a_frame, a_rig, a_session_id, publishing
from tests.video.support.shaped import ShapedLink

pytestmark = pytest.mark.alone

SETTLE_S, WATCH_S = 15.0, 30.0
log = structlog.get_logger()


async def test_a_viewer_below_the_streams_bitrate_sees_keyframes(client_script: Path):
    link = ShapedLink(rate_bps=300_000, queue_max_s=0.3, shapes_uplink=False)
    async with a_rig(links={"whep": link}) as rig, a_browser(client_script) as (browser, url):
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            viewer = await browser.open(url)
            await viewer.run(f"playPlain({made.whep_url!r})", within_s=SETTLE_S + WATCH_S)
            await trio.sleep(SETTLE_S)  # time to detect that the link is too slow
            before = (await viewer.run("window.stats()"))["inbound-rtp video"]
            await trio.sleep(WATCH_S)  # the pictures shown in this time are measured
            after = (await viewer.run("window.stats()"))["inbound-rtp video"]
    decoded = after["framesDecoded"] - before["framesDecoded"]
    log.info("slow_viewer_measured", decoded=decoded, freezes=after.get("totalFreezesDuration"), dropped=link.dropped)
    assert link.dropped > 50, "the stream does not fit the link"
    assert decoded >= WATCH_S / 8, f"{decoded} pictures in {WATCH_S} s"
