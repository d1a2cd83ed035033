"""Time, ids and randomness come in by their ports: the lint rule that holds it has no way around it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_only_the_adapters_and_what_is_not_the_product_are_excused_from_the_rule():
    ignores = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    excused = {place for place, rules in ignores.items() if "TID251" in rules}
    assert excused == {
        "sightline/system/clock.py",
        "sightline/system/ids.py",
        "packages/sightline-client/src/sightline_client/runtime.py",
        "tests/**",
        "bench/**",
    }


def test_a_line_is_excused_for_seeded_randomness_and_jitter_only():
    excused = [
        line
        for path in (ROOT / "sightline").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"noqa:.*TID251", line)
    ]
    assert {line.split("#")[0].strip() for line in excused} <= {"import random"}


@pytest.mark.parametrize(
    "line",
    [
        "import time; time.time()",
        "import time; time.time_ns()",
        "import time; time.perf_counter()",
        "import datetime; datetime.datetime.now(datetime.UTC)",
        "import uuid; uuid.uuid4()",
        "import random",
        "import secrets",
        "import os; os.urandom(1)",
    ],
)
@pytest.mark.parametrize("room", ["chain/embedded", "storage", "video", "sim", "actors"])
def test_a_clock_or_chance_of_its_own_is_refused_in_every_room(line, room):
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename"]
    checked = subprocess.run(
        [*command, f"sightline/{room}/new.py", "-"], cwd=ROOT, input=line, text=True, capture_output=True, check=False
    )
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "TID251" in checked.stdout
