"""Give a Pipecat pipeline the live video of a place, as an input transport gives it that of a caller.

pip install 'sightline-client[frames]' pipecat-ai==1.14.0
sightline dev                            # in another terminal; export the variables that it prints
python examples/pipecat_input.py 52.520008 13.404954 --frames 5 --budget 0.10
"""

import argparse
import asyncio
import io

from PIL import Image
from pipecat.frames.frames import CancelFrame, EndFrame, EndWorkerFrame, Frame, InputImageRawFrame, StartFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

from sightline_client import AsyncSightline, SightlineError, usdc


class SightlineInput(BaseInputTransport):
    """Puts frames of one view into the pipeline, and ends the view with the pipeline."""

    def __init__(self, lat: float, lng: float, *, fps: float = 1, budget: str = "0.10", seconds: int = 60) -> None:
        super().__init__(TransportParams(video_in_enabled=True))
        self._place, self._fps, self._budget, self._seconds = (lat, lng), fps, usdc(budget), seconds
        self._watching: asyncio.Task[None] | None = None
        self._is_left = False

    async def start(self, frame: StartFrame) -> None:
        """Begin to watch."""
        await super().start(frame)
        self._watching = asyncio.create_task(self._watch())
        await self.set_transport_ready(frame)

    async def stop(self, frame: EndFrame) -> None:
        """Leave the block of the view, which ends the session."""
        self._leave()
        await super().stop(frame)

    async def cancel(self, frame: CancelFrame) -> None:
        """Leave the block of the view, which ends the session."""
        self._leave()
        await super().cancel(frame)

    async def cleanup(self) -> None:
        """Wait until the server has confirmed the end."""
        self._leave()
        if self._watching is not None:
            await asyncio.wait([self._watching])
        await super().cleanup()

    def _leave(self) -> None:
        # Once: a task that is cancelled again while it ends the session leaves it to its lease of two minutes.
        if self._watching is not None and not self._is_left:
            self._is_left = self._watching.cancel()

    async def _watch(self) -> None:
        try:
            view = {"seconds": self._seconds, "max_charge": self._budget}
            async with AsyncSightline() as sl, sl.view(*self._place, **view) as live:
                async for frame in live.frames(fps=self._fps, width=768):
                    if frame.state == "lost":
                        continue  # the last picture of a camera that does not answer, not the present
                    picture = Image.open(io.BytesIO(frame.jpeg)).convert("RGB")
                    await self.push_video_frame(InputImageRawFrame(picture.tobytes(), picture.size, "RGB"))
        except SightlineError as error:
            await self.push_error(f"No video of this place: {error}", error)
        await self.push_frame(EndWorkerFrame(), FrameDirection.UPSTREAM)  # the view is over


class Count(FrameProcessor):
    """Stands for your processors: prints each picture, and ends the pipeline after some."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self._left = wanted

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputImageRawFrame) and self._left > 0:
            self._left -= 1
            print(f"{frame.size[0]} x {frame.size[1]} {frame.format}")
            if self._left == 0:
                await self.pipeline_worker.stop_when_done()
        await self.push_frame(frame, direction)


async def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lat", type=float)
    parser.add_argument("lng", type=float)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("--budget", default="0.10", help="USDC")
    options = parser.parse_args()
    camera = SightlineInput(options.lat, options.lng, budget=options.budget)
    runner = WorkerRunner()
    await runner.add_workers(PipelineWorker(Pipeline([camera, Count(options.frames)])))
    await runner.run()


if __name__ == "__main__":
    asyncio.run(main())
