"""The examples run as their first lines say, on the clip of the demo."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import simplejpeg

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]
EXAMPLES: Final = Path(__file__).parents[3] / "examples"


def test_the_people_counter_finds_and_marks_people_within_its_budget(dev: dict[str, Any], tmp_path: Path) -> None:
    source = EXAMPLES / "people_counter.py"
    assert len(source.read_text().splitlines()) < 80
    command = [sys.executable, str(source), str(dev["lat"]), str(dev["lng"]), "--frames", "4", "--out", str(tmp_path)]
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    found = [int(number) for number in re.findall(r": (\d+) people,", done.stdout)]
    assert len(found) == 4, done.stdout
    assert all(1 <= number <= 4 for number in found), "three people walk in the clip"
    pictures = [simplejpeg.decode_jpeg(path.read_bytes()) for path in sorted(tmp_path.glob("*.jpg"))]
    assert len(pictures) == 4
    marked = max(int(((each[..., 0] > 200) & (each[..., 1] < 60) & (each[..., 2] < 60)).sum()) for each in pictures)
    assert marked > 100, "red boxes are drawn"
    charged, budget = re.findall(r"([0-9.]+) of ([0-9.]+) USDC, paid in 0x", done.stdout)[0]
    assert 0 <= float(charged) <= float(budget)
