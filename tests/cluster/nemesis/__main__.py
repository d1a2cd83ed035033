"""`python -m tests.cluster.nemesis`: inject faults into three real servers under load; nothing is lost or doubled."""

import argparse
import sys
from pathlib import Path

import trio

from tests.cluster.nemesis.run import Plan, run_all
from tests.cluster.nemesis.system import Arrangement


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.cluster.nemesis", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are injected, per arrangement")
    parser.add_argument("--rounds", type=int, default=50, help="how often each fault is injected at most")
    parser.add_argument("--seed", default="1", help="decides the order of the faults and what the callers do")
    parser.add_argument("--only", help="inject only faults whose name contains one of these texts, with commas between")
    parser.add_argument("--where", choices=[each.value for each in Arrangement], help="one arrangement only")
    parser.add_argument("--logs", type=Path, help="directory to which the logs of all servers are copied")
    parser.add_argument("--upgrade-from", help="commit whose code three servers run first; each is then upgraded")
    chosen = parser.parse_args()
    plan = Plan(chosen.minutes, chosen.rounds, chosen.seed, chosen.only, chosen.logs, chosen.upgrade_from)
    arrangements = [Arrangement(chosen.where)] if chosen.where else list(Arrangement)
    if plan.upgrade_from is not None:
        arrangements = [Arrangement.SERVERS]
    return 0 if trio.run(run_all, plan, arrangements) else 1


if __name__ == "__main__":
    sys.exit(main())
