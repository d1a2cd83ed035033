"""Publishes a file (in a loop) or a camera by WHIP, without encoding.

Command: `python -m sightline_client.video.publish SOURCE --whip URL`, or both by the environment.

Uses stock aiortc, independent of the server's own transport. Reconnects when the connection is lost, at once if this
machine has got another address. With --until-stdin-ends it dies with the program that started it.
"""

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from fractions import Fraction
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, final

import av
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCRtpSender
from aiortc.mediastreams import MediaStreamError

from sightline_client.video.live_source import LiveTrack, SourceLostError, UnusableSourceError, is_live, open_live_track
from sightline_client.video.route import LOOK_S, Route
from sightline_client.video.stock_peers import tune_stock_peers
from sightline_client.video.whip_client import OfferClient, OfferRefusedError

SOURCE_VARIABLE: Final = "SIGHTLINE_SOURCE"
"""Names the source where a command line would show the password of a camera's URL to other accounts."""
WHIP_VARIABLE: Final = "SIGHTLINE_WHIP_URL"
"""The same for the WHIP URL, with which anybody can take over the input."""
CONNECT_S: Final = 10.0
STOP_GRACE_S: Final = 1.5
CLOSE_S: Final = 1.0
ORPHAN_GRACE_S: Final = 5.0
"""How long a publisher whose parent died may take to end its session at the server."""
RETRY_S: Final = (0.5, 1.0, 2.0, 3.0)
GIVE_UP_AFTER_S: Final = 90.0
"""How long a publisher that was connected retries."""
OPENINGS_MAX: Final = 4
"""How often a source that was never opened is tried: about 7 s where it answers at once."""
TERMINATED_MAX: Final = 3
"""How often the first publication is repeated where MediaMTX ended it."""
OPENS: Final = (
    "It is not a video that can be read, or a camera that is off or in use. Name a camera that sends H.264, by its URL "
    "(rtsp://...) or as /dev/video0, or a video file"
)
NOT_LIVE: Final = (
    ". The URL to publish to lives as long as its session: start the session, or take the URL of one that runs "
    "(`whipUrl` of POST /sessions/{id}/start)"
)
MIME_TYPES: Final = {"h264": "video/H264", "vp8": "video/VP8"}


class UnusableFileError(Exception):
    """The file cannot be published; the message says why and what to do."""


@final
class FileTrack(MediaStreamTrack):
    """The encoded video packets of a file, paced by their timestamps, in an endless loop."""

    kind = "video"

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            container = av.open(str(path))
        except av.InvalidDataError as error:
            wanted = "Name a video file (H.264 or VP8), the URL of a camera (rtsp://...) or /dev/video0"
            raise UnusableFileError(f"cannot read {path}: it is no video. {wanted}") from error
        except (OSError, av.FFmpegError) as error:
            raise UnusableFileError(f"cannot read {path}: {error.strerror or error}") from error
        with container:
            if not container.streams.video:
                raise UnusableFileError(f"{path} has no video")
            stream = container.streams.video[0]
            self.codec = stream.codec_context.name
            if self.codec not in MIME_TYPES:
                raise UnusableFileError(
                    f"{path} is {self.codec}; publish H.264 or VP8 (ffmpeg -i IN -c:v libx264 -profile:v baseline "
                    "-bf 0 -g 30 OUT.mp4)"
                )
            self._packets = _read_packets(container, stream)
        if not self._packets:
            raise UnusableFileError(f"{path} has no video packets")
        self._loop_ticks = self._packets[-1][1] + self._packets[-1][1] // max(1, len(self._packets) - 1)
        self._index = 0
        self._round = 0
        self._start: float | None = None

    async def recv(self) -> Any:
        """The next packet, at its presentation time."""
        if self.readyState != "live":
            raise MediaStreamError
        if self._index == len(self._packets):
            self._index = 0
            self._round += 1
        data, ticks = self._packets[self._index]
        self._index += 1
        ticks += self._round * self._loop_ticks
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start = loop.time() - ticks / 90_000
        await asyncio.sleep(self._start + ticks / 90_000 - loop.time())
        packet = av.Packet(data)
        packet.pts, packet.time_base = ticks, Fraction(1, 90_000)
        return packet


