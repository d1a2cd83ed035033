"""One server has the input of a session; the others find it. When that server has ended, the owner opens it again."""

import pytest
import trio
import trio.testing

from sightline.cluster.peers.video_messages import FindInputs, HeldInput
from sightline.cluster.video.backend import CLOSE_RETRY_S, SETTLE_S
from sightline.cluster.video.frames import QUERY_HEADER, SCHEME, VALID_MS, FrameClient, FrameDoor, FrameKeys
from sightline.domain.errors import VideoUnavailableError
from sightline.ports.video import FrameMissing, FrameMissingReason, FrameQuery, MediaKind, SignalRequest
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.video.ipc import messages
from sightline.video.tokens import ref_of
from tests.cluster.video.service import Service, a_service, url_of
from tests.video.support.harness import SECRET, a_session_id
from tests.video.support.http_server import listen


def an_offer(service: Service, session_id: str, method: str = "POST") -> SignalRequest:
    token = service.members["one"].own.mint.token("whip", session_id)
    headers = {"content-type": "application/sdp", "cookie": "a secret", "authorization": "Bearer secret"}
    return SignalRequest(kind="whip", method=method, token=token, headers=headers, body=b"v=0", base_url="http://door")


async def test_a_new_owner_finds_the_input_where_it_is_and_opens_none(autojump_clock: trio.testing.MockClock) -> None:
    async with a_service("one", "two", "three") as service:
        one, two, three = service.members.values()
        made = await one.backend.create_input(session_id := a_session_id())
        assert await two.backend.reopen_input(session_id) == made
        assert (one.own.sessions, two.own.sessions, three.own.sessions) == ({session_id}, set(), set())


