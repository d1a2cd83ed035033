"""`python -m tests.nemesis`: inject faults into real servers under load, and check that nothing was lost or doubled."""

import argparse
import sys

import trio

from tests.nemesis.run import run_all
from tests.nemesis.system import Arrangement


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.nemesis", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="how long faults are injected, all arrangements together"
    )
    parser.add_argument("--seed", default="1", help="decides the order of the faults and what the callers do")
    parser.add_argument("--only", help="inject only faults whose name contains this text")
    parser.add_argument(
        "--where", choices=[arrangement.value for arrangement in Arrangement], help="one arrangement only"
    )
    chosen = parser.parse_args()
    arrangements = [Arrangement(chosen.where)] if chosen.where else list(Arrangement)
    return 0 if trio.run(run_all, chosen.minutes, chosen.seed, chosen.only, arrangements) else 1


if __name__ == "__main__":
    sys.exit(main())
