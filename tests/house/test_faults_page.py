"""The table of tested faults in docs/ops/faults.md names every fault of nemesis, and only tests that exist."""

import re
from pathlib import Path

from tests.nemesis.faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NO_FAULT = {"-", "growth of the process is checked in each run"}


def rows() -> list[tuple[str, str, str]]:
    text = (ROOT / "docs/ops/faults.md").read_text()
    section = text[text.index("## What is tested") : text.index("## Try it")]
    return ROW.findall(section)[1:]


def test_every_fault_of_nemesis_is_in_the_table_and_every_one_in_the_table_exists() -> None:
    named = {name for row in rows() for name in row[1].split("; ")} - NO_FAULT
    assert named == {fault.name for fault in FAULTS}


def test_every_test_in_the_table_exists() -> None:
    files = {path for row in rows() for path in re.findall(r"(?:tests|bench)/[\w/]+\.py", row[2])}
    assert len(files) > 20
    assert [path for path in sorted(files) if not (ROOT / path).exists()] == []


def test_every_fault_in_the_table_is_held_by_something() -> None:
    assert [row[0] for row in rows() if row[1] == row[2] == "-"] == []