def _read_packets(container: Any, stream: Any) -> list[tuple[bytes, int]]:
    """(bytes, start in 1/90000 s) of every packet; Annex B for H.264."""
    annex_b = None
    if stream.codec_context.name == "h264":
        annex_b = av.BitStreamFilterContext("h264_mp4toannexb", stream)
    packets: list[tuple[bytes, int]] = []
    base = float(stream.time_base)
    first: float | None = None
    newest = -(1 << 62)
    for packet in container.demux(stream):
        if packet.size == 0 or packet.pts is None:
            continue
        if packet.pts < newest:
            raise UnusableFileError("the file has B-frames, which WebRTC cannot carry; encode it with -bf 0")
        newest = packet.pts
        at_s = float(packet.pts) * base
        first = at_s if first is None else first
        ticks = round((at_s - first) * 90_000)
        parts = annex_b.filter(packet) if annex_b is not None else [packet]
        packets.extend((bytes(part), ticks) for part in parts)
    return packets


async def _open_track(source: str) -> FileTrack | LiveTrack:
    return await open_live_track(source) if is_live(source) else FileTrack(Path(source))


async def publish(source: str, whip_url: str, seconds: float | None, stop: asyncio.Event) -> None:
    """Publish until `stop` is set or `seconds` are over. A camera that is lost is opened again.

    Raises:
        UnusableFileError, UnusableSourceError: The source cannot be published, or was never opened.
        OfferRefusedError: The server refused the first offer, or every offer for 90 s after a lost connection.
    """
    if not is_live(source):
        FileTrack(Path(source)).stop()  # report an unusable file before connecting
    tune_stock_peers()
    loop = asyncio.get_running_loop()
    ends_at = None if seconds is None else loop.time() + seconds
    connected_once, failures, lost_at = False, 0, 0.0
    while not stop.is_set() and (ends_at is None or loop.time() < ends_at):
        lost: Route | None = None
        try:
            lost = await _publish_once(source, whip_url, ends_at, stop)
            connected_once, failures = True, 0
        except SourceLostError as error:
            if not connected_once and (not error.is_passing or failures + 1 >= OPENINGS_MAX):
                raise UnusableSourceError(f"{error}. {OPENS}") from error
            sys.stderr.write(f"publish: {error}; trying again\n")
        except OfferRefusedError as error:
            is_late = loop.time() - lost_at > GIVE_UP_AFTER_S
            if is_late if connected_once else not error.is_terminated or failures >= TERMINATED_MAX:
                raise
            sys.stderr.write(f"publish: {error}; trying again\n")
        if not failures:
            lost_at = loop.time()
        failures += 1
        if lost is None:
            await _wait_any(stop, RETRY_S[min(failures, len(RETRY_S)) - 1])
        else:
            sys.stderr.write("publish: this machine has lost its address; connecting again\n")
            await _wait_unless(stop, lost.another(), GIVE_UP_AFTER_S)


