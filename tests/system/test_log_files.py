"""Log files of child processes stay bounded while the child runs."""

import subprocess
import sys
from pathlib import Path

from sightline.system.log_files import rotate

LINES = 2_000
WRITER = f"""
import sys
for number in range({LINES}):
    print("line", number, "x" * 100, file=sys.stderr, flush=True)
    if number % 100 == 99:
        print("done", number, flush=True)
        sys.stdin.readline()
"""


def test_a_child_goes_on_writing_into_a_file_that_was_rotated_under_it(tmp_path: Path) -> None:
    path, rotations = tmp_path / "child.log", 0
    with path.open("ab") as log_file:
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log_file
        )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(LINES // 100):
            assert child.stdout.readline().startswith(b"done")
            rotations += rotate(path, bytes_max=30_000)
            assert path.stat().st_size <= 30_000
            child.stdin.write(b"\n")
            child.stdin.flush()
    assert rotations >= 3
    text = (tmp_path / "child.log.1").read_text() + path.read_text()
    assert "\0" not in text
    assert f"line {LINES - 1} " in text
    assert {entry.name for entry in tmp_path.iterdir()} == {"child.log", "child.log.1"}


def test_a_small_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "child.log"
    path.write_text("a line\n")
    assert rotate(path) is False
    assert path.read_text() == "a line\n"
