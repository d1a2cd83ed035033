"""The examples run as their first lines say, on the clip of the demo."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy
import pytest
import simplejpeg

pytestmark = pytest.mark.interop
EXAMPLES: Final = Path(__file__).parents[3] / "examples"


Picture: TypeAlias = numpy.ndarray


def run_example(dev: dict[str, Any], name: str, out: Path) -> tuple[str, list[Picture]]:
    """Run an example on four frames; returns what it printed, and its pictures as RGB."""
    source = EXAMPLES / name
    assert len(source.read_text().splitlines()) < 80
    command = [sys.executable, str(source), str(dev["lat"]), str(dev["lng"]), "--frames", "4", "--out", str(out)]
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    charged, budget = re.findall(r"([0-9.]+) of ([0-9.]+) USDC, paid in 0x", done.stdout)[0]
    assert 0 <= float(charged) <= float(budget)
    pictures = [simplejpeg.decode_jpeg(path.read_bytes()) for path in sorted(out.glob("*.jpg"))]
    assert len(pictures) == 4
    return done.stdout, pictures


def test_the_people_counter_finds_and_marks_people_within_its_budget(dev: dict[str, Any], tmp_path: Path) -> None:
    printed, pictures = run_example(dev, "people_counter.py", tmp_path)
    found = [int(number) for number in re.findall(r": (\d+) people,", printed)]
    assert len(found) == 4, printed
    assert all(1 <= number <= 4 for number in found), "three people walk in the clip"
    marked = max(int(((each[..., 0] > 200) & (each[..., 1] < 60) & (each[..., 2] < 60)).sum()) for each in pictures)
    assert marked > 100, "red boxes are drawn"


def test_the_zones_count_people_on_the_pavement_and_none_on_the_road(dev: dict[str, Any], tmp_path: Path) -> None:
    printed, pictures = run_example(dev, "supervision_zones.py", tmp_path)
    counts = [
        tuple(map(int, each))
        for each in re.findall(r": (\d+) road, (\d+) left pavement, (\d+) right pavement", printed)
    ]
    assert len(counts) == 4, printed
    assert {road for road, _, _ in counts} == {0}, "cars are not people"
    assert all(1 <= left + right <= 4 for _, left, right in counts)
    row = round(0.42 * (pictures[0].shape[0] - 1))
    assert all(int(each[row].std(axis=0).max()) < 40 for each in pictures), "the upper edge of the zone road is drawn"
