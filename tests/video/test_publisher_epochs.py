"""One publisher's picture is never shown as another's, and a poll says when no picture arrives."""

from pathlib import Path

import trio

from sightline.ports.video import Frame, FrameMissing, FrameMissingReason, FrameQuery, MediaKind, PictureState
from tests.video.pictures.test_formats import a_clip
from tests.video.support.harness import Rig, a_frame, a_rig, a_session_id, next_frame, publishing
from tests.video.support.lossy import LossyLink

ANY_AGE = FrameQuery(max_age_ms=10_000)


async def test_after_a_delete_the_old_pictures_are_gone_at_once_and_the_next_publisher_has_a_greater_epoch():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url) as publisher:
            old = await a_frame(rig.backend, made.ref)
            assert (await next_frame(rig.backend, made.ref, old.sequence)).publisher_epoch == old.publisher_epoch
            publisher.terminate()
            await publisher.wait()  # it has sent its DELETE
            gone = await rig.backend.frame(made.ref, ANY_AGE)
            assert isinstance(gone, FrameMissing)
            assert gone.reason is FrameMissingReason.NOT_DECODED
        async with publishing(made.whip_url):
            assert (await a_frame(rig.backend, made.ref)).publisher_epoch > old.publisher_epoch


async def test_after_a_takeover_each_picture_has_the_epoch_of_its_publisher(tmp_path: Path):
    small = tmp_path / "small.mp4"
    a_clip(small, "libx264", {"profile": "baseline"}, frames=60)
    seen: list[Frame] = []
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url), trio.open_nursery() as nursery:
            first = await a_frame(rig.backend, made.ref)
            small_seen = trio.Event()
            nursery.start_soon(poll, rig, made.ref, seen, small_seen)
            async with publishing(made.whip_url, path=str(small)):
                with trio.fail_after(120):
                    await small_seen.wait()
    epochs = [frame.publisher_epoch for frame in seen]
    assert epochs == sorted(epochs)
    assert {frame.width for frame in seen if frame.publisher_epoch == first.publisher_epoch} <= {1280}
    assert {frame.width for frame in seen if frame.publisher_epoch > first.publisher_epoch} == {320}


async def poll(rig: Rig, ref: str, seen: list[Frame], small_seen: trio.Event) -> None:
    """Poll until ten frames of the small clip were seen."""
    while sum(frame.width == 320 for frame in seen) < 10:
        reply = await rig.backend.frame(ref, ANY_AGE)
        if isinstance(reply, Frame):
            seen.append(reply)
        await trio.sleep(0.01)  # interval of a poller
    small_seen.set()


async def test_a_poll_says_that_the_picture_is_lost_from_the_media_event_until_pictures_arrive():
    link = LossyLink()
    async with a_rig(links={"whip": link}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            assert (await a_frame(rig.backend, made.ref)).state is PictureState.LIVE
            link.loss = 1.0
            await rig.heard(MediaKind.NO_RTP)
            last = await rig.backend.frame(made.ref, ANY_AGE)
            assert isinstance(last, Frame)
            assert last.state is PictureState.LOST
            none_newer = await rig.backend.frame(made.ref, FrameQuery(after=last.sequence, max_age_ms=10_000))
            assert isinstance(none_newer, FrameMissing)
            assert (none_newer.reason, none_newer.is_lost) == (FrameMissingReason.NOT_NEWER, True)
            link.loss = 0.0
            newer = await a_frame(rig.backend, made.ref, FrameQuery(after=last.sequence, wait_ms=10_000))
            assert newer.state is PictureState.LIVE
            assert newer.publisher_epoch == last.publisher_epoch, "the same connection"


async def test_the_last_picture_of_a_publisher_that_vanished_is_lost():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url) as publisher:
            await a_frame(rig.backend, made.ref)
            publisher.kill()
            await publisher.wait()
            await rig.heard(MediaKind.NO_RTP)
            last = await rig.backend.frame(made.ref, ANY_AGE)
            assert isinstance(last, Frame)
            assert last.state is PictureState.LOST
