"""A UDP proxy with seeded loss, jitter and reordering between a client and the server's media port."""

import random
import re
from contextlib import suppress
from dataclasses import dataclass, field

import trio


async def _send_after(delay: float, sock: trio.socket.SocketType, data: bytes, to: tuple[str, int]) -> None:
    await trio.sleep(delay)
    # A client that has another interface may ask from its address, which a socket of loopback cannot answer.
    with suppress(OSError):
        await sock.sendto(data, to)


@dataclass
class LossyLink:
    """Decides the delay or loss of each datagram in both directions. The first packets pass, so handshakes succeed."""

    loss: float = 0.0
    jitter_ms: float = 0.0
    seed: int = 1
    spare_first: int = 60
    dropped: int = field(default=0, init=False)
    passed: int = field(default=0, init=False)

    feedback: dict[int, int] = field(default_factory=dict, init=False)
    """RTCP packets from the server, by the proxy's port that received them."""
    _backs: dict[tuple[str, int], trio.socket.SocketType] = field(default_factory=dict, init=False)

    def rebind(self) -> set[int]:
        """Drop every mapping, as a NAT does on restart: the server then sees each client at a new port.

        Returns the old ports.
        """
        old = {back.getsockname()[1] for back in self._backs.values()}
        self._backs.clear()
        return old

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def fate(self) -> float | None:
        """Return the delay in seconds, or None for a loss."""
        self.passed += 1
        if self.passed <= self.spare_first:
            return 0.0
        if self._chance.random() < self.loss:
            self.dropped += 1
            return None
        return self._chance.uniform(0, self.jitter_ms) / 1000

    async def open(self, nursery: trio.Nursery, host: str, port: int) -> int:
        """Relay to one server port; returns the port that clients use instead."""
        front = trio.socket.socket(type=trio.socket.SOCK_DGRAM)
        await front.bind(("127.0.0.1", 0))
        backs = self._backs

        async def from_clients() -> None:
            with front:
                while True:
                    data, client = await front.recvfrom(65536)
                    if client not in backs:
                        back = trio.socket.socket(type=trio.socket.SOCK_DGRAM)
                        await back.bind(("127.0.0.1", 0))
                        backs[client] = back
                        nursery.start_soon(from_server, back, client)
                    self.later(nursery, backs[client], data, (host, port), uplink=True)

        async def from_server(back: trio.socket.SocketType, client: tuple[str, int]) -> None:
            with back:
                while backs.get(client) is back:
                    data, _ = await back.recvfrom(65536)
                    if len(data) > 1 and 128 <= data[0] < 192 and 192 <= data[1] <= 223:
                        self.feedback[back.getsockname()[1]] = self.feedback.get(back.getsockname()[1], 0) + 1
                    self.later(nursery, front, data, client, uplink=False)

        nursery.start_soon(from_clients)
        return int(front.getsockname()[1])

    def fate_of(self, data: bytes, *, uplink: bool) -> float | None:
        """Return the delay in seconds, or None for a loss; uplink is from the client to the server."""
        del data, uplink
        return self.fate()

    def later(
        self, nursery: trio.Nursery, sock: trio.socket.SocketType, data: bytes, to: tuple[str, int], *, uplink: bool
    ) -> None:
        """Send a datagram after its delay, unless it is lost."""
        delay = self.fate_of(data, uplink=uplink)
        if delay is not None:
            nursery.start_soon(_send_after, delay, sock, data, to)

    async def rewrite_answer(self, nursery: trio.Nursery, answer: bytes) -> bytes:
        """Put the proxy's address in place of the server's loopback candidate, and drop the others."""
        lines: list[str] = []
        for line in answer.decode().split("\r\n"):
            match = re.match(r"a=candidate:(\S+) 1 udp (\d+) 127\.0\.0\.1 (\d+) typ host", line)
            if match:
                port = await self.open(nursery, "127.0.0.1", int(match[3]))
                lines.append(f"a=candidate:{match[1]} 1 udp {match[2]} 127.0.0.1 {port} typ host")
            elif not line.startswith("a=candidate:"):
                lines.append(line)
        return "\r\n".join(lines).encode()


def strip_candidates(offer: bytes) -> bytes:
    """An offer without candidates, as OBS sends it: the server learns the proxy's address from its checks."""
    lines = offer.decode().split("\r\n")
    return "\r\n".join(line for line in lines if not line.startswith(("a=candidate:", "a=end-of-"))).encode()
