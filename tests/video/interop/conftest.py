"""Marks and fixtures of the tests that need more than pip installs; scripts/interop.sh installs it and runs them."""

import subprocess
from pathlib import Path

import pytest

from sightline_client.video.assets import clip_path

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def client_script() -> Path:
    """The bundled browser clients."""
    script = HERE.parents[2] / ".interop" / "video" / "clients.bundle.js"
    assert script.exists(), "run scripts/interop_video.sh"
    return script


@pytest.fixture(scope="session")
def annex_b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clip as an H.264 byte stream, which pion and werift read."""
    target = tmp_path_factory.mktemp("annex_b") / "clip.h264"
    subprocess.run(
        ["ffmpeg", "-loglevel", "error", "-i", clip_path(), "-map", "0:v", "-c", "copy", "-bsf:v", "h264_mp4toannexb",
         target],
        check=True,
    )  # fmt: skip
    return target
