"""The end of the agreed time is said before, with a way to go on."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import (
    PATIENCE_MS,
    ConsoleServer,
    all_three,
    request_view,
)

GAVLE = (60.674880, 17.141273)


@pytest.mark.nightly("tests/console/test_walk.py::test_a_stranger_gets_to_a_verified_receipt_by_clicks")
def test_a_view_that_is_about_to_end_says_so_and_is_extended_by_one_press(browser: Browser, server: ConsoleServer):
    with all_three(browser, server.url, GAVLE) as (consumer, operator, phone):
        consumer.go("buy")
        consumer.page.select_option("#duration", "60")
        request_view(consumer, "The goat")
        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        expect(consumer.page.locator("#extend-by"), "as long as the view").to_have_value("60")
        consumer.shows("#ends-soon", "The agreed time is over in")
        consumer.click("#extend-soon")
        consumer.shows(".notice", re.compile(r"The view is extended by\s*1:00"))
        expect(consumer.page.locator("#ends-soon")).to_have_count(0)
        expect(consumer.page.locator(".facts", has_text="Longest")).to_contain_text("2:00")
        consumer.shows(".badge.live")
        assert [*consumer.problems, *operator.problems, *phone.problems] == []
