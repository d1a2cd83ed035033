"""The least that an HTTP service on trio does: parse with httptools, answer one fixed envelope. No key, no database.

python -m bench.baselines.bare_trio
"""

from functools import partial
from typing import Final

import httptools
import trio

RECEIVE_BYTES: Final = 65_536
BODY: Final = b'{"statusCode":200,"message":"Request successful","data":{"id":"' + b"0" * 36 + b'"}}'
ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Requests:
    """Counts the complete requests that the parser has found."""

    def __init__(self) -> None:
        self.complete = 0

    def on_message_complete(self) -> None:
        """Count one."""
        self.complete += 1


async def serve(stream: trio.SocketStream) -> None:
    """Answer the requests of one connection."""
    requests = Requests()
    parser = httptools.HttpRequestParser(requests)
    while data := await stream.receive_some(RECEIVE_BYTES):
        parser.feed_data(data)
        if requests.complete:
            await stream.send_all(ANSWER * requests.complete)
            requests.complete = 0


async def main() -> None:
    """Serve until the process is ended."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        print(f"ready 127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)


if __name__ == "__main__":
    trio.run(main)
