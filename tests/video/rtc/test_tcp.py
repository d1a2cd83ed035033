"""TCP connections of an ICE agent: framing, whole packets to slow readers, the end of silent ones."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import aioice.stun
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.errors import VideoUnavailableError
from sightline.video.options import NetOptions
from sightline.video.rtc.peer import with_resolved_names
from sightline.video.rtc.tcp import TcpTransport
from sightline.video.rtc.tcp_frames import FRAME_MAX_BYTES, FrameReader, FramingError, framed, named_agent
from sightline.video.rtc.udp import ReadPace
from sightline.video.tcp_listener import open_tcp_port, port_of


def on_asyncio(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))  # type: ignore[arg-type]


def a_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    return ours, theirs


@given(st.lists(st.binary(min_size=1, max_size=FRAME_MAX_BYTES), max_size=6), st.integers(1, 700))
def test_packets_arrive_however_the_stream_is_cut(packets: list[bytes], step: int):
    stream = b"".join(framed(packet) for packet in packets)
    reader = FrameReader()
    assert [one for at in range(0, len(stream), step) for one in reader.feed(stream[at : at + step])] == packets


@pytest.mark.parametrize("prefix", [b"\0\0", (FRAME_MAX_BYTES + 1).to_bytes(2, "big")])
def test_packets_before_a_frame_of_an_impossible_length_are_given(prefix: bytes):
    feeding = FrameReader().feed(framed(b"whole") + prefix)
    assert next(feeding) == b"whole"
    with pytest.raises(FramingError):
        next(feeding)


@given(st.binary(max_size=60))
def test_any_bytes_name_an_agent_or_none(data: bytes):
    assert isinstance(named_agent(data), str | None)
    assert isinstance(named_agent(b"\0\x01\0\0!\x12\xa4B" + bytes(12) + data), str | None)


def test_a_check_names_its_receiver():
    request = aioice.stun.Message(message_method=aioice.stun.Method.BINDING, message_class=aioice.stun.Class.REQUEST)
    request.attributes["PRIORITY"] = 1
    request.attributes["USERNAME"] = "00abcdef:theirs"
    assert named_agent(bytes(request)) == "00abcdef"


def test_a_reader_that_falls_behind_gets_whole_packets_only():
    async def work() -> None:
        ours, theirs = a_pair()
        transport = TcpTransport(ours, on_datagram=lambda *_: None, on_lost=lambda: None, pace=ReadPace(1_000))
        sent = 0
        while not transport.blocked:
            transport.sendto(sent.to_bytes(4, "big") * 250)
            sent += 1
        for number in range(sent, sent + 500):
            transport.sendto(number.to_bytes(4, "big") * 250)
        theirs.setblocking(False)
        loop, reader, heard = asyncio.get_running_loop(), FrameReader(), []
        while transport.blocked:
            heard += list(reader.feed(await loop.sock_recv(theirs, 65536)))
        transport.sendto(b"end")
        while not heard or heard[-1] != b"end":
            heard += list(reader.feed(await loop.sock_recv(theirs, 65536)))
        numbers = [int.from_bytes(packet[:4], "big") for packet in heard[:-1]]
        assert all(packet == packet[:4] * 250 for packet in heard[:-1])
        assert numbers == sorted(numbers)
        assert sent <= len(numbers) < sent + 500, "the rest was dropped"
        transport.close()
        theirs.close()

    on_asyncio(work)


def test_a_silent_connection_is_closed():
    async def work() -> None:
        ours, theirs = a_pair()
        lost = asyncio.Event()
        TcpTransport(ours, on_datagram=lambda *_: None, on_lost=lost.set, pace=ReadPace(1_000), idle_s=0.02)
        theirs.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(theirs, 1) == b""
        await lost.wait()
        theirs.close()

    on_asyncio(work)


def test_a_sender_over_its_pace_is_read_later_and_loses_nothing():
    async def work() -> None:
        ours, theirs = a_pair()
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        transport = TcpTransport(
            ours, on_datagram=lambda data, *_: heard.put_nowait(data), on_lost=lambda: None, pace=ReadPace(20)
        )
        packets = [bytes([number]) for number in range(50)]
        theirs.sendall(b"".join(map(framed, packets)))
        assert [await heard.get() for _ in packets] == packets
        theirs.sendall(framed(b"more"))
        assert await heard.get() == b"more"
        transport.close()
        theirs.close()

    on_asyncio(work)


async def test_a_port_that_is_taken_is_named():
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    with pytest.raises(VideoUnavailableError, match=f"TCP port {port} for media cannot be opened"):
        open_tcp_port(NetOptions(bind_addresses=("127.0.0.1",), tcp_port=port))
    await listener.aclose()


async def test_all_addresses_have_the_same_free_port():
    listeners = open_tcp_port(NetOptions(bind_addresses=("127.0.0.1", "127.0.0.2")))
    assert {each.socket.getsockname()[1] for each in listeners} == {port_of(listeners)}
    for each in listeners:
        await each.aclose()


def test_an_advertised_name_is_resolved_and_one_without_an_address_is_the_bound_one():
    async def work() -> None:
        net = NetOptions(
            bind_addresses=("127.0.0.2", "127.0.0.3", "127.0.0.4"),
            advertised_addresses=("localhost", "missing.invalid", "203.0.113.7"),
        )
        assert (await with_resolved_names(net)).advertised_addresses == ("127.0.0.1", "127.0.0.3", "203.0.113.7")

    on_asyncio(work)
