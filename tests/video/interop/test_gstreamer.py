"""GStreamer's WebRTC stack publishes and plays."""

import json
import subprocess
from pathlib import Path
from typing import Any

import simplejpeg
import trio

from sightline.ports.video import MediaKind
from tests.video.support.harness import a_frame, a_rig, a_session_id, next_frame, publishing

SCRIPT = Path(__file__).with_name("gst_peer.py")


async def gstreamer(mode: str, url: str, seconds: float) -> dict[str, Any]:
    """Run the GStreamer peer until it exits."""
    command = ["/usr/bin/python3", str(SCRIPT), mode, url, str(seconds)]
    with trio.fail_after(seconds + 20):
        result = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    return json.loads(result.stdout)


async def test_gstreamer_publishes_for_ten_seconds():
    async with a_rig() as rig, trio.open_nursery() as nursery:
        made = await rig.backend.create_input(a_session_id())
        report: dict[str, Any] = {}

        async def publish() -> None:
            report.update(await gstreamer("publish", made.whip_url, 10))

        nursery.start_soon(publish)
        await rig.heard(MediaKind.FRAMES)
        frame = await a_frame(rig.backend, made.ref)
        assert (frame.width, frame.height) == (640, 360)
        assert simplejpeg.decode_jpeg(frame.jpeg).max() > 200, "the ball is white"
        for _ in range(20):
            frame = await next_frame(rig.backend, made.ref, frame.sequence)
        await rig.heard(MediaKind.DISCONNECTED)
        assert report["state"] == "connected"


async def test_gstreamer_plays_for_ten_seconds():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            report = await gstreamer("play", made.whep_url, 10)
    assert report["frames"] > 60, report


def test_the_system_has_the_bindings():
    subprocess.run(["/usr/bin/python3", "-c", "import gi; gi.require_version('GstWebRTC', '1.0')"], check=True)
