"""Inject faults into real processes for two minutes: the server recovers and no check of the history fails."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.interop
@pytest.mark.timeout(1200)
def test_two_minutes_of_faults_lose_and_double_nothing() -> None:
    command = [sys.executable, "-m", "tests.nemesis", "--minutes", "2", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout[-8000:]
    assert "HELD" in done.stdout
