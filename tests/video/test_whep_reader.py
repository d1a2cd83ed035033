"""The WHEP reader against unmodified aiortc, an independent stack: frames, liveness, exit of the engine."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from sightline.domain.value import replace
from sightline.ports.video import MediaKind, VideoInput
from sightline.system.clock import SystemClock
from sightline.video.external.engine import EngineInput, PresenceReport, open_external
from sightline.video.options import Options
from sightline.video.tokens import ref_of, session_of_ref
from sightline.video.worker.whep_reader import offered_sections
from sightline.video.worker_template import open_template
from tests.video.support.harness import SECRET, Recorder, a_frame, a_session_id, counter_of

OPTIONS = Options(secret=SECRET, public_url="http://unused", workers=1, takeover_grace_ms=500)


class StockEngine:
    """Points at the unmodified engine that runs now."""

    def __init__(self) -> None:
        self.port = 0

    async def open(self, session_id: str) -> EngineInput:
        described = VideoInput(ref=ref_of(session_id), whip_url="", whep_url="")
        url = f"http://127.0.0.1:{self.port}/{described.ref}/whep"
        return EngineInput(input=described, read_url=url, read_headers={"Authorization": "Bearer stock"})

    async def close(self, session_id: str) -> None:
        """Nothing to remove."""

    def describe(self, session_id: str) -> VideoInput | None:
        del session_id
        return None

    def session_of(self, ref: str) -> str | None:
        return session_of_ref(ref)

    async def end_withdrawn_viewers(self) -> None:
        """It has no viewers."""

    async def watch(self, report: PresenceReport) -> None:
        """Do nothing: presence comes from the reader alone."""


@asynccontextmanager
async def a_stock_engine(port_line: list[int]) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.video.support.stock_engine"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = b""
        with trio.fail_after(120):
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some(64)
        port_line.append(int(line))
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            with trio.move_on_after(5):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            await process.stdout.aclose()


async def test_frames_of_a_stock_aiortc_engine_are_read_and_its_death_is_noticed():
    engine = StockEngine()
    ports: list[int] = []
    options = replace(OPTIONS, lost_ms=3000)
    async with a_stock_engine(ports) as running:
        engine.port = ports[0]
        async with (
            open_template() as template,
            open_external(engine, options, template, clock=SystemClock()) as backend,
            trio.open_nursery() as nursery,
        ):
            seen = Recorder(backend=backend)
            nursery.start_soon(seen.record)
            made = await backend.create_input(a_session_id())
            await seen.heard(MediaKind.CONNECTED)
            frame = await a_frame(backend, made.ref)
            assert counter_of(frame.jpeg) is not None
            await seen.heard(MediaKind.FRAMES)
            running.kill()
            await seen.heard(MediaKind.DISCONNECTED)
            nursery.cancel_scope.cancel()


def test_an_engine_that_adds_silence_in_pcmu_finds_it_in_the_offer():
    audio = next(section for section in offered_sections() if section.kind == "audio")
    assert [codec.name for codec in audio.codecs] == ["OPUS", "PCMU"]
