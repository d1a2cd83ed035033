"""pion, the WebRTC stack of most Go programs, publishes and plays."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from sightline.ports.video import MediaKind
from tests.video.support.harness import a_frame, a_rig, a_session_id, next_frame, publishing

pytestmark = pytest.mark.alone

PEER = Path(__file__).parents[3] / ".interop" / "pion" / "pion"


async def pion(*arguments: str | float, seconds: float) -> dict[str, Any]:
    """Run the pion client until it exits."""
    assert PEER.exists(), "run scripts/interop_pion.sh"
    command = [str(PEER), *map(str, arguments), str(seconds)]
    with trio.fail_after(seconds + 25):
        result = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    return json.loads(result.stdout)


async def test_pion_publishes_for_ten_seconds_without_a_drop(annex_b: Path):
    async with a_rig() as rig, trio.open_nursery() as nursery:
        made = await rig.backend.create_input(a_session_id())
        report: dict[str, Any] = {}

        async def publish() -> None:
            report.update(await pion("publish", made.whip_url, annex_b, seconds=10))

        nursery.start_soon(publish)
        await rig.heard(MediaKind.FRAMES)
        frame = await a_frame(rig.backend, made.ref)
        for _ in range(15):
            frame = await next_frame(rig.backend, made.ref, frame.sequence)
        await rig.heard(MediaKind.DISCONNECTED)
        kinds = [event.kind for event in rig.events]
    assert report["state"] == "connected"
    assert report["feedback"] > 20, "congestion feedback is sent several times a second"
    assert (kinds.count(MediaKind.CONNECTED), kinds.count(MediaKind.DISCONNECTED)) == (1, 1)
    assert MediaKind.NO_RTP not in kinds


async def test_pion_plays_every_frame_without_a_gap():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            report = await pion("play", made.whep_url, seconds=8)
    assert report["frames"] > 40, report
    assert report["keyframes"] >= 1, report
    assert (report["gaps"], report["damaged"]) == (0, 0), report
