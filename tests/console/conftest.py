"""A real server and Chromium for the tests of the console; scripts/interop.sh installs what they need."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from tests.console.people import PATIENCE_MS, ConsoleServer, launched

HERE = Path(__file__).parent
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    with launched(playwright, is_full=False) as browser:
        yield browser


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    server = ConsoleServer(
        tmp_path_factory.mktemp("console"),
        SIGHTLINE_WEBHOOK_ALLOW_LOOPBACK="true",
        SIGHTLINE_VIDEO_CLIP_SECONDS="10",
        # A busy machine takes longer than a minute for what these tests look at during a pause.
        SIGHTLINE_PAUSE_MAX_SECONDS="170",
        SIGHTLINE_PAUSED_TOTAL_MAX_SECONDS="600",
    )
    server.start()
    yield server
    server.end()
