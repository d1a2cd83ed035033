"""`python -m tests.attack`: replay every finding of the audit against a real server, and print a table."""

import argparse
import sys
from pathlib import Path

import trio

from tests.attack import on_http, on_identity, on_the_chain, on_the_market, on_video
from tests.attack.catalogue import ATTACKS, Attack
from tests.attack.target import Target, open_target
from tests.conftest import open_data_directory

MODULES = (on_identity, on_the_market, on_the_chain, on_http, on_video)
"""Imported for the attacks that they add to the catalogue."""


async def outcome_of(each: Attack, target: Target) -> tuple[bool, str]:
    """Whether the server held, and what was observed."""
    try:
        with trio.fail_after(120):
            return True, await each.run(target)
    except Exception as error:  # noqa: BLE001  any failure is an outcome for the table
        return False, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


async def run_all(directory: Path, only: str | None) -> bool:
    """Run the attacks one after the other; returns whether the server held against all of them."""
    rows: list[tuple[str, str, bool, str]] = []
    async with open_target(directory) as target:
        for each in ATTACKS:
            if only is None or only in each.finding or only in each.run.__name__:
                held, seen = await outcome_of(each, target)
                rows.append((each.finding, each.title, held, seen))
                sys.stderr.write(f"{'held' if held else 'BROKEN'}: {each.title}: {seen}\n")
    sys.stdout.write("| finding | attack | outcome | observed |\n|---|---|---|---|\n")
    for finding, title, held, seen in rows:
        sys.stdout.write(f"| {finding} | {title} | {'held' if held else '**BROKEN**'} | {seen} |\n")
    broken = sum(not held for _, _, held, _ in rows)
    sys.stdout.write(f"\n{len(rows) - broken} of {len(rows)} held\n")
    return bool(rows) and not broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.attack", description=__doc__)
    parser.add_argument("--only", help="run only attacks whose finding or function name contains this text")
    only = parser.parse_args().only
    with open_data_directory() as directory:
        return 0 if trio.run(run_all, directory, only) else 1


if __name__ == "__main__":
    sys.exit(main())