async def _publish_once(source: str, whip_url: str, ends_at: float | None, stop: asyncio.Event) -> Route | None:
    """Run one connection until it is lost or stopped, or the time is over.

    Returns:
        How the server was reached, if this machine has lost its address.
    """
    loop = asyncio.get_running_loop()
    track = await _open_track(source)
    client = OfferClient(whip_url)
    peer: RTCPeerConnection | None = None
    changed = asyncio.Event()
    track.on("ended", changed.set)
    try:
        peer = await client.new_peer()
        peer.on("connectionstatechange", changed.set)
        transceiver = peer.addTransceiver(track, direction="sendonly")
        wanted = (MIME_TYPES[track.codec], "video/rtx")
        known = RTCRtpSender.getCapabilities("video").codecs
        transceiver.setCodecPreferences([codec for codec in known if codec.mimeType in wanted])
        await client.connect(peer)
        deadline = loop.time() + CONNECT_S
        while peer.connectionState not in ("connected", "failed", "closed") and loop.time() < deadline:
            changed.clear()
            await _wait_any(changed, deadline - loop.time())
        if peer.connectionState != "connected":
            raise OfferRefusedError(
                "media did not connect: open UDP to the server, or give it a TURN server in SIGHTLINE_VIDEO_ICE_SERVERS"
            )
        sys.stdout.write("connected\n")
        sys.stdout.flush()
        while peer.connectionState == "connected" and track.readyState == "live" and not stop.is_set():
            changed.clear()
            left = LOOK_S if ends_at is None else min(LOOK_S, ends_at - loop.time())
            if left <= 0:
                break
            if client.is_cut_off:
                break
            await _wait_unless(stop, changed.wait(), left)
        return client.route if client.is_cut_off else None
    finally:
        track.stop()
        # A server that is down answers no DELETE, and stopping must not take long.
        for close in (client.close, *((peer.close,) if peer is not None else ())):
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await close()


async def _wait_any(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, at_most_s)):
            await event.wait()
    except TimeoutError:
        pass


async def _wait_unless(stop: asyncio.Event, work: Coroutine[Any, Any, object], at_most_s: float) -> None:
    """Wait for the work, but not longer than until `stop` is set or the time is over."""
    waits = [asyncio.create_task(stop.wait()), asyncio.create_task(work)]
    try:
        await asyncio.wait(waits, timeout=at_most_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def publish_source(source: str, whip_url: str, seconds: float | None = None) -> int:
    """Publish a file or a camera until SIGTERM, Ctrl-C or `seconds` are over; blocks. Returns an exit code."""

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        work = asyncio.create_task(publish(source, whip_url, seconds, stop))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
        # A connected publisher ends by itself once `stop` is set; one that is still connecting is cancelled.
        await asyncio.wait((work,), timeout=STOP_GRACE_S)
        stopped.cancel()
        if not work.cancel():
            await work

    try:
        asyncio.run(run())
    except (UnusableFileError, UnusableSourceError, OfferRefusedError) as error:
        is_unknown = isinstance(error, OfferRefusedError) and error.status == HTTPStatus.NOT_FOUND
        sys.stderr.write(f"publish: {error}{NOT_LIVE if is_unknown else ''}\n")
        return 1
    return 0


def check_source(source: str) -> int:
    """Open a file once, and look for a device. Returns 1 if it cannot be published, and prints why.

    The source of a URL is not opened: a camera may be switched on later.
    """

    async def open_file() -> None:
        FileTrack(Path(source)).stop()

    try:
        if not is_live(source):
            asyncio.run(open_file())
        elif source.startswith("/dev/") and not Path(source).exists():
            raise UnusableFileError(f"{source} does not exist")
    except UnusableFileError as error:
        sys.stderr.write(f"{error}. Check --source.\n")
        return 1
    return 0


def _end_with_stdin() -> None:
    """Stop this process like SIGTERM when stdin ends, and at once if it has not stopped after ORPHAN_GRACE_S.

    The system closes the parent's end of the pipe however the parent dies, also by SIGKILL, and on each system.
    """
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE_S)
    os._exit(1)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Publish a file or a camera by WHIP.")
    parser.add_argument("source", nargs="?", default=os.environ.get(SOURCE_VARIABLE))
    parser.add_argument("--whip", default=os.environ.get(WHIP_VARIABLE), metavar="URL")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--check", action="store_true", help="Only check that the source can be published.")
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="Stop when stdin, a pipe of the parent, ends: at its death."
    )
    given = parser.parse_args()
    if given.until_stdin_ends:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    if given.source is None:
        parser.error(f"name a source, or set {SOURCE_VARIABLE}")
    if given.check:
        return check_source(given.source)
    if given.whip is None:
        parser.error(f"give --whip, or set {WHIP_VARIABLE}")
    return publish_source(given.source, given.whip, given.seconds)


if __name__ == "__main__":
    sys.exit(main())
