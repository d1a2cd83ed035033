"""`python -m tests.video.support.media_client URL MODE`: a WHIP or WHEP client that sends what it likes.

It prints `connected` once, then each second how many packets it has sent, or how many came if it sends none. It runs
until its standard input closes.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import cycle
from urllib.parse import urlsplit

import av
import httpx
import numpy as np

from sightline.system.clock import SystemClock
from sightline.video.options import NetOptions
from sightline.video.rtc.peer import Certificates, RtcPeer, transport_section
from sightline.video.rtc.rtp import RTCP_SR, build_nack, build_pli, build_rtp, parse_rtp
from sightline.video.rtc.sdp import Codec, LocalSection, build, parse
from tests.video.support.bitstreams import a_grey_keyframe, a_group, a_pps, an_sps

MEDIA, REPAIR = 96, 97
SSRC, REPAIR_SSRC = 1111, 2222
PACKET_BYTES = 1_150
BURST = 24

Frames = Iterator[list[bytes]]


def still(size: str, references: str = "1") -> Frames:
    """Ten frames of one size, for ever."""
    width, height = map(int, size.split("x"))
    return cycle(list(a_group(width, height, 10, references=int(references))))


def changing(first: str, second: str) -> Frames:
    """A keyframe each time, of two sizes in turn."""
    sizes = [tuple(map(int, each.split("x"))) for each in (first, second)]
    return cycle([[an_sps(*size), a_pps(), a_grey_keyframe(*size)] for size in sizes])


def lying(shown: str, real: str) -> Frames:
    """A small parameter set, and a large one behind a start code inside the slice."""
    width, height = map(int, real.split("x"))
    small = tuple(map(int, shown.split("x")))
    inside = b"\x09\x10" + b"".join(b"\0\0\1" + each for each in next(a_group(width, height, 1)))
    return cycle([[an_sps(*small), a_pps(), a_grey_keyframe(*small)], [inside]])


def noise(size: str) -> Frames:
    """Noise, which compresses badly, also as a JPEG."""
    width, height = map(int, size.split("x"))
    codec = av.CodecContext.create("libx264", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = width, height, "yuv420p", Fraction(1, 30)
    codec.options = {"preset": "ultrafast", "tune": "zerolatency", "qp": "40", "x264-params": "keyint=2"}
    random = np.random.default_rng(1)
    frames = []
    for index in range(2):
        picture = av.VideoFrame.from_ndarray(random.integers(0, 255, (height * 3 // 2, width), np.uint8), "yuv420p")
        picture.pts = index
        data = b"".join(bytes(packet) for packet in codec.encode(picture)).replace(b"\0\0\0\1", b"\0\0\1")
        frames.append([nal for nal in data.split(b"\0\0\1") if nal])
    return cycle(frames[:1])


STREAMS: dict[str, Callable[..., Frames]] = {"still": still, "changing": changing, "lying": lying, "noise": noise}


def payloads(nal: bytes) -> list[bytes]:
    """RTP payloads of one NAL unit (RFC 6184, 5.6 and 5.8)."""
    if len(nal) <= PACKET_BYTES:
        return [nal]
    parts = [nal[at : at + PACKET_BYTES] for at in range(1, len(nal), PACKET_BYTES)]
    kind, indicator = nal[0] & 0x1F, nal[0] & 0xE0 | 28
    heads = [kind | (0x80 if at == 0 else 0) | (0x40 if at == len(parts) - 1 else 0) for at in range(len(parts))]
    return [bytes([indicator, head]) + part for head, part in zip(heads, parts, strict=True)]


def sections(direction: str) -> list[LocalSection]:
    fmtp = {"profile-level-id": "42e01f", "packetization-mode": "1", "level-asymmetry-allowed": "1"}
    feedback = ["nack", "nack pli"]
    video = [
        Codec(payload_type=MEDIA, name="H264", clock_rate=90_000, parameters=fmtp, feedback=feedback),
        Codec(payload_type=REPAIR, name="RTX", clock_rate=90_000, parameters={"apt": str(MEDIA)}),
    ]
    return [LocalSection(kind="video", mid="0", direction=direction, codecs=video)]


class MediaClient:
    """One connected client."""

    def __init__(self) -> None:
        self.connected, self.closed = asyncio.Event(), asyncio.Event()
        self.sequence = self.timestamp = 0
        self.heard_ssrc = self.heard = 0
        self.sent = 0
        self.peer: RtcPeer

    async def connect(self, url: str) -> None:
        self.peer = RtcPeer(
            net=NetOptions(private_candidates=True),
            certificates=Certificates(SystemClock()),
            prefer=str(urlsplit(url).hostname),
            controlling=True,
            publishes=False,
            on_packet=self._heard,
            on_connected=self.connected.set,
            on_closed=lambda _: self.closed.set(),
        )
        local = await self.peer.gather("actpass")
        is_viewer = "/whep/" in url
        offer = build(sections("recvonly" if is_viewer else "sendonly"), local, session_number=1)
        async with httpx.AsyncClient(timeout=90) as http:
            reply = await http.post(url, content=offer, headers={"content-type": "application/sdp"})
            while reply.status_code == 409:  # nobody publishes yet
                await asyncio.sleep(0.2)
                reply = await http.post(url, content=offer, headers={"content-type": "application/sdp"})
        assert reply.status_code == 201, reply.text
        answer = parse(reply.content)
        role = "server" if transport_section(answer).setup == "active" else "client"
        await self.peer.connect(answer, role=role, handshake_ms=20_000)
        await self.connected.wait()
        sys.stdout.write("connected\n")
        sys.stdout.flush()

    def _heard(self, data: bytes, rtcp: bool, at_ms: float) -> None:
        del at_ms
        if not rtcp and (packet := parse_rtp(data)) is not None:
            self.heard_ssrc = packet.ssrc
            self.heard += 1

    def packet(self, payload: bytes, *, marker: bool = False, kind: int = MEDIA, ssrc: int = SSRC) -> bytes:
        self.sequence = (self.sequence + 1) & 0xFFFF
        return build_rtp(
            payload, marker=marker, payload_type=kind, sequence=self.sequence, timestamp=self.timestamp, ssrc=ssrc
        )

    def send(self, packets: list[bytes]) -> None:
        self.sent += len(packets)
        for packet in packets:
            self.peer.send(packet)

    async def publish(self, frames: Frames, every_s: float = 0.1) -> None:
        """Send a stream of frames."""
        for nals in frames:
            self.timestamp = (self.timestamp + int(every_s * 90_000)) & 0xFFFFFFFF
            parts = [part for each in nals for part in payloads(each)]
            packets = [self.packet(part, marker=at == len(parts) - 1) for at, part in enumerate(parts)]
            for at in range(0, len(packets), BURST):
                self.send(packets[at : at + BURST])
                await asyncio.sleep(0.001)
            await asyncio.sleep(every_s)

    async def flood(self, batch: Callable[["MediaClient"], list[bytes]], rate: int) -> None:
        """Send as many packets as the rate says, or as this process can."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self.closed.is_set():
            if self.sent < (loop.time() - began) * rate:
                self.send(batch(self))
            await asyncio.sleep(0 if self.sent < (loop.time() - began) * rate else 0.002)

    async def storm(self, rate: int) -> None:
        """Ask for every packet again and for a keyframe, as a viewer, in each RTCP packet."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self.closed.is_set():
            if self.heard_ssrc and self.sent < (loop.time() - began) * rate:
                self.sent += 1
                nack = build_nack(1, self.heard_ssrc, list(range(0, 65_536, 17))[:250])
                self.peer.send(nack + build_pli(1, self.heard_ssrc), rtcp=True)
            await asyncio.sleep(0 if self.sent % 50 else 0.001)


def junk(client: MediaClient) -> list[bytes]:
    """Slices that begin anywhere, each with its own timestamp."""
    client.timestamp += 90
    return [client.packet(bytes([0x61]) + os.urandom(100), marker=True) for _ in range(BURST)]


def jumping(client: MediaClient) -> list[bytes]:
    """Packets whose numbers jump, so that most of the numbers between are missing."""
    client.sequence = (client.sequence + 500) & 0xFFFF
    return junk(client)


def endless(client: MediaClient) -> list[bytes]:
    """Fragments of one unit that never ends: no marker, one timestamp."""
    first = [client.packet(bytes([0x7C, 0x85]) + bytes(PACKET_BYTES))] if not client.sent else []
    return first + [client.packet(bytes([0x7C, 0x05]) + bytes(PACKET_BYTES)) for _ in range(BURST)]


def repairs(client: MediaClient) -> list[bytes]:
    """Retransmissions of packets that nobody missed."""
    return [client.packet(os.urandom(102), kind=REPAIR, ssrc=REPAIR_SSRC) for _ in range(BURST)]


def sources(client: MediaClient) -> list[bytes]:
    """A new SSRC in each packet."""
    return [client.packet(os.urandom(102), ssrc=int.from_bytes(os.urandom(4), "big")) for _ in range(BURST)]


FLOODS = {"junk": junk, "jumping": jumping, "endless": endless, "repairs": repairs, "sources": sources}


async def reports(client: MediaClient, rate: int) -> None:
    """Sender reports and feedback of invented sources."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    body = bytes([0x80, RTCP_SR, 0, 6]) + os.urandom(24)
    while not client.closed.is_set():
        if client.sent < (loop.time() - began) * rate:
            for _ in range(BURST):
                client.sent += 1
                client.peer.send(body * 40, rtcp=True)
        await asyncio.sleep(0 if client.sent < (loop.time() - began) * rate else 0.002)


async def tell(client: MediaClient) -> None:
    while True:
        await asyncio.sleep(1)
        sys.stdout.write(f"{client.sent or client.heard}\n")
        sys.stdout.flush()


async def main(url: str, mode: str) -> None:
    name, *given = mode.split(":")
    frames = STREAMS[name](*given) if name in STREAMS else None
    client = MediaClient()
    await client.connect(url)
    telling = asyncio.create_task(tell(client))
    if frames is not None:
        work = client.publish(frames)
    elif name == "reports":
        work = reports(client, int(given[0]))
    elif name == "storm":
        work = client.storm(int(given[0]))
    elif name == "silent":  # hears, and reports nothing
        work = client.closed.wait()
    else:
        work = client.flood(FLOODS[name], int(given[0]))
    working = asyncio.create_task(work)
    await asyncio.to_thread(sys.stdin.read)
    for task in (telling, working):
        task.cancel()
    client.peer.close("over")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
