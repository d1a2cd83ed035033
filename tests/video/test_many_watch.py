"""What one input costs when many look at it, or one that never answers."""

from itertools import pairwise
from pathlib import Path

import structlog
import trio

from sightline.ports.video import Frame, FrameQuery
from tests.video.support.harness import a_frame, a_rig, a_session_id, play_json, publishing
from tests.video.support.hostile import sending

POLLERS = 20
POLL_S, WATCH_S = 0.2, 4.0
SILENT_S = 12
log = structlog.get_logger()


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def test_twenty_pollers_share_each_decoded_and_each_encoded_picture():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        frames: list[list[Frame]] = [[] for _ in range(POLLERS)]

        async def poll(taken: list[Frame]) -> None:
            while True:
                reply = await rig.backend.frame(made.ref, FrameQuery(width=640))
                assert isinstance(reply, Frame), reply
                taken.append(reply)
                await trio.sleep(POLL_S)

        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            (before,) = await rig.backend.stats()
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for taken in frames:
                    nursery.start_soon(poll, taken)
                await trio.sleep(WATCH_S)  # the polls of this time are counted
                nursery.cancel_scope.cancel()
            seconds = trio.current_time() - began
            (after,) = await rig.backend.stats()
    polls = sum(map(len, frames))
    pictures = {frame.sequence for taken in frames for frame in taken}
    decoded, encoded = after["decoded"] - before["decoded"], after["encoded"] - before["encoded"]
    ages = sorted(frame.age_ms for taken in frames for frame in taken)
    log.info("pollers_measured", polls=polls, decoded=decoded, encoded=encoded, age_p95_ms=ages[len(ages) * 95 // 100])
    assert polls > 2 * POLLERS
    assert len(pictures) <= encoded <= len(pictures) + POLLERS, "once for each picture, not for each poller"
    assert decoded <= seconds * 40 + 60, "each frame of the stream once"
    assert all(one.sequence <= later.sequence for taken in frames for one, later in pairwise(taken))


async def test_a_viewer_that_never_reports_gets_every_packet_and_costs_no_memory_and_no_other_viewer():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            async with sending(made.whep_url, "silent") as silent:
                assert silent.stdout is not None
                counts: list[int] = []
                memory: list[float] = []
                with trio.fail_after(120):
                    async for text in silent.stdout:
                        (row,) = await rig.backend.stats()
                        counts += map(int, text.split())
                        memory.append(resident_mb(row["pid"]))
                        if len(counts) > SILENT_S:
                            break
                watched = await play_json(made.whep_url, 2.0)
    log.info("silent_viewer_measured", packets=counts, memory_mb=[round(each) for each in memory])
    steps = [later - one for one, later in pairwise(counts)]
    some = max(1, len(steps) // 4)  # single steps differ with the load of the machine
    assert sum(steps[-some:]) > 0.3 * sum(steps[:some]), "it is sent everything to the end"
    assert memory[-1] - memory[len(memory) // 2] < 10
    assert watched["frames"] > 3
