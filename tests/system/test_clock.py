"""Server time against a wall clock that is set back and forth."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sightline.system.clock import SystemClock

HOUR_MS = 3_600_000
START_MS = 1_800_000_000_000


@dataclass
class Machine:
    """A machine's clocks, in milliseconds."""

    wall_ms: int = START_MS
    boot_ms: int = 77_000

    def clock(self) -> SystemClock:
        return SystemClock(wall_ns=lambda: self.wall_ms * 1_000_000, boot_ns=lambda: self.boot_ms * 1_000_000)

    def run(self, ms: int) -> None:
        self.wall_ms += ms
        self.boot_ms += ms

    def step(self, ms: int) -> None:
        self.wall_ms += ms


def test_server_time_is_the_wall_clocks() -> None:
    machine = Machine()
    clock = machine.clock()
    for passed_ms in (0, 1, 999, 1_000, 60_000):
        machine.run(passed_ms)
        assert clock.now_ms() == machine.wall_ms


def test_a_step_back_lets_server_time_run_on() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.run(10_000)
    before_ms = clock.now_ms()
    machine.step(-HOUR_MS)
    assert clock.now_ms() == before_ms
    machine.run(20_000)
    assert 19_700 <= clock.now_ms() - before_ms <= 20_000


def test_after_a_step_back_both_clocks_agree_again() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.step(-10_000)
    for _ in range(1_100):
        machine.run(1_000)
        clock.now_ms()
    assert clock.now_ms() == machine.wall_ms


def test_a_step_forward_is_followed_within_a_second() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.step(HOUR_MS)
    machine.run(1_000)
    assert clock.now_ms() == machine.wall_ms


def test_a_step_back_that_is_taken_back_leaves_no_trace() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.step(-HOUR_MS)
    machine.run(2_000)
    clock.now_ms()
    machine.step(HOUR_MS)
    machine.run(2_000)
    assert clock.now_ms() == machine.wall_ms


def test_a_machine_that_slept_is_not_a_step() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.run(8 * HOUR_MS)
    assert clock.now_ms() == machine.wall_ms


def test_server_time_continues_from_what_is_stored() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.advance_to(START_MS + HOUR_MS, at_most_ms=24 * HOUR_MS)
    assert clock.now_ms() == START_MS + HOUR_MS
    machine.run(500)
    assert clock.now_ms() == START_MS + HOUR_MS + 500
    clock.advance_to(START_MS, at_most_ms=24 * HOUR_MS)
    assert clock.now_ms() == START_MS + HOUR_MS + 500


def test_server_time_does_not_follow_rows_of_another_month() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.advance_to(START_MS + 40 * 24 * HOUR_MS, at_most_ms=24 * HOUR_MS)
    assert clock.now_ms() == START_MS


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(-HOUR_MS, HOUR_MS), st.booleans()), max_size=40))
def test_server_time_never_decreases_and_never_falls_behind_the_wall_clock(
    moves: list[tuple[int, int, bool]],
) -> None:
    machine = Machine()
    clock = machine.clock()
    last_ms = clock.now_ms()
    for passed_ms, step_ms, is_stepped in moves:
        machine.run(passed_ms)
        if is_stepped:
            machine.step(step_ms)
        now_ms = clock.now_ms()
        assert now_ms >= last_ms
        last_ms = now_ms
    machine.run(1_000)
    assert clock.now_ms() >= machine.wall_ms
