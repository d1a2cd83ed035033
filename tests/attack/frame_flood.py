"""`python -m tests.attack.frame_flood PORT CONNECTIONS SECONDS START PIECE`: flood a server with HTTP/2 frames.

START and PIECE are hexadecimal. START is sent once on each connection, PIECE again and again. Prints how many of the
connections the server ended, and how many bytes were sent on all of them. It ends when all are, or after SECONDS.
"""

import ssl
import sys

import trio

from tests.http.server.frames import PREFACE, settings

READ_BYTES = 65_536


class Flood:
    """Connections that send one piece for ever."""

    def __init__(self, port: int, start: bytes, piece: bytes) -> None:
        self._port, self._start, self._piece = port, start, piece
        self.ended = self.sent = 0

    async def run(self, connections: int, seconds: float) -> None:
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + seconds
            for _ in range(connections):
                nursery.start_soon(self._one)

    async def _one(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        tcp = await trio.open_tcp_stream("127.0.0.1", self._port)
        stream = trio.SSLStream(tcp, context, https_compatible=True)
        try:
            await stream.send_all(PREFACE + settings() + self._start)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, stream)
                while await stream.receive_some(READ_BYTES):
                    pass
                nursery.cancel_scope.cancel()
            self.ended += 1
        except* trio.BrokenResourceError:
            self.ended += 1
        finally:
            await trio.aclose_forcefully(stream)

    async def _send(self, stream: trio.abc.SendStream) -> None:
        try:
            while True:
                await stream.send_all(self._piece)
                self.sent += len(self._piece)
        except trio.BrokenResourceError:
            return  # the reader sees the end


def main(port: str, connections: str, seconds: str, start: str, piece: str) -> None:
    flood = Flood(int(port), bytes.fromhex(start), bytes.fromhex(piece))
    trio.run(flood.run, int(connections), float(seconds))
    sys.stdout.write(f"{flood.ended} {flood.sent}\n")


if __name__ == "__main__":
    main(*sys.argv[1:6])
