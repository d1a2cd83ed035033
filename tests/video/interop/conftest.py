"""Marks and fixtures of the tests that need more than pip installs; scripts/interop.sh installs it and runs them."""

from pathlib import Path

import pytest

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
