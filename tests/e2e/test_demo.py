"""`make demo` runs a session end to end and every check passes."""

import subprocess
import sys
from pathlib import Path

import simplejpeg


def test_demo_does_the_main_job_and_every_check_holds(data_directory: Path) -> None:
    frame = data_directory / "frame.jpg"
    command = [sys.executable, "-m", "sightline.cli", "demo", "--data-dir", str(data_directory), "--frame", str(frame)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"frame: {frame.resolve()}" in done.stdout
    assert "every check held" in done.stdout
    height, width, _, _ = simplejpeg.decode_jpeg_header(frame.read_bytes())
    assert (width, height) == (1280, 720)
