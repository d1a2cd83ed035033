"""The whole Chromium for tests of what is around the page: installation, notifications, its worker."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright

from tests.console.people import launched


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    with launched(playwright, is_whole=True) as browser:
        yield browser
