"""Plays a WHEP URL and counts decoded frames: `python -m sightline_client.video.play URL --seconds 5 --json`."""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any, Final, final

import av
from aiortc import RTCPeerConnection
from aiortc.mediastreams import MediaStreamError

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


async def play(url: str, seconds: float) -> PlayReport:
    """Play for `seconds` after the first frame, which must arrive within 10 s.

    Raises:
        OfferRefusedError: The server refused the offer.
    """
    tune_stock_peers()
    loop = asyncio.get_running_loop()
    report = PlayReport()
    began = loop.time()
    client, peer, track = await _connect(url, began, report)
    try:
        await _count(track, report, began, seconds)
    finally:
        await client.close()
        await peer.close()
    return report


async def _connect(url: str, began: float, report: PlayReport) -> tuple[OfferClient, RTCPeerConnection, Any]:
    """Retry the offer until a publisher is connected; returns (client, peer, video track)."""
    loop = asyncio.get_running_loop()
    while True:
        client = OfferClient(url)
        try:
            peer = await client.new_peer()
        except OfferRefusedError:
            await client.close()
            raise
        receiver = peer.addTransceiver("video", direction="recvonly").receiver

        def on_change(peer: RTCPeerConnection = peer, client: OfferClient = client) -> None:
            if peer.connectionState == "connected" and client.posted_at_s is not None:
                report.connected_ms = round((loop.time() - client.posted_at_s) * 1000)

        peer.on("connectionstatechange", on_change)
        try:
            await client.connect(peer)
        except OfferRefusedError as error:
            await client.close()
            await peer.close()
            if error.retry_after_s is None or loop.time() - began > IDLE_WAIT_S:
                raise
            await asyncio.sleep(min(1.0, error.retry_after_s))
        else:
            return client, peer, receiver.track


async def _count(track: Any, report: PlayReport, began: float, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + IDLE_WAIT_S
    while loop.time() < ends_at:
        try:
            async with asyncio.timeout(max(0.01, ends_at - loop.time())):
                frame = await track.recv()
        except (TimeoutError, MediaStreamError):
            return
        if isinstance(frame, av.VideoFrame):
            if not report.frames:
                report.first_frame_ms = round((loop.time() - began) * 1000)
                ends_at = loop.time() + seconds
            report.frames += 1
            report.width, report.height = frame.width, frame.height


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
        sys.stdout.write(f"{report.frames} frames of {report.width}x{report.height}\n")
    return 0 if report.frames else 1


if __name__ == "__main__":
    sys.exit(main())
