"""werift, WebRTC in TypeScript for Node, publishes and plays."""

import json
from pathlib import Path
from typing import Any

import trio

from sightline.ports.video import MediaKind
from tests.video.support.harness import a_frame, a_rig, a_session_id, counter_of, next_frame, publishing

CLIENT = Path(__file__).parents[3] / ".interop" / "video" / "werift.mjs"


async def werift(*arguments: str | float) -> dict[str, Any]:
    """Run the werift client until it exits."""
    assert CLIENT.exists(), "run scripts/interop_video.sh"
    with trio.fail_after(90):
        result = await trio.run_process(["node", str(CLIENT), *map(str, arguments)], capture_stdout=True)
    return json.loads(result.stdout)


async def test_werift_publishes_and_its_pictures_are_decoded(annex_b: Path):
    async with a_rig() as rig, trio.open_nursery() as nursery:
        made = await rig.backend.create_input(a_session_id())
        report: dict[str, Any] = {}

        async def publish() -> None:
            report.update(await werift("publish", made.whip_url, annex_b, 4))

        nursery.start_soon(publish)
        frame = await a_frame(rig.backend, made.ref)
        for _ in range(20):
            frame = await next_frame(rig.backend, made.ref, frame.sequence)
        assert counter_of(frame.jpeg) is not None
        await rig.heard(MediaKind.DISCONNECTED)
        kinds = [event.kind for event in rig.events]
    assert (report["state"], report["frames"], report["deleted"]) == ("connected", 120, 200)
    assert report["feedback"] > 0
    assert kinds.count(MediaKind.CONNECTED) == 1
    assert MediaKind.NO_RTP not in kinds


async def test_werift_plays_every_packet():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            report = await werift("play", made.whep_url, 4)
    assert report["frames"] > 20, report
    assert report["keyframes"] >= 1, report
    assert (report["gaps"], report["state"]) == (0, "connected"), report


async def test_an_offer_by_werift_of_a_codec_without_a_parser_is_refused_with_the_reason():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        for codec in ("VP9", "AV1"):
            reply = await werift("offer", made.whip_url, codec)
            assert reply["status"] == 422
            assert f"not only {codec}" in reply["body"]
