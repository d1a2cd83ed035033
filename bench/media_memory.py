"""Shows whether a media worker leaks: `python -m bench.media_memory [--minutes 5] [--slots 6] [--seconds 10]`.

Runs the media server of one worker in this process, and publishers and viewers in a second one. Each slot publishes a
small clip for some seconds with one viewer and polls of frames, closes its input, and starts again: 6 slots of 10 s are
as many sessions in 5 minutes as the soak test has in half an hour. Every 20 seconds it prints one row:

- sessions closed so far, memory of the process (RSS), memory in use and memory free inside malloc (mallinfo2),
- allocated blocks of Python's own allocator, objects known to the garbage collector, full collections.

At the end the inputs are closed and the same row is printed again after a full garbage collection and after
`malloc_trim`: what a collection frees were unreachable cycles, what `malloc_trim` frees was fragmentation, and
what stays after both, per session, is a leak.
"""

import argparse
import asyncio
import ctypes
import gc
import sys
import tempfile
import tracemalloc
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import uvloop

from bench.cameras import render
from sightline.ports.video import FrameQuery, SignalRequest
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.logs import configure_logs
from sightline.video.options import Options
from sightline.video.worker.media_server import MediaServer
from sightline_client.video.play import play
from sightline_client.video.publish import publish
from sightline_client.video.whip_client import OfferRefusedError

SAMPLE_S: Final = 20.0
POLL_S: Final = 1.0
HEADS: Final = ("sessions", "RSS MB", "in use MB", "free MB", "Python blocks", "gc objects", "full collections")


class MallInfo(ctypes.Structure):
    """Result of glibc's mallinfo2."""

    _fields_ = [  # type: ignore[mutable-override]  # the stubs name a union that no literal has
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


libc = ctypes.CDLL("libc.so.6")
libc.mallinfo2.restype = MallInfo


class Host:
    """The media server and the HTTP side of its signalling."""

    def __init__(self) -> None:
        options = Options(secret=b"memory test, 16 bytes", public_url="http://127.0.0.1")
        self.media = MediaServer(options, clock=SystemClock(), ids=SystemIds(), emit=lambda *event: None)
        self.open: set[str] = set()
        self.closed = 0
        self.counts: Counter[str] = Counter()
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:]) if name}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        kind, session, *rest = target.strip("/").split("/")
        if kind == "close":
            self.media.close(session)
            self.open.discard(session)
            self.closed += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            if kind == "whip" and not rest:
                self.media.open(session)
                self.open.add(session)
            request = SignalRequest(
                kind=kind, method=method, token=session, resource=rest[0] if rest else None, headers=headers, body=body,
                base_url=self.url, client_ip="127.0.0.1",
            )  # fmt: skip
            reply = await self.media.signal(session, request)
            fields = [*reply.headers, ("Content-Length", str(len(reply.body))), ("Connection", "close")]
            writer.write(f"HTTP/1.1 {reply.status} x\r\n".encode())
            writer.write("".join(f"{name}: {value}\r\n" for name, value in fields).encode() + b"\r\n" + reply.body)
        await writer.drain()
        writer.close()

    async def poll(self) -> None:
        """Poll every open input."""
        while True:
            await asyncio.sleep(POLL_S)
            for session in list(self.open):
                reply = await self.media.frame(session, FrameQuery(width=160))
                self.counts[type(reply).__name__] += 1

    def row(self) -> list[float]:
        """The figures of now."""
        info = libc.mallinfo2()
        return [
            self.closed,
            psutil.Process().memory_info().rss / 2**20,
            (info.uordblks + info.hblkhd) / 2**20,
            info.fordblks / 2**20,
            sys.getallocatedblocks(),
            len(gc.get_objects()),
            gc.get_stats()[2]["collections"],
        ]


def show(name: str, row: list[float]) -> None:
    """Print one row."""
    print(f"| {name} | " + " | ".join(f"{value:.1f}" if value % 1 else f"{value:.0f}" for value in row) + " |")


async def host(minutes: float, slots: int, seconds: float, trace: bool, directory: Path) -> None:
    """Run the media server, and the clients in a process of their own."""
    clip = directory / "clip.mp4"
    await asyncio.to_thread(render, clip)
    server = Host()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    running = [asyncio.create_task(server.media.run()), asyncio.create_task(server.poll())]
    gc.freeze()
    command = ["-m", "bench.media_memory", "--clients", server.url, str(clip), str(slots), str(seconds)]
    clients = await asyncio.create_subprocess_exec(sys.executable, *command)
    before = None
    print("| second | " + " | ".join(HEADS) + " |\n|" + "---|" * (len(HEADS) + 1))
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() - began < minutes * 60:
        await asyncio.sleep(SAMPLE_S)
        show(f"{loop.time() - began:.0f}", server.row())
        if trace and before is None and loop.time() - began > minutes * 20:
            tracemalloc.start(12)
            gc.collect()
            before = tracemalloc.take_snapshot()
    clients.terminate()
    await clients.wait()
    running[1].cancel()
    for session in list(server.open):
        server.media.close(session)
    await asyncio.sleep(3)
    show("all closed", server.row())
    print(f"collected {gc.collect()} unreachable objects")
    show("after a full collection", server.row())
    if before is not None:
        for line in tracemalloc.take_snapshot().compare_to(before, "lineno")[:20]:
            print(line)
    libc.malloc_trim(0)
    show("after malloc_trim", server.row())
    print(dict(server.counts), server.media.stats())
    running[0].cancel()
    await server.media.stop()


async def clients(url: str, clip: str, slots: int, seconds: float) -> None:
    """Publish and view in every slot until terminated."""

    async def view(session: str) -> None:
        await asyncio.sleep(1.0)
        with suppress(OfferRefusedError):
            await play(f"{url}/whep/{session}", seconds / 2)

    async def slot(number: int) -> None:
        await asyncio.sleep(number * seconds / slots)
        while True:
            session = str(uuid.uuid4())
            viewing = asyncio.create_task(view(session))
            await publish(clip, f"{url}/whip/{session}", seconds, asyncio.Event())
            await viewing
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
            writer.write(f"POST /close/{session} HTTP/1.1\r\n\r\n".encode())
            await reader.read()
            writer.close()

    await asyncio.gather(*(slot(number) for number in range(slots)))


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.media_memory", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--slots", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10, help="length of a session")
    parser.add_argument("--trace", action="store_true", help="show the lines that allocated what stays (slower)")
    parser.add_argument("--clients", nargs=4, metavar=("URL", "CLIP", "SLOTS", "SECONDS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.clients is not None:
        url, clip, slots, seconds = given.clients
        asyncio.run(clients(url, clip, int(slots), float(seconds)))
        return
    configure_logs("warning")
    with tempfile.TemporaryDirectory(prefix="sightline-memory-") as name:
        uvloop.run(host(given.minutes, given.slots, given.seconds, given.trace, Path(name)))


if __name__ == "__main__":
    main()
