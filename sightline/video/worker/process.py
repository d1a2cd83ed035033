"""A media worker process, which the server has forked from a template.

Exchanges `ipc` messages over its first socket and exits when it closes, so that it does not outlive the server. Its
second socket passes TCP connections of clients. Requests are
`{id, op, ...}` and answered `{id, ok, ...}` in any order; media events are sent as `{events: [...]}`, one batch per
iteration of the event loop.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final, final

import structlog
import uvloop
from msgspec.structs import asdict

from sightline.ports.video import MediaKind
from sightline.system.clock import SystemClock, boot_now_ms
from sightline.system.ids import SystemIds
from sightline.system.logs import configure_logs
from sightline.video.ipc import messages
from sightline.video.ipc.framing import BrokenPipeMessageError, Decoder, Header, encode
from sightline.video.rtc.selftest import check_addresses
from sightline.video.rtc.tcp_frames import FRAME_MAX_BYTES
from sightline.video.worker.media_server import MediaServer
from sightline.video.worker.memory import MemoryLimit
from sightline.video.worker.template import await_fork

READ_BYTES: Final = 256 * 1024
log = structlog.get_logger()


@final
class Worker:
    """Connects one MediaServer to the server process."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._clock = SystemClock()
        self._media_server: MediaServer | None = None
        self._events: list[list[Any]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def _emit(
        self, session_id: str, kind: MediaKind, at_ms: int, viewers: Sequence[str] = (), receiving: Sequence[str] = ()
    ) -> None:
        if not self._events:
            asyncio.get_running_loop().call_soon(self._flush_events)
        self._events.append([session_id, kind.value, at_ms, viewers, receiving])

    def _flush_events(self) -> None:
        events, self._events = self._events, []
        self._writer.write(encode({"events": events, "clock_offset_ms": self._clock.now_ms() - boot_now_ms()}))

    def take_connection(self, connections: socket.socket) -> None:
        """Take one TCP connection that the server has passed on, with its first packet."""
        packet, descriptors, _, _ = socket.recv_fds(connections, FRAME_MAX_BYTES, 1)
        for descriptor in descriptors:
            sock = socket.socket(fileno=descriptor)
            if self._media_server is None or not self._media_server.take_connection(sock, packet):
                sock.close()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Handle requests until the server closes the socket."""
        decoder = Decoder()
        async with asyncio.TaskGroup() as group:
            ticking: asyncio.Task[None] | None = None
            while data := await reader.read(READ_BYTES):
                for header, body in decoder.feed(data):
                    if header["op"] == "configure":
                        options = messages.options_from_wire(header["options"])
                        MemoryLimit(options.worker_memory_mb).start()
                        self._media_server = MediaServer(options, clock=self._clock, ids=SystemIds(), emit=self._emit)
                        ticking = group.create_task(self._media_server.run())
                        self._writer.write(encode({"id": header["id"], "ok": True}))
                    else:
                        task = asyncio.create_task(self._answer(header, body))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
            if ticking is not None:
                ticking.cancel()
        if self._media_server is not None:
            await self._media_server.stop()

    async def _answer(self, header: Header, body: bytes) -> None:
        assert self._media_server is not None
        reply: Header
        payload = b""
        try:
            reply, payload = await self._perform(self._media_server, header, body)
            reply["ok"] = True
        except Exception as error:
            log.exception("media_request_failed", op=header["op"])
            reply = {"ok": False, "error": type(error).__name__}
        reply["id"] = header["id"]
        self._writer.write(encode(reply, payload))

    async def _perform(self, media_server: MediaServer, header: Header, body: bytes) -> tuple[Header, bytes]:
        op = header["op"]
        if op == "frame":
            return messages.frame_to_wire(
                await media_server.frame(header["session"], messages.query_from_wire(header["query"]))
            )
        if op == "clip":
            return messages.clip_to_wire(await media_server.clip(header["session"], header["seconds"]))
        if op == "signal":
            request = messages.request_from_wire(header["request"], body)
            return messages.reply_to_wire(await media_server.signal(header["session"], request, header["viewer"]))
        if op == "open":
            for entry in header["inputs"]:
                media_server.open(entry["session"], read=entry["read"])
        elif op == "close":
            media_server.close(header["session"])
        elif op == "self_test":
            checks = await check_addresses(media_server.net)
            return {"checks": [asdict(check) for check in checks]}, b""
        elif op == "viewer_tokens":
            return {"tokens": media_server.viewer_tokens()}, b""
        elif op == "end_viewers":
            return {"ended": media_server.end_viewers(frozenset(header["tokens"]))}, b""
        elif op == "stats":
            return {"stats": media_server.stats()}, b""
        else:
            raise ValueError(f"unknown op {op!r}")
        return {}, b""


async def _main(own: socket.socket, connections: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=own)
    sys.setswitchinterval(0.0005)  # a decoding thread must not hold up packets for the default 5 ms
    worker = Worker(writer)
    connections.setblocking(False)
    asyncio.get_running_loop().add_reader(connections.fileno(), worker.take_connection, connections)
    try:
        await worker.serve(reader)
    except* (ConnectionError, BrokenPipeMessageError):
        # The server has exited or closed the socket to stop this worker.
        pass
    finally:
        asyncio.get_running_loop().remove_reader(connections.fileno())
        connections.close()


def main() -> None:
    """Run the template, and each worker on uvloop, logging JSON to stderr."""
    # Ctrl-C and a service manager's SIGTERM reach the whole process group. The server stops its workers by closing
    # their sockets after it has drained, so workers ignore both signals.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sockets = await_fork()
    if sockets is not None:
        configure_logs()
        uvloop.run(_main(*sockets))


if __name__ == "__main__":
    main()
