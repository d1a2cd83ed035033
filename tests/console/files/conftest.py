"""Full Chromium, for tests of installation, notifications and the service worker."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright

from tests.console.people import launched


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    with launched(playwright, is_full=True) as browser:
        yield browser
