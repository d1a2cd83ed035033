"""One seed gives one history: trio's private switch works as the simulator needs, and nothing else sets the order."""

import subprocess
import sys

import pytest
import trio

from simulation.runtime import SeededIds, SimWallClock, run_virtual, seeded_scheduler
from simulation.simulate import SEVERAL, simulate


async def scheduler_trace():
    """Run a copy of trio's own test of the switch: tasks that race through checkpoints."""
    trace = []

    async def tracer(name):
        for number in range(50):
            trace.append((name, number))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for name in range(5):
            nursery.start_soon(tracer, name)
    return tuple(trace)


def test_a_seed_decides_the_order_of_tasks():
    traces = [run_virtual(7, scheduler_trace) for _ in range(10)]
    assert len(set(traces)) == 1


def test_another_seed_is_another_order():
    traces = {run_virtual(seed, scheduler_trace) for seed in range(10)}
    assert len(traces) == 10


def test_the_switch_is_put_back():
    from trio._core import _run

    before = (_run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate())
    with seeded_scheduler(3):
        assert _run._ALLOW_DETERMINISTIC_SCHEDULING
    assert (_run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate()) == before


def test_virtual_time_jumps_over_waiting_and_stands_still_otherwise():
    async def main():
        clock = SimWallClock()
        start = clock.now_ms()
        for _ in range(1000):
            await trio.lowlevel.checkpoint()
        assert clock.now_ms() == start
        await trio.sleep(3600)
        return clock.now_ms() - start

    assert run_virtual(1, main) == 3_600_000


def test_deadlines_of_scopes_come_in_order():
    async def main():
        order = []

        async def wait(seconds):
            with trio.move_on_after(seconds):
                await trio.sleep_forever()
            order.append(seconds)

        async with trio.open_nursery() as nursery:
            for seconds in (3, 1, 2):
                nursery.start_soon(wait, seconds)
        return order

    assert run_virtual(1, main) == [1, 2, 3]


def test_ids_are_version_4_and_repeat_with_the_seed():
    import random
    import uuid

    first, second = SeededIds(random.Random("x")), SeededIds(random.Random("x"))
    assert [first.uuid() for _ in range(3)] == [second.uuid() for _ in range(3)]
    assert uuid.UUID(first.uuid()).version == 4
    assert first.token_bytes(4) != first.token_bytes(4)


@pytest.mark.parametrize("seed", [0, 6, 11])
def test_the_same_seed_twice_is_the_same_history(seed):
    first, second = simulate(seed), simulate(seed)
    assert first.trace_hash == second.trace_hash
    assert first.steps == second.steps > 0


def test_different_seeds_are_different_histories():
    assert len({simulate(seed, scenario="steady", active_s=20).trace_hash for seed in range(5)}) == 5


@pytest.mark.parametrize("scenario", [None, SEVERAL])
def test_hash_randomisation_and_another_process_change_nothing(scenario):
    code = f"from simulation.simulate import simulate; print(simulate(13, scenario={scenario!r}).trace_hash)"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True
        ).stdout
        for salt in ("1", "2")
    }
    assert hashes == {simulate(13, scenario=scenario).trace_hash + "\n"}
