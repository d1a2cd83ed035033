"""When a NAT changes a publisher's mapping, media continues and feedback goes to the new address."""

import trio

from sightline.ports.video import MediaKind
from tests.video.support.harness import a_frame, a_rig, a_session_id, publishing
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
            await rig.heard(MediaKind.FRAMES, after=len(rig.events), within_s=20)
        kinds = [event.kind for event in rig.events]
    assert kinds.count(MediaKind.CONNECTED) == 1, "the publisher did not have to come back"
    assert MediaKind.NO_RTP not in kinds