async def test_many_sessions_that_load_at_once_are_one_question_to_each_server(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        sessions = [a_session_id() for _ in range(200)]
        for session_id in sessions[:100]:
            await one.backend.create_input(session_id)
        frames_before = two.peers.counts.messages_sent
        async with trio.open_nursery() as nursery:
            for session_id in sessions:
                nursery.start_soon(two.backend.reopen_input, session_id)
        assert two.own.sessions == set(sessions[100:])
        await trio.testing.wait_all_tasks_blocked()  # what was queued is sent
        told = 100  # that it has opened an input
        assert two.peers.counts.messages_sent == frames_before + 1 + told


async def test_while_a_server_does_not_answer_nothing_is_opened_and_after_its_lease_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two", "three") as service:
        one, two, three = service.members.values()
        await one.backend.create_input(session_id := a_session_id())
        one.bus.disconnect()
        with pytest.raises(VideoUnavailableError):
            await two.backend.reopen_input(session_id)
        assert (two.own.sessions, three.own.sessions) == (set(), set())
        service.lease("two", "three")
        await two.backend.reopen_input(session_id)
        assert two.own.sessions == {session_id}


async def test_a_start_does_not_wait_for_a_server_that_does_not_answer(autojump_clock: trio.testing.MockClock) -> None:
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        one.bus.disconnect()
        before = trio.current_time()
        await two.backend.create_input(a_session_id())
        assert trio.current_time() == before


async def test_the_owner_is_told_when_the_server_that_has_the_input_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two", "three") as service:
        one, two, three = service.members.values()
        await one.backend.create_input(session_id := a_session_id())
        for member in (two, three):
            assert (await member.backend.signal(an_offer(service, session_id))).status == 201
        two.owned.add(session_id)
        service.network.leave("one")
        before = trio.current_time()
        for _ in range(3):
            assert (await two.backend.signal(an_offer(service, session_id))).status == 503
        assert trio.current_time() == before  # none waited for an answer that cannot come
        service.lease("two", "three")
        await trio.testing.wait_all_tasks_blocked()
        assert [(event.kind, event.session_id) for event in two.events] == [(MediaKind.LOST, session_id)]
        assert three.events == []
        assert (await three.backend.signal(an_offer(service, session_id))).status == 503  # and not 404: it opens soon
        await two.backend.reopen_input(session_id)
        assert (await three.backend.signal(an_offer(service, session_id))).status == 201


async def test_a_server_that_cannot_be_reached_keeps_its_inputs_while_its_lease_is_valid(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        await one.backend.create_input(session_id := a_session_id())
        await two.backend.reopen_input(session_id)
        two.owned.add(session_id)
        two.peers.routes.read({"one": (), "two": ()})  # its messages do not arrive, and its lease is valid
        await trio.testing.wait_all_tasks_blocked()
        assert two.events == []
        one.bus.disconnect()
        with pytest.raises(VideoUnavailableError):
            await two.backend.reopen_input(session_id)
        assert two.own.sessions == set()


async def test_whip_and_whep_are_answered_by_the_server_that_has_the_input_without_the_callers_credentials(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        await one.backend.create_input(session_id := a_session_id())
        reply = await two.backend.signal(an_offer(service, session_id))
        assert (reply.status, reply.body) == (201, b"v=0 answer")
        assert ("location", "http://door/whip/t/r1") in reply.headers
        (received,) = one.own.signals
        assert received.headers == {"content-type": "application/sdp"}
        assert (received.method, received.body) == ("POST", b"v=0")
        assert two.own.signals == []


async def test_a_session_without_an_input_is_answered_by_the_server_that_was_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        await trio.sleep(SETTLE_S)  # of the test's clock
        await two.backend.signal(an_offer(service, a_session_id()))
        assert (len(one.own.signals), len(two.own.signals)) == (0, 1)
        nothing = await two.backend.frame(ref_of(a_session_id()), FrameQuery())
        assert nothing == FrameMissing(reason=FrameMissingReason.NOT_DECODED)


async def test_a_home_that_moved_is_found_again(autojump_clock: trio.testing.MockClock) -> None:
    async with a_service("one", "two", "three") as service:
        one, two, three = service.members.values()
        await one.backend.create_input(session_id := a_session_id())
        assert (await three.backend.signal(an_offer(service, session_id))).status == 201
        await one.own.close_input(ref_of(session_id))
        await two.own.create_input(session_id)
        assert (await three.backend.signal(an_offer(service, session_id))).status == 201
        assert len(two.own.signals) == 1


async def test_an_input_is_closed_where_it_is_and_later_if_that_server_does_not_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two", "three") as service:
        one, two, _ = service.members.values()
        for is_reachable in (True, False):
            made = await one.backend.create_input(a_session_id())
            if not is_reachable:
                one.bus.disconnect()
            await two.backend.close_input(made.ref)
            assert (one.own.sessions == set()) == is_reachable
        one.bus.connect()
        await trio.sleep(CLOSE_RETRY_S + 1)  # of the test's clock
        assert one.own.sessions == set()


async def test_one_server_has_the_input_after_two_have_opened_it_and_the_owner_keeps_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        await one.backend.create_input(session_id := a_session_id())
        two.owned.add(session_id)
        await two.backend.create_input(session_id)
        await trio.testing.wait_all_tasks_blocked()
        assert (one.own.sessions, two.own.sessions) == (set(), {session_id})
        await one.backend.create_input(session_id)
        await trio.testing.wait_all_tasks_blocked()
        assert two.own.sessions == {session_id}


async def test_every_server_handles_a_callback_of_an_engine_and_one_permission_is_enough(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with a_service("one", "two", "three") as service:
        for member in service.members.values():
            member.own.hook_status = 403
        backend = service.members["one"].backend
        assert await backend.engine_hook("mediamtx", {"a": "b"}, b"{}") == 403
        service.members["three"].own.hook_status = 200
        assert await backend.engine_hook("mediamtx", {"a": "b"}, b"{}") == 200
        assert [member.own.hooks for member in service.members.values()] == [[b"{}", b"{}"]] * 3


async def test_a_callback_without_its_secret_is_not_passed_on(autojump_clock: trio.testing.MockClock) -> None:
    async with a_service("one", "two") as service:
        for member in service.members.values():
            member.own.hook_status = 401
        assert await service.members["one"].backend.engine_hook("mediamtx", {}, b"{}") == 401
        assert service.members["two"].own.hooks == []


QUERY = '{"width": 320, "quality": 80, "after": null, "wait_ms": 0, "max_age_ms": 1000}'


def a_request(
    ref: str, *, query: str = QUERY, secret: bytes = SECRET, server: str = "one", late_ms: int = 0, nonce: str = "a"
) -> dict[str, str]:
    """The headers of a request for a frame."""
    stamp = f"{SystemClock().now_ms() - late_ms}.{nonce}"
    proof = FrameKeys(secret).sign(url_of(server), ref, query, stamp).hex()
    return {"authorization": f"{SCHEME} {stamp}.{proof}", QUERY_HEADER: query}


async def test_a_request_for_a_frame_is_valid_once_for_seconds_and_at_one_server() -> None:
    async with a_service("one", "two") as service:
        backend = service.members["one"].backend
        ref, other = [(await backend.create_input(a_session_id())).ref for _ in range(2)]
        good = a_request(ref)
        for why, of, headers, status in (
            ("no proof", ref, {QUERY_HEADER: QUERY}, 401),
            ("the bearer of earlier versions", ref, {"authorization": "Bearer abc", QUERY_HEADER: QUERY}, 401),
            ("no time", ref, {"authorization": f"{SCHEME} x.y.z", QUERY_HEADER: QUERY}, 401),
            ("another service", ref, a_request(ref, secret=b"x" * 32), 401),
            ("another server", ref, a_request(ref, server="two"), 401),
            ("another input", other, good, 401),
            ("another query", ref, good | {QUERY_HEADER: QUERY.replace("320", "321")}, 401),
            ("too old", ref, a_request(ref, late_ms=VALID_MS + 1_000), 401),
            ("from the future", ref, a_request(ref, late_ms=-VALID_MS - 1_000), 401),
            ("not a query", ref, a_request(ref, query='{"what": 1}', nonce="b"), 400),
            ("not a query of a clip", ref, a_request(ref, query='{"clip_seconds": 5, "width": 320}', nonce="d"), 400),
            ("a clip", ref, a_request(ref, query='{"clip_seconds": 5}', nonce="e"), 200),
            ("valid", ref, good, 200),
            ("again", ref, good, 401),
            ("no such input", ref_of(a_session_id()), {}, 401),
        ):
            assert (await backend.answer_frame(of, headers)).status == status, why
        missing = ref_of(a_session_id())
        assert (await backend.answer_frame(missing, a_request(missing, nonce="c"))).status == 404


async def test_the_answer_with_a_frame_opens_only_for_its_request() -> None:
    """A server in between answers a new request with an old answer, with a changed one, and with one in clear."""
    keys, clock, ids = FrameKeys(SECRET), SystemClock(), SystemIds()
    door = FrameDoor(keys, url_of("home"), clock, ids)
    client = FrameClient(keys, clock, ids)
    ref, picture = ref_of(a_session_id()), FrameMissing(reason=FrameMissingReason.NOT_DECODED, sequence=7)
    first, second = [door.admit(ref, a_request(ref, server="home", nonce=nonce)) for nonce in "ab"]
    assert first is not None
    assert second is not None
    body = door.seal(first, *messages.frame_to_wire(picture)).body
    assert client._open((first, body), messages.frame_from_wire) == picture
    assert b"sequence" not in body
    for proof, content in ((second, body), (first, body[:-1]), (first, bytes([body[0] ^ 1]) + body[1:]), (first, b"")):
        with pytest.raises(VideoUnavailableError):
            client._open((proof, content), messages.frame_from_wire)
    await client.close()


async def test_frames_are_asked_for_at_the_url_of_the_lease_whatever_an_answer_says() -> None:
    """The answer of a server has no URL, and without one in its lease nothing is asked."""
    assert set(HeldInput.__struct_fields__) == {"session_id", "input"}
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        made = await one.backend.create_input(a_session_id())
        two.peers.routes.read({"one": (), "two": ()})
        with pytest.raises(VideoUnavailableError, match="lease"):
            await two.backend.frame(made.ref, FrameQuery())


async def test_an_answer_that_is_not_understood_does_not_end_the_server() -> None:
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        for wrong in (5, (5,), ("x", None), (HeldInput("another", one.own.describe_input(a_session_id())),)):

            async def lie(_: object, wrong: object = wrong) -> object:
                await trio.lowlevel.checkpoint()
                return wrong

            one.peers.answer(FindInputs, lie)  # type: ignore[arg-type]  # what a broken server would say
            with pytest.raises(VideoUnavailableError):
                await two.backend.reopen_input(a_session_id())


async def test_a_home_that_cannot_be_reached_is_unavailable_and_not_without_a_frame() -> None:
    async with a_service("one", "two") as service:
        one, two = service.members.values()
        made = await one.backend.create_input(a_session_id())
        with pytest.raises(VideoUnavailableError):
            await two.backend.frame(made.ref, FrameQuery())


async def test_a_home_that_takes_the_connection_and_does_not_answer_is_unavailable() -> None:
    listeners, url = await listen()
    client = FrameClient(FrameKeys(SECRET), SystemClock(), SystemIds(), answer_timeout_s=0.2)
    try:
        with pytest.raises(VideoUnavailableError), trio.fail_after(60):
            await client.fetch(url, ref_of(a_session_id()), FrameQuery())
    finally:
        await client.close()
        for listener in listeners:
            await listener.aclose()
