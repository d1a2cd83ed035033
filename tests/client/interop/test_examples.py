"""The examples run as their first lines say, on the clip of the demo."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import numpy
import pytest
import simplejpeg

from sightline_client import Sightline
from sightline_client.models import Session

pytestmark = pytest.mark.interop
EXAMPLES: Final = Path(__file__).parents[3] / "examples"


Picture: TypeAlias = numpy.ndarray


def run_example(dev: dict[str, Any], name: str, out: Path) -> tuple[str, list[Picture]]:
    """Run an example on four frames; returns what it printed, and its pictures as RGB."""
    source = EXAMPLES / name
    assert len(source.read_text().splitlines()) < 80
    command = [sys.executable, str(source), str(dev["lat"]), str(dev["lng"]), "--frames", "4", "--out", str(out)]
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
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


def test_a_budget_below_the_price_of_a_second_is_named(dev: dict[str, Any], tmp_path: Path) -> None:
    place = [str(dev["lat"]), str(dev["lng"]), "--out", str(tmp_path)]
    command = [sys.executable, str(EXAMPLES / "people_counter.py"), *place, "--budget", "0.0001"]
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "--budget is too small: a second costs" in done.stderr) == (2, True), done.stderr


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


@pytest.fixture
def still_camera(dev: dict[str, Any]) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The URL that the program prints, and the program."""
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    place = [str(dev["lat"]), str(dev["lng"])]
    command = [sys.executable, str(EXAMPLES / "still_camera.py"), *place, "--port", "0", "--idle", "2"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            yield program.stdout.readline().strip(), program
        finally:
            program.kill()


def until_ended(sl: Sightline) -> Session:
    """Wait for the end of the newest session."""
    newest = next(iter(sl.sessions.list()))
    with sl.sessions.events(newest.id) as events:
        for _ in events:
            if sl.sessions.get(newest.id).state.is_over:
                break
    return sl.sessions.get(newest.id)


def test_a_still_image_url_shows_a_place_while_somebody_looks(
    dev: dict[str, Any], still_camera: tuple[str, "subprocess.Popen[str]"]
) -> None:
    url, program = still_camera
    with Sightline(dev["url"], dev["consumerKey"]) as sl:
        pictures = [httpx.get(url, timeout=90) for _ in range(2)]
        for each in pictures:
            assert (each.status_code, each.headers["content-type"]) == (200, "image/jpeg")
            assert simplejpeg.decode_jpeg(each.content).shape == (720, 1280, 3)
        assert pictures[0].content != pictures[1].content, "of now"
        first = until_ended(sl)
        assert first.end_reason == "CONSUMER_ENDED", "nobody looked for two seconds"
        assert httpx.get(url.replace("still.jpg", "other")).status_code == 404
        assert httpx.get(url, timeout=90).status_code == 200
        program.terminate()
        second = until_ended(sl)
        assert (second.id != first.id, second.end_reason) == (True, "CONSUMER_ENDED")
        assert program.wait(20) == 0
