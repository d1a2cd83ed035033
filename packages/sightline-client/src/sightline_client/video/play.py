"""Plays a WHEP URL and counts what was decoded: `python -m sightline_client.video.play URL --seconds 5 --json`.

Connects again when this machine has got another address.
"""

import argparse
import asyncio
import json
import os
import sys
from array import array
from dataclasses import asdict, dataclass, field
from typing import Any, Final, final

import av
from aiortc import RTCPeerConnection
from aiortc.mediastreams import MediaStreamError

from sightline_client.video.route import LOOK_S
from sightline_client.video.stock_peers import tune_stock_peers
from sightline_client.video.whip_client import OfferClient, OfferRefusedError

URL_VARIABLE: Final = "SIGHTLINE_WHEP_URL"
"""Names the URL where a command line would show it to other accounts, which could then watch."""
IDLE_WAIT_S: Final = 10.0
"""How long to retry while no publisher is connected."""


@final
@dataclass(slots=True, kw_only=True)
class PlayReport:
    """Result of playing."""

    frames: int = 0
    width: int = 0
    height: int = 0
    connected_ms: int | None = None
    """From the POST of the offer to the connected transport."""
    first_frame_ms: int | None = None
    again_ms: list[int] = field(default_factory=list)
    """For each time that this machine lost its address: from then to the next frame."""
    audio_ms: int = 0
    """Decoded audio."""
    audio_peak: float = 0.0
    """Its highest level: 0 is silence, 1 full scale."""


@final
class _Played:
    """The report of one call, over all its connections."""

    def __init__(self, seconds: float) -> None:
        self.report = PlayReport()
        self._seconds = seconds
        self._now_s = asyncio.get_running_loop().time
        self.began_s = self._now_s()
        self._ends_at_s = self.began_s + IDLE_WAIT_S
        self._cut_off_at_s: float | None = None

    @property
    def left_s(self) -> float:
        return self._ends_at_s - self._now_s()

    def cut_off(self) -> None:
        self._cut_off_at_s = self._now_s()

    def take(self, frame: av.VideoFrame) -> None:
        report, now_s = self.report, self._now_s()
        if not report.frames:
            report.first_frame_ms = round((now_s - self.began_s) * 1000)
            self._ends_at_s = now_s + self._seconds
        if self._cut_off_at_s is not None:
            report.again_ms.append(round((now_s - self._cut_off_at_s) * 1000))
            self._cut_off_at_s = None
        report.frames += 1
        report.width, report.height = frame.width, frame.height


async def play(url: str, seconds: float) -> PlayReport:
    """Play for `seconds` after the first frame, which must arrive within 10 s.

    Raises:
        OfferRefusedError: The server refused the offer.
    """
    tune_stock_peers()
    played = _Played(seconds)
    while True:
        client, peer, video, audio = await _connect(url, played)
        hearing = asyncio.create_task(_hear(audio, played.report))
        try:
            await _count(client, video, played)
        finally:
            hearing.cancel()
            await client.close()
            await peer.close()
        if client.route is None or not client.is_cut_off or played.left_s <= 0:
            return played.report
        played.cut_off()
        try:
            async with asyncio.timeout(played.left_s):
                await client.route.another()
        except TimeoutError:
            return played.report


async def _connect(url: str, played: _Played) -> tuple[OfferClient, RTCPeerConnection, Any, Any]:
    """Retry the offer until a publisher is connected; returns (client, peer, video track, audio track)."""
    loop = asyncio.get_running_loop()
    while True:
        client = OfferClient(url)
        try:
            peer = await client.new_peer()
        except OfferRefusedError:
            await client.close()
            raise
        video, audio = (peer.addTransceiver(kind, direction="recvonly").receiver for kind in ("video", "audio"))

        def on_change(peer: RTCPeerConnection = peer, client: OfferClient = client) -> None:
            if peer.connectionState == "connected" and client.posted_at_s is not None:
                played.report.connected_ms = round((loop.time() - client.posted_at_s) * 1000)

        peer.on("connectionstatechange", on_change)
        try:
            await client.connect(peer)
        except OfferRefusedError as error:
            await client.close()
            await peer.close()
            if error.retry_after_s is None or loop.time() - played.began_s > IDLE_WAIT_S:
                raise
            await asyncio.sleep(min(1.0, error.retry_after_s))
        else:
            return client, peer, video.track, audio.track


async def _count(client: OfferClient, track: Any, played: _Played) -> None:
    """Count frames until the time is over, the stream ends, or this machine loses its address."""
    while (left_s := played.left_s) > 0 and not client.is_cut_off:
        try:
            async with asyncio.timeout(min(LOOK_S, left_s)):
                frame = await track.recv()
        except TimeoutError:
            continue
        except MediaStreamError:
            return
        if isinstance(frame, av.VideoFrame):
            played.take(frame)


async def _hear(track: Any, report: PlayReport) -> None:
    """Measure the audio until it ends. aiortc decodes Opus to 16-bit samples."""
    while True:
        try:
            frame = await track.recv()
        except MediaStreamError:
            return
        if isinstance(frame, av.AudioFrame):
            samples = array("h", bytes(frame.planes[0]))
            report.audio_ms += round(frame.samples * 1000 / frame.sample_rate)
            report.audio_peak = max(report.audio_peak, max(samples) / 32_768, -min(samples) / 32_768)


def main() -> int:
    """The command line; exit code 0 if at least one frame was decoded."""
    parser = argparse.ArgumentParser(description="Play a WHEP URL and count frames.")
    parser.add_argument("url", nargs="?", default=os.environ.get(URL_VARIABLE))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    given = parser.parse_args()
    if given.url is None:
        parser.error(f"name a WHEP URL, or set {URL_VARIABLE}")
    try:
        report = asyncio.run(play(given.url, given.seconds))
    except OfferRefusedError as error:
        sys.stderr.write(f"play: {error}\n")
        return 1
    if given.json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
    else:
        sound = f", {report.audio_ms / 1000:.1f} s of audio" if report.audio_ms else ""
        sys.stdout.write(f"{report.frames} frames of {report.width}x{report.height}{sound}\n")
    return 0 if report.frames else 1


if __name__ == "__main__":
    sys.exit(main())
