"""Carries a client's UDP to the server's TCP port, so that any client of the tests can use it."""

import re
from dataclasses import dataclass, field

import trio

from sightline.video.rtc.tcp_frames import FrameReader, framed
from tests.video.support.lossy import LossyLink


@dataclass
class TcpLink(LossyLink):
    """Replaces the candidates of an answer by one UDP port, whose datagrams go to the TCP candidate on 127.0.0.1."""

    answer: str = field(default="", init=False)
    """The newest one, as the server gave it."""
    check: bytes = field(default=b"", init=False)
    """The client's first connectivity check."""

    @property
    def port(self) -> int:
        """The server's TCP port."""
        (port,) = re.findall(r" tcp \d+ 127\.0\.0\.1 (\d+) typ host tcptype passive", self.answer)
        return int(port)

    def value(self, name: str) -> str:
        """An attribute of the newest answer."""
        found = re.search(rf"a={name}:(\S+)", self.answer)
        assert found is not None
        return found[1]

    async def rewrite_answer(self, nursery: trio.Nursery, answer: bytes) -> bytes:
        self.answer = answer.decode()
        if "a=candidate:" not in self.answer:
            return answer
        front = trio.socket.socket(type=trio.socket.SOCK_DGRAM)
        await front.bind(("127.0.0.1", 0))
        nursery.start_soon(self._carry, front, self.port)
        lines = [line for line in self.answer.split("\r\n") if not line.startswith("a=candidate:")]
        at = lines.index("a=end-of-candidates")
        lines.insert(at, f"a=candidate:1 1 udp 2130706431 127.0.0.1 {front.getsockname()[1]} typ host")
        return "\r\n".join(lines).encode()

    async def _carry(self, front: trio.socket.SocketType, port: int) -> None:
        with front:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream, trio.open_nursery() as nursery:
                client: list[tuple[str, int]] = []

                async def back() -> None:
                    frames = FrameReader()
                    async for data in stream:
                        for packet in frames.feed(bytes(data)):
                            await front.sendto(packet, client[0])
                    nursery.cancel_scope.cancel()

                nursery.start_soon(back)
                while True:
                    data, source = await front.recvfrom(65536)
                    client[:] = [source]
                    self.check = self.check or data
                    try:
                        await stream.send_all(framed(data))
                    except trio.BrokenResourceError:
                        return
