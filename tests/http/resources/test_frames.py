"""The frame endpoint as a vision agent uses it, and clips."""

import io
from fractions import Fraction

import av
import httpx
import numpy as np
import pytest
import trio
import trio.testing

from sightline.domain.value import replace
from sightline.ports.video import ClipMissing, ClipMissingReason
from sightline_client.content_credentials import PictureVerdict, verify_picture
from tests.evidence.pictures import a_picture
from tests.http.fakes import JPEG, a_clip
from tests.http.world import BERLIN, Party, World, data_of, error_of


@pytest.fixture
async def live(world: World) -> tuple[Party, Party, str]:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    return consumer, operator, session["id"]


async def test_a_frame_comes_with_all_that_is_known_of_it(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, operator, session_id = live
    data_of(await operator.beat(sequence=7, sessionId=session_id))
    world.video.show(session_id, 41)
    answer = await consumer.key.get(f"/api/v1/sessions/{session_id}/frame?width=320&quality=50&maxAgeMs=5000")
    assert answer.status_code == 200
    assert answer.content.endswith(JPEG[2:])
    assert f'sightline:sessionId="{session_id}"'.encode() in answer.content
    headers = answer.headers
    assert headers["content-type"] == "image/jpeg"
    assert headers["cache-control"] == "no-store"
    assert headers["etag"] == '"41"'
    assert headers["last-modified"].endswith("GMT")
    assert headers["x-svc-frame-sequence"] == "41"
    assert headers["x-svc-frame-captured-at"].endswith("Z")
    assert 0 <= int(headers["x-svc-frame-age-ms"]) < 5_000
    assert (headers["x-svc-frame-width"], headers["x-svc-frame-height"]) == ("320", "180")
    assert headers["x-svc-meter-state"] == "RUNNING"
    assert headers["x-svc-in-geofence"] == "true"
    place = f"{BERLIN['lat']:.6f},{BERLIN['lng']:.6f};accuracy=5;at="
    assert headers["x-svc-location"].startswith(place)
    head = await consumer.key.call("HEAD", f"/api/v1/sessions/{session_id}/frame")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", '"41"')


async def test_a_frame_names_its_publisher_and_says_when_no_newer_one_arrives(
    world: World, live: tuple[Party, Party, str]
) -> None:
    consumer, _, session_id = live
    path = f"/api/v1/sessions/{session_id}/frame"
    world.video.show(session_id, 41)
    answer = await consumer.key.get(path)
    assert (answer.headers["x-svc-publisher-epoch"], answer.headers["x-svc-frame-state"]) == ("7", "live")
    assert b'sightline:publisherEpoch="7"' in answer.content
    world.video.lose(session_id)
    assert (await consumer.key.get(path)).headers["x-svc-frame-state"] == "lost"
    none_newer = await consumer.key.get(f"{path}?after=41")
    assert (none_newer.status_code, none_newer.headers["x-svc-frame-state"]) == (304, "lost")


async def test_place_and_fence_are_unknown_before_the_first_heartbeat(
    world: World, live: tuple[Party, Party, str]
) -> None:
    consumer, _, session_id = live
    world.video.show(session_id, 1)
    headers = (await consumer.key.get(f"/api/v1/sessions/{session_id}/frame")).headers
    assert (headers["x-svc-in-geofence"], headers["x-svc-location"]) == ("unknown", "unknown")


async def test_no_frame_yet_and_a_stale_one_are_told_apart(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, _, session_id = live
    path = f"/api/v1/sessions/{session_id}/frame"
    answer = await consumer.key.get(path)
    assert error_of(answer) == (404, "FRAME_NOT_AVAILABLE", "frame:notDecoded")
    assert answer.headers["retry-after"] == "1"
    world.video.show(session_id, 1)
    world.clock.advance(2)
    assert (await consumer.key.get(path)).status_code == 200
    answer = await consumer.key.get(f"{path}?maxAgeMs=1000")
    assert error_of(answer) == (404, "FRAME_NOT_AVAILABLE", "frame:stale")
    assert answer.headers["retry-after"] == "1"


async def test_a_known_frame_is_304(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, _, session_id = live
    path = f"/api/v1/sessions/{session_id}/frame"
    world.video.show(session_id, 5)
    for tag in ('"5"', 'W/"5"', '"4", "5"', "*"):
        answer = await consumer.key.having(if_none_match=tag).get(path)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", '"5"')
        assert answer.headers["x-svc-meter-state"] == "RUNNING"
    assert (await consumer.key.having(if_none_match='"4"').get(path)).status_code == 200
    answer = await consumer.key.get(f"{path}?after=5")
    assert (answer.status_code, answer.headers["etag"]) == (304, '"5"')


async def test_waiting_gives_the_next_frame_as_soon_as_it_is_there(
    world: World, live: tuple[Party, Party, str]
) -> None:
    consumer, _, session_id = live
    path = f"/api/v1/sessions/{session_id}/frame"
    world.video.show(session_id, 5)
    answers: list[httpx.Response] = []

    async def wait() -> None:
        answers.append(await consumer.key.get(f"{path}?after=5&waitMs=10000"))

    with trio.fail_after(9):  # a call that waits to its end takes 10 s
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            world.video.show(session_id, 6)
    assert answers[0].headers["x-svc-frame-sequence"] == "6"
    assert (await consumer.key.get(f"{path}?after=6&waitMs=20")).status_code == 304


async def test_a_conditional_request_with_a_wait_waits_for_the_next_frame(
    world: World, live: tuple[Party, Party, str]
) -> None:
    consumer, _, session_id = live
    path = f"/api/v1/sessions/{session_id}/frame?waitMs="
    world.video.show(session_id, 5)
    answers: list[httpx.Response] = []

    async def wait() -> None:
        answers.append(await consumer.key.get(f"{path}10000", headers={"if-none-match": 'W/"4", "5"'}))

    with trio.fail_after(9):  # a call that waits to its end takes 10 s
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert answers == [], "it waits"
            world.video.show(session_id, 6)
    assert (answers[0].status_code, answers[0].headers["x-svc-frame-sequence"]) == (200, "6")
    assert (await consumer.key.get(f"{path}20", headers={"if-none-match": '"6"'})).status_code == 304
    assert (await consumer.key.get(f"{path}20", headers={"if-none-match": '"x"'})).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "width=15",
        "width=1921",
        "quality=0",
        "quality=96",
        "maxAgeMs=249",
        "maxAgeMs=10001",
        "waitMs=10001",
        "waitMs=-1",
        "after=x",
    ],
)
async def test_a_parameter_out_of_range_is_named(world: World, live: tuple[Party, Party, str], query: str) -> None:
    consumer, _, session_id = live
    answer = await consumer.key.get(f"/api/v1/sessions/{session_id}/frame?{query}")
    assert error_of(answer) == (400, "INVALID_INPUT", f"frame:{query.partition('=')[0]}")


async def test_frames_are_for_the_parties_of_a_live_session(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, operator, session_id = live
    path = f"/api/v1/sessions/{session_id}/frame"
    world.video.show(session_id, 1)
    stranger = await world.party("CONSUMER", "SUPPLIER")
    refused = await stranger.key.get(path)
    assert error_of(refused) == (403, "NOT_AUTHORIZED", "session:workspaceMismatch")
    assert (await operator.key.get(path)).status_code == 200
    world.video.is_down = True
    assert error_of(await consumer.key.get(path))[:2] == (503, "VIDEO_ERROR")
    data_of(await consumer.key.post(f"/api/v1/sessions/{session_id}/end"))
    assert error_of(await consumer.key.get(path))[:2] == (409, "INVALID_STATE")


async def test_the_stream_sends_each_frame_once_until_the_session_ends(
    world: World, live: tuple[Party, Party, str]
) -> None:
    consumer, _, session_id = live
    path = f"/api/v1/sessions/{session_id}/frames?fps=30"
    world.video.show(session_id, 1)
    received = b""
    with trio.fail_after(60):
        async with world.http.stream("GET", path, headers=consumer.key.headers) as answer:
            assert answer.headers["content-type"] == "multipart/x-mixed-replace; boundary=sightline-frame"
            async for chunk in answer.aiter_raw():
                received += chunk
                if received.count(b"\r\n\r\n") == 1 and b"x-svc-frame-sequence: 1\r\n" in received:
                    world.video.show(session_id, 2)
                if b"x-svc-frame-sequence: 2\r\n" in received and b"--sightline-frame--" not in received:
                    await consumer.key.post(f"/api/v1/sessions/{session_id}/end")
    assert received.count(b"--sightline-frame\r\n") == 2
    assert received.count(JPEG[2:]) == 2
    assert received.endswith(b"--sightline-frame--\r\n")


async def test_the_stream_goes_on_after_an_outage_of_the_video_engine(
    world: World, live: tuple[Party, Party, str]
) -> None:
    consumer, _, session_id = live
    world.video.is_down = True

    async def repair() -> None:
        await world.video.refused.wait()
        world.video.is_down = False
        world.video.show(session_id, 1)

    path = f"/api/v1/sessions/{session_id}/frames"
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repair)
            async with world.http.stream("GET", path, headers=consumer.key.headers) as answer:
                received = b""
                async for chunk in answer.aiter_raw():
                    received += chunk
                    await consumer.key.post(f"/api/v1/sessions/{session_id}/end")
    assert b"x-svc-frame-sequence: 1\r\n" in received


async def test_a_paused_meter_shows_on_the_frame(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, _, session_id = live
    world.clock.advance(11)  # no heartbeat since: stale, whatever the media say
    world.video.show(session_id, 1)
    path = f"/api/v1/sessions/{session_id}"
    answer = await consumer.key.get(f"{path}/frame")
    meter = data_of(await consumer.key.get(f"{path}/meter"))
    assert answer.headers["x-svc-meter-state"] == meter["meterState"] == "PAUSED"
    assert meter["windows"]
    assert {"from", "to", "reason"} == set(meter["windows"][0])


async def test_a_frame_is_signed_when_the_call_asks_for_it(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, _, session_id = live
    world.video.show(session_id, 41, a_picture())
    path = f"/api/v1/sessions/{session_id}/frame"
    certificates = await world.http.get("/.well-known/sightline-certificates.pem")
    answer = await consumer.key.get(f"{path}?signed=1")
    report = verify_picture(answer.content, certificates.text)
    assert report.verdict is PictureVerdict.TRUSTED
    assert report.facts is not None
    assert (report.facts["sessionId"], report.facts["sequence"]) == (session_id, 41)
    assert answer.headers["etag"] == '"41s"'
    again = await consumer.key.get(f"{path}?signed=1", headers={"if-none-match": '"41s"'})
    unsigned = await consumer.key.get(path, headers={"if-none-match": '"41s"'})
    assert (again.status_code, unsigned.status_code) == (304, 200)
    assert error_of(await consumer.key.get(f"{path}?signed=maybe")) == (400, "INVALID_INPUT", "frame:signed")


def an_mp4() -> bytes:
    """One second of fragmented MP4."""
    target = io.BytesIO()
    options = {"movflags": "empty_moov+default_base_moof+frag_keyframe+skip_trailer"}
    with av.open(target, "w", format="mp4", options=options) as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt, stream.time_base = 64, 64, "yuv420p", Fraction(1, 25)
        for index in range(25):
            picture = av.VideoFrame.from_ndarray(np.full((64, 64, 3), index * 9, np.uint8), format="rgb24")
            picture.pts = index
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return target.getvalue()


async def test_a_clip_comes_with_all_that_is_known_of_it(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, operator, session_id = live
    data_of(await operator.beat(sequence=7, sessionId=session_id))
    clip = a_clip(world.clock.now_ms(), an_mp4())
    world.video.keep(session_id, clip)
    for party in (consumer, operator):
        answer = await party.key.get(f"/api/v1/sessions/{session_id}/clip?seconds=30")
        assert (answer.status_code, answer.content) == (200, clip.video)
    headers = answer.headers
    assert (headers["content-type"], headers["cache-control"]) == ("video/mp4", "no-store")
    assert headers["x-svc-clip-from"] < headers["x-svc-clip-to"]
    numbers = ("clip-age-ms", "clip-frames", "clip-width", "clip-height", "publisher-epoch")
    assert [headers[f"x-svc-{name}"] for name in numbers] == ["12", "25", "64", "64", "7"]
    assert (headers["x-svc-meter-state"], headers["x-svc-in-geofence"]) == ("RUNNING", "true")
    assert headers["x-svc-location"].endswith("Z")
    assert (await consumer.key.get(f"/api/v1/sessions/{session_id}/clip")).status_code == 200
    assert world.video.clip_seconds == [30, 30, 10]


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (ClipMissingReason.OFF, (400, "INVALID_INPUT", "clip:off")),
        (ClipMissingReason.NOT_RECEIVED, (404, "FRAME_NOT_AVAILABLE", "clip:notReceived")),
        (ClipMissingReason.STALE, (404, "FRAME_NOT_AVAILABLE", "clip:stale")),
        (ClipMissingReason.UNREADABLE, (404, "FRAME_NOT_AVAILABLE", "clip:unreadable")),
    ],
)
async def test_a_missing_clip_says_why(
    world: World, live: tuple[Party, Party, str], reason: ClipMissingReason, error: tuple[int, str, str]
) -> None:
    consumer, _, session_id = live
    world.video.keep(session_id, ClipMissing(reason=reason))
    assert error_of(await consumer.key.get(f"/api/v1/sessions/{session_id}/clip")) == error


async def test_an_engine_that_is_down_is_unavailable(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, _, session_id = live
    world.video.is_down = True
    answer = await consumer.key.get(f"/api/v1/sessions/{session_id}/clip")
    assert (answer.status_code, answer.json()["code"]) == (503, "VIDEO_ERROR")


@pytest.mark.parametrize("query", ["seconds=0", "seconds=31", "seconds=1.5", "seconds=x", "signed=maybe"])
async def test_a_wrong_query_is_refused(live: tuple[Party, Party, str], query: str) -> None:
    consumer, _, session_id = live
    answer = await consumer.key.get(f"/api/v1/sessions/{session_id}/clip?{query}")
    assert error_of(answer) == (400, "INVALID_INPUT", f"clip:{query.partition('=')[0]}")


async def test_strangers_and_sessions_that_are_not_live_get_no_clip(
    world: World, live: tuple[Party, Party, str]
) -> None:
    consumer, operator, session_id = live
    world.video.keep(session_id, a_clip(world.clock.now_ms(), an_mp4()))
    path = f"/api/v1/sessions/{session_id}/clip"
    stranger = await world.party("CONSUMER")
    assert error_of(await stranger.key.get(path)) == (403, "NOT_AUTHORIZED", "session:workspaceMismatch")
    data_of(await operator.key.post(f"/api/v1/sessions/{session_id}/end"))
    answer = await consumer.key.get(path)
    assert (answer.status_code, answer.json()["code"]) == (409, "INVALID_STATE")


async def test_a_signed_clip_proves_what_it_says(world: World, live: tuple[Party, Party, str]) -> None:
    consumer, operator, session_id = live
    data_of(await operator.beat(sequence=7, sessionId=session_id))
    clip = a_clip(world.clock.now_ms(), an_mp4())
    world.video.keep(session_id, clip)
    path = f"/api/v1/sessions/{session_id}/clip?signed=1"
    signed = (await consumer.key.get(path)).content
    roots = (await world.http.get("/.well-known/sightline-certificates.pem")).text
    report = verify_picture(signed, roots)
    assert (report.verdict, report.problems) == (PictureVerdict.TRUSTED, ())
    assert report.facts is not None
    assert (report.facts["sessionId"], report.facts["frames"], report.facts["publisherEpoch"]) == (session_id, 25, 7)
    assert report.facts["origins"].keys() == (report.facts.keys() - {"origins"}) | {"picture"}
    with av.open(io.BytesIO(signed)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 25
    changed = bytearray(signed)
    changed[-100] ^= 1
    assert verify_picture(bytes(changed), roots).verdict is PictureVerdict.CHANGED
    world.video.keep(session_id, replace(clip, media_type="video/webm"))
    assert error_of(await consumer.key.get(path)) == (400, "INVALID_INPUT", "clip:signed")
