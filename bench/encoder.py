"""A publisher that answers keyframe requests like the encoder of a browser or a phone; a file cannot.

Live encoding would use the cores that are measured. Therefore a clip is encoded ten times beforehand, with the same
keyframe interval but with keyframes three frames later in each rendition. To answer a request, the publisher switches
to the rendition whose keyframe is next, at most two frames later. `python -m bench.encoder RENDITIONS --whip URL`.
"""

import argparse
import asyncio
import pickle
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, final

import av
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCRtpSender
from av.video.frame import PictureType

from sightline_client.video.stock_peers import tune_stock_peers
from sightline_client.video.whip_client import OfferClient

RATE: Final = 30
STEP: Final = 3
"""Offset in frames between the keyframes of successive renditions."""
Renditions = list[list[bytes]]


def encode(images: list[Any], *, first_key: int, kbit: int) -> list[bytes]:
    """Encode to Annex B packets, one per picture, with one keyframe a second from picture `first_key` on."""
    context: Any = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = images[0].width, images[0].height, "yuv420p"
    context.time_base, context.framerate = Fraction(1, RATE), Fraction(RATE)
    context.options = {
        "profile": "baseline", "level": "3.1", "preset": "fast", "forced-idr": "1",
        "b": f"{kbit}k", "maxrate": f"{kbit}k", "bufsize": f"{kbit}k",
        "x264-params": f"keyint={RATE}:min-keyint=1:scenecut=0:bframes=0",
    }  # fmt: skip
    packets: list[bytes] = []
    for index, image in enumerate(images):
        image.pts, image.time_base = index, Fraction(1, RATE)
        image.pict_type = PictureType.I if index % RATE == first_key else PictureType.NONE
        packets += [bytes(packet) for packet in context.encode(image)]
    return packets + [bytes(packet) for packet in context.encode(None)]


def prepare(clip: Path, target: Path, kbit: int) -> None:
    """Write the renditions of a clip; takes about a minute."""
    with av.open(str(clip)) as container:
        images = list(container.decode(video=0))
    renditions = [encode(images, first_key=first, kbit=kbit) for first in range(0, RATE, STEP)]
    assert all(len(rendition) == len(images) for rendition in renditions)
    target.write_bytes(pickle.dumps(renditions))


@final
class EncoderTrack(MediaStreamTrack):
    """Sends the renditions at 30 frames a second in an endless loop."""

    kind = "video"

    def __init__(self, renditions: Renditions) -> None:
        super().__init__()
        self._renditions = renditions
        self._current = 0
        self._index = 0
        self._start: float | None = None
        self._wanted = False

    def key_wanted(self) -> None:
        """Handle a keyframe request of the receiver."""
        self._wanted = True

    async def recv(self) -> Any:
        """Return the next packet at its presentation time."""
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start = loop.time()
        await asyncio.sleep(self._start + self._index / RATE - loop.time())
        at = self._index % len(self._renditions[0])
        if self._wanted and at % STEP == 0:
            self._wanted = False
            self._current = at % RATE // STEP
        packet = av.Packet(self._renditions[self._current][at])
        packet.pts, packet.time_base = self._index * 90_000 // RATE, Fraction(1, 90_000)
        self._index += 1
        return packet


async def publish(renditions: Renditions, whip_url: str) -> None:
    """Publish until SIGTERM."""
    tune_stock_peers()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    peer, client = RTCPeerConnection(RTCConfiguration(iceServers=[])), OfferClient(whip_url)
    track = EncoderTrack(renditions)
    transceiver = peer.addTransceiver(track, direction="sendonly")
    known = RTCRtpSender.getCapabilities("video").codecs
    transceiver.setCodecPreferences([codec for codec in known if codec.mimeType in ("video/H264", "video/rtx")])
    # aiortc reports keyframe requests only to its own encoders, but these packets are already encoded.
    transceiver.sender._send_keyframe = track.key_wanted  # type: ignore[method-assign]  # noqa: SLF001  its only hook
    try:
        await client.connect(peer)
        await stop.wait()
    finally:
        await client.close()
        await peer.close()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="bench.encoder", description=__doc__.partition("\n")[0])
    parser.add_argument("renditions", type=Path)
    parser.add_argument("--whip", required=True, metavar="URL")
    given = parser.parse_args()
    asyncio.run(publish(pickle.loads(given.renditions.read_bytes()), given.whip))


if __name__ == "__main__":
    main()
