"""Many cameras in one process, for the soak test: each is an operator's device that publishes a small clip.

Reads one line of JSON from stdin: the server's URL, a clip, and the key and place of each camera. Runs until SIGTERM.
`sightline device` does the same with a process per camera and one per session, which needs far more CPU.
"""

import asyncio
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import av

from sightline_client.models import Session
from sightline_client.operator import Operator, Position, operator_client
from sightline_client.video.assets import clip_path
from sightline_client.video.publish import publish

WIDTH: Final = 320
HEIGHT: Final = 180
FPS: Final = 10


def render(path: Path) -> None:
    """Render the demo clip with 10 frames a second in 320x180, one keyframe a second."""
    with av.open(str(clip_path())) as source, av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=FPS, options={"profile": "baseline", "g": str(FPS), "bf": "0"})
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = WIDTH, HEIGHT, "yuv420p", 150_000
        for number, frame in enumerate(source.decode(video=0)):
            if number % 3 == 0:
                small = frame.reformat(WIDTH, HEIGHT, "yuv420p")
                small.pts, small.time_base = number // 3, Fraction(1, FPS)
                out.mux(stream.encode(small))
        out.mux(stream.encode(None))


async def camera(url: str, clip: str, key: str, position: Position, publishers: set["asyncio.Task[None]"]) -> None:
    """Run one operator's device until cancelled."""

    async def film(session: Session) -> None:
        stop = asyncio.Event()
        # A task of its own, because a publisher that is cancelled could not say goodbye to the server.
        task = asyncio.create_task(publish(clip, str(session.whip_url), None, stop))
        publishers.add(task)
        task.add_done_callback(publishers.discard)
        try:
            await asyncio.wait([task])
        finally:
            stop.set()

    async with operator_client(url, key) as client:
        await Operator(client, position=lambda: position, publish=film).run()


async def main(job: dict[str, Any]) -> None:
    """Run all cameras."""
    publishers: set[asyncio.Task[None]] = set()
    places = [(each["key"], Position(lat=each["lat"], lng=each["lng"])) for each in job["cameras"]]
    await asyncio.gather(*(camera(job["url"], job["clip"], key, place, publishers) for key, place in places))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
