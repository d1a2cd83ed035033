"""When a NAT changes the mapping of a publisher or viewer, what the server sends goes to the new address."""

import trio

from sightline.ports.video import MediaKind
from tests.video.support.harness import a_frame, a_rig, a_session_id, play_json, publishing
from tests.video.support.lossy import LossyLink
from tests.video.test_ffmpeg import CONSENT_EXPIRES_S


async def test_feedback_follows_a_publisher_whose_nat_rebinds():
    link = LossyLink()
    async with a_rig(links={"whip": link}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            old_ports = link.rebind()
            heard = len(rig.events)
            with trio.fail_after(CONSENT_EXPIRES_S):
                while not set(link.feedback) - old_ports:
                    await rig.heard(MediaKind.FRAMES, after=heard)
                    heard = len(rig.events)
            await trio.sleep(CONSENT_EXPIRES_S)  # the time after which a peer without consent is dropped
            await rig.heard(MediaKind.FRAMES, after=len(rig.events), within_s=120)
        kinds = [event.kind for event in rig.events]
    assert kinds.count(MediaKind.CONNECTED) == 1, "the publisher did not have to come back"
    assert MediaKind.NO_RTP not in kinds


async def test_media_follows_a_viewer_whose_nat_rebinds():
    link = LossyLink()
    async with a_rig(links={"whep": link}) as rig, trio.open_nursery() as nursery:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            nursery.start_soon(play_json, made.whep_url, 120)
            with trio.fail_after(120):
                while not link.feedback:  # noqa: ASYNC110  # the proxy has no event
                    await trio.sleep(0.05)
            old_ports = link.rebind()
            # The stock client's checks nominate nothing any more: the server follows its reports.
            with trio.fail_after(120):
                while not set(link.feedback) - old_ports:  # noqa: ASYNC110  # the proxy has no event
                    await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
