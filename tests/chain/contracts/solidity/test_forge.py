"""SessionEscrow in forge, a second EVM: long random sequences of calls against its invariants I1 to I11.

SIGHTLINE_FORGE_CALLS sets the calls for each invariant. The gate makes a few hundred and plants two of the bugs,
drawn by the seed; `make nightly` makes 100,000 and plants all of them.
"""

import hashlib
import os
import random
import sys

import pytest

from tests.chain.contracts.solidity.forge import DEPTH, run_forge
from tests.chain.contracts.test_escrow_planted_bugs import BUGS, Bug, with_bug

CALLS = int(os.environ.get("SIGHTLINE_FORGE_CALLS", "500"))
IS_LONG = CALLS >= 100_000
SEED = int.from_bytes(hashlib.sha256(os.environ.get("SIGHTLINE_KILL_SEED", "1").encode()).digest()[:4])

pytestmark = [pytest.mark.interop, pytest.mark.timeout(6 * 3_600)]
PLANTED = BUGS if IS_LONG else random.Random(SEED).sample(BUGS, 2)


def test_no_sequence_of_calls_breaks_an_invariant() -> None:
    found = run_forge(calls=CALLS, seed=SEED)
    assert {number: broken for number, (_, broken) in found.items() if broken} == {}, f"--fuzz-seed {SEED}"
    assert {number: calls for number, (calls, _) in found.items()} == {
        f"I{number}": CALLS // DEPTH * DEPTH for number in range(1, 12)
    }
    sys.stdout.write(f"{CALLS:,} calls for each of {len(found)} invariants, --fuzz-seed {SEED}\n")


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_breaks_its_invariant(bug: Bug) -> None:
    (_, broken) = run_forge(calls=20_000, seed=1, code=with_bug(bug), only=bug.breaks)[bug.breaks]
    assert broken, f"{bug.name} does not break {bug.breaks}"
    sys.stdout.write(f"{bug.name}: {bug.breaks}: {broken}\n")
