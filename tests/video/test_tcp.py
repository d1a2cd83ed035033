"""Media by TCP, for clients whose UDP is blocked: it works, and hostile connections harm nobody."""

import aioice.stun
import pytest
import trio

from sightline.ports.video import MediaKind
from sightline.video.options import NetOptions, Options
from sightline.video.rtc.tcp_frames import framed
from sightline.video.tcp_listener import WAITING_PER_ADDRESS_MAX
from tests.video.support.harness import (
    SECRET,
    Rig,
    a_frame,
    a_rig,
    a_session_id,
    next_frame,
    play_json,
    publishing,
)
from tests.video.support.tcp_link import TcpLink

TWO_WORKERS = Options(secret=SECRET, public_url="", workers=2, net=NetOptions(bind_addresses=("127.0.0.1",)))


def a_session_of_worker(rig: Rig, index: int) -> str:
    return next(each for each in iter(a_session_id, "") if rig.backend._pool._slot(each).index == index)


async def test_one_port_carries_publishers_and_viewers_of_all_workers():
    up, down = TcpLink(), TcpLink()
    async with a_rig(TWO_WORKERS, links={"whip": up, "whep": down}) as rig:
        ports = set()
        for index in (0, 1):
            made = await rig.backend.create_input(a_session_of_worker(rig, index))
            heard = len(rig.events)
            async with publishing(made.whip_url):
                await rig.heard(MediaKind.FRAMES, after=heard)
                assert (await a_frame(rig.backend, made.ref)).width == 1280
                assert (await play_json(made.whep_url, 2.0))["frames"] > 3
            ports |= {up.port, down.port}
        assert len(ports) == 1


def a_forged_check(link: TcpLink) -> bytes:
    """A connectivity check for the peer of the newest answer by a sender who does not know its password."""
    request = aioice.stun.Message(message_method=aioice.stun.Method.BINDING, message_class=aioice.stun.Class.REQUEST)
    request.attributes["USERNAME"] = f"{link.value('ice-ufrag')}:them"
    request.attributes["PRIORITY"] = 1
    request.add_message_integrity(b"guessed")
    return bytes(request)


async def is_closed(port: int, *parts: bytes) -> bool:
    """Say whether the server closes a connection that sends these bytes."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        with trio.move_on_after(20):
            try:
                for part in parts:
                    await stream.send_all(part)
                while await stream.receive_some():
                    pass
            except trio.BrokenResourceError:
                pass
            return True
    return False


async def test_hostile_connections_are_closed_and_the_publisher_by_tcp_goes_on():
    link = TcpLink()
    async with a_rig(links={"whip": link}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            frame = await a_frame(rig.backend, made.ref)
            check = framed(link.check)
            assert await is_closed(link.port, b"\0\0"), "a frame of no bytes"
            assert await is_closed(link.port, b"\xff\xff"), "a frame longer than a packet"
            assert await is_closed(link.port, b"GET / HTTP/1.1\r\nHost: example\r\n\r\n")
            assert await is_closed(link.port, framed(b"\0\x01\0\0!\x12\xa4B" + bytes(12))), "a check that names nobody"
            assert await is_closed(link.port, framed(a_forged_check(link))), "a wrong password"
            assert await is_closed(link.port, check, b"\0\0"), "no frame after a good check"
            assert await is_closed(link.port, check, b"\xff\xff"), "no frame after a good check"
            later = await next_frame(rig.backend, made.ref, frame.sequence)
            await next_frame(rig.backend, made.ref, later.sequence)
        kinds = [event.kind for event in rig.events]
    assert kinds.count(MediaKind.CONNECTED) == 1
    assert MediaKind.DISCONNECTED not in kinds


async def test_silent_connections_of_one_address_are_bounded_and_end_by_themselves():
    link = TcpLink()
    async with a_rig(links={"whip": link}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            silent = [await trio.open_tcp_stream("127.0.0.1", link.port) for _ in range(WAITING_PER_ADDRESS_MAX)]
            assert await is_closed(link.port), "one more is closed at once"
            with trio.fail_after(90):
                for stream in silent:
                    assert await stream.receive_some() == b""
                    await stream.aclose()
            async with await trio.open_tcp_stream("127.0.0.1", link.port) as stream:
                await stream.send_all(framed(link.check))
                assert await stream.receive_some(), "then checks are answered again"


async def test_a_peer_has_a_bounded_number_of_connections():
    link = TcpLink()
    async with a_rig(links={"whip": link}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            check = framed(link.check)
            streams = []
            for _ in range(7):  # the publisher has one
                stream = await trio.open_tcp_stream("127.0.0.1", link.port)
                await stream.send_all(check)
                assert await stream.receive_some(), "an answer"
                streams.append(stream)
            assert await is_closed(link.port, check), "one more is refused"
            await streams.pop().aclose()
            with trio.fail_after(90):
                while await is_refused(link.port, check):
                    pass
            for stream in streams:
                await stream.aclose()


async def is_refused(port: int, check: bytes) -> bool:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(check)
        try:
            return not await stream.receive_some()
        except trio.BrokenResourceError:
            return True


@pytest.mark.parametrize("port", [-1, 0])
async def test_the_answer_names_the_tcp_port_unless_it_is_switched_off(port: int):
    options = Options(secret=SECRET, public_url="", workers=1, net=NetOptions(tcp_port=port))
    answers: list[str] = []

    class Listening(TcpLink):
        async def rewrite_answer(self, nursery: trio.Nursery, answer: bytes) -> bytes:
            answers.append(answer.decode())
            return answer

    async with a_rig(options, links={"whip": Listening()}) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
    assert ("tcptype passive" in answers[0]) is (port == 0)
