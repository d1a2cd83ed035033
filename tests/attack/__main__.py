"""`python -m tests.attack`: replay every finding of the audit against a real server, and print a table."""

import argparse
import sys

import trio

from tests.attack.run import Outcome, run_all
from tests.conftest import open_data_directory


def print_table(outcomes: list[Outcome]) -> None:
    sys.stdout.write("| finding | attack | outcome | observed | 17e87ec |\n|---|---|---|---|---|\n")
    for each in outcomes:
        word = "held" if each.is_held else "**BROKEN**"
        sys.stdout.write(f"| {each.finding} | {each.title} | {word} | {each.seen} | {each.before or 'held'} |\n")
    held = sum(each.is_held for each in outcomes)
    sys.stdout.write(f"\n{held} of {len(outcomes)} held\n")


def print_floods(outcomes: list[Outcome]) -> None:
    """Response times of a second tenant and memory of the server's processes, for each flood."""
    floods = [(each.title, each.load) for each in outcomes if each.load is not None]
    if not floods:
        return
    sys.stdout.write("\n| flood | second tenant p50 ms | p99 ms | calls | memory before MB | growth MB |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for title, load in floods:
        latency = load.latency
        sys.stdout.write(
            f"| {title} | {latency.quantile_ms(50):.0f} | {latency.quantile_ms(99):.0f} | {len(latency.millis)} "
            f"| {load.before_bytes / 1e6:.0f} | {load.grown_bytes / 1e6:+.1f} |\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.attack", description=__doc__)
    parser.add_argument("--only", help="run only attacks whose finding or function name contains this text")
    only = parser.parse_args().only
    with open_data_directory() as directory:
        outcomes = trio.run(run_all, directory, only)
    print_table(outcomes)
    print_floods(outcomes)
    return 0 if outcomes and all(each.is_held for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
