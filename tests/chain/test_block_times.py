"""The timestamps of the embedded chain's blocks come from the injected clock."""

from dataclasses import dataclass
from pathlib import Path

from tests.chain.evm import Evm, an_evm


@dataclass
class HandClock:
    """A clock that changes only when the test sets it."""

    at_ms: int = 1_800_000_000_999

    def now_ms(self) -> int:
        return self.at_ms


def head_time(evm: Evm) -> int:
    return int(evm.machine.head["timestamp"], 16)


def test_a_block_has_the_second_of_its_clock_and_never_one_before_its_parent(tmp_path: Path) -> None:
    clock = HandClock()
    evm = an_evm(tmp_path, clock=clock)
    assert int(evm.machine.resolve("earliest")["timestamp"], 16) == head_time(evm) == 1_800_000_000

    clock.at_ms += 60_000
    evm.treasury.fund(evm.address("payer"), 1)
    assert head_time(evm) == 1_800_000_060

    clock.at_ms -= 30_000  # the clock is set back
    evm.treasury.fund(evm.address("payer"), 1)
    assert head_time(evm) == 1_800_000_060
    evm.machine.store.close()
