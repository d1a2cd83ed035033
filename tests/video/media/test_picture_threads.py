"""Inputs share the threads of a worker: one that uses much does not delay the others."""

import asyncio
import threading
from functools import partial

from sightline.video.media.decoder_budget import DecoderBudget
from sightline.video.media.picture_threads import PictureShare, PictureThreads


class Clocks:
    """Monotonic time, and the processor time that the next jobs report."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._cpu = threading.local()

    def spend(self, seconds: float) -> None:
        self._cpu.seconds = self.cpu_s() + seconds

    def cpu_s(self) -> float:
        return float(getattr(self._cpu, "seconds", 0.0))


def on_threads(work) -> None:
    async def run() -> None:
        clocks = Clocks()
        threads = PictureThreads(mono_ms=lambda: clocks.now_ms, cpu_s=clocks.cpu_s)
        try:
            await asyncio.wait_for(work(threads, clocks), 60)
        finally:
            threads.stop()

    asyncio.run(run())


async def known(share: PictureShare, clocks: Clocks, seconds: float) -> None:
    await share.run(lambda: clocks.spend(seconds))


def test_a_light_input_runs_while_heavy_ones_hold_their_thread():
    async def work(threads: PictureThreads, clocks: Clocks) -> None:
        heavy, light = [threads.share() for _ in range(5)], threads.share()
        for share in heavy:
            await known(share, clocks, 1.0)
        await known(light, clocks, 0.005)
        leave = threading.Event()
        held = [asyncio.ensure_future(share.run(lambda: leave.wait(60))) for share in heavy]
        assert await light.run(lambda: "a picture") == "a picture"
        assert not any(each.done() for each in held)
        leave.set()
        assert await asyncio.gather(*held) == [True] * 5

    on_threads(work)


def test_of_two_inputs_the_one_that_used_less_goes_first():
    async def work(threads: PictureThreads, clocks: Clocks) -> None:
        shares = [threads.share() for _ in range(3)]
        for share, seconds in zip(shares, (0.09, 0.05, 0.01), strict=True):
            await known(share, clocks, seconds)
        blocker = [threads.share() for _ in range(2)]
        for share in blocker:
            await known(share, clocks, 0.0)
        one_leaves, other_leaves = threading.Event(), threading.Event()
        one = asyncio.ensure_future(blocker[0].run(lambda: one_leaves.wait(60)))
        other = asyncio.ensure_future(blocker[1].run(lambda: other_leaves.wait(60)))
        order: list[int] = []
        waiting = [asyncio.ensure_future(share.run(partial(order.append, index))) for index, share in enumerate(shares)]
        await asyncio.sleep(0)  # each has asked
        one_leaves.set()
        await asyncio.gather(one, *waiting)
        assert order == [2, 1, 0], "one thread, since the other is held"
        other_leaves.set()
        assert await other

    on_threads(work)


def test_an_input_is_light_again_after_a_while():
    async def work(threads: PictureThreads, clocks: Clocks) -> None:
        share = threads.share()
        assert share.is_heavy(0), "nothing is known of its jobs"
        await known(share, clocks, 0.005)
        assert not share.is_heavy(0)
        await known(share, clocks, 3.0)
        assert share.is_heavy(9_000)
        assert not share.is_heavy(11_000)

    on_threads(work)


def test_an_error_and_a_cancellation_reach_only_their_caller():
    async def work(threads: PictureThreads, clocks: Clocks) -> None:
        share = threads.share()

        def fail() -> None:
            raise ValueError("damaged")

        failed = asyncio.ensure_future(share.run(fail))
        dropped = asyncio.ensure_future(share.run(lambda: None))
        await asyncio.sleep(0)
        dropped.cancel()
        assert isinstance((await asyncio.gather(failed, return_exceptions=True))[0], ValueError)
        assert await share.run(lambda: 7) == 7

    on_threads(work)


class Holder:
    def __init__(self, polled_ms: int) -> None:
        self.polled_ms = polled_ms
        self.sleeps = 0

    def sleep(self) -> None:
        self.sleeps += 1


def test_the_largest_decoders_are_released_first_and_of_equal_ones_the_oldest_poll():
    budget = DecoderBudget(100)
    small, old, new = Holder(0), Holder(1), Holder(2)
    budget.note(small, 10)
    budget.note(new, 45)
    budget.note(old, 45)
    assert (small.sleeps, old.sleeps, new.sleeps) == (0, 0, 0)
    budget.note(small, 20)
    assert (small.sleeps, old.sleeps, new.sleeps) == (0, 1, 0)
    budget.note(old, 45)
    assert (small.sleeps, old.sleeps, new.sleeps) == (0, 2, 0)
    budget.note(new, 0)
    budget.note(old, 45)
    assert (small.sleeps, old.sleeps, new.sleeps) == (0, 2, 0)
