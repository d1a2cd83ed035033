"""Inject faults into real processes: the server recovers and no check of the history fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MINUTES = os.environ.get("SIGHTLINE_FAULT_MINUTES", "1")
"""`make nightly` runs 2 here, and 20 in `make nemesis`."""
SEED = os.environ.get("SIGHTLINE_KILL_SEED", "1")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.interop
@pytest.mark.alone
@pytest.mark.timeout(1200)
def test_minutes_of_faults_lose_and_double_nothing() -> None:
    command = [sys.executable, "-m", "tests.nemesis", "--minutes", MINUTES, "--seed", SEED]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout[-8000:]
    assert "HELD" in done.stdout
