"""A position that is too uncertain, a camera that is not open, and a tab that films and is closed."""

import re

from playwright.sync_api import Browser, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    a_tab,
    all_three,
    request_view,
    sign_up,
)
from tests.console.review import Review

SKAGEN, HAMAR, VOSS = (57.725004, 10.579186), (60.794533, 11.067998), (60.629160, 6.409720)
TOO_UNCERTAIN = re.compile(r"too uncertain: ±\s250\sm, and at most ±\s100\sm counts")


def test_an_uncertain_position_is_named_before_and_during_a_view_on_both_sides(browser: Browser, server: ConsoleServer):
    review = Review()
    with all_three(browser, server.url, SKAGEN) as (consumer, operator, phone):
        request_view(consumer, "The lighthouse")
        phone.shows("#start")
        latitude, longitude = SKAGEN
        phone.page.context.set_geolocation({"latitude": latitude, "longitude": longitude, "accuracy": 250})
        phone.shows("#inaccurate", TOO_UNCERTAIN)
        review.look(phone, "camera-uncertain", (PHONE,))
        phone.click("#start")
        phone.shows(".banner", TOO_UNCERTAIN, within_ms=PATIENCE_MS)
        expect(phone.page.get_by_text("Your position does not arrive")).to_have_count(0)
        expect(consumer.page.locator(".banner", has_text="Paused")).to_contain_text(
            "missing, or too uncertain to count"
        )
        with phone.page.expect_event("dialog", timeout=PATIENCE_MS) as asked:
            phone.page.close(run_before_unload=True)
        assert asked.value.type == "beforeunload"
        asked.value.accept()
        review.done(consumer, operator)


def test_an_operator_without_an_open_camera_is_not_called_online(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=HAMAR) as operator:
        sign_up(operator, "Pier Cams", "SUPPLIER")
        operator.go("operate")
        operator.page.get_by_role("button", name="Go online").click()
        operator.shows("#no-camera-open", "no requests come here")
        operator.shows(".page-head .badge", "No camera")
        operator.page.get_by_role("button", name="Go offline").click()
        operator.shows(".badge.offline")
        expect(operator.page.locator("#no-camera-open")).to_have_count(0)
        assert operator.problems == []


def test_a_request_that_the_viewer_cancels_leaves_no_bill_of_zero_on_the_phone(browser: Browser, server: ConsoleServer):
    with all_three(browser, server.url, VOSS) as (consumer, operator, phone):
        request_view(consumer, "The station")
        phone.shows("#start")
        consumer.page.get_by_role("button", name="Cancel the request").click()
        phone.shows(".card", re.compile(r"The request was cancelled\. Nothing was filmed.+does not count against you"))
        expect(phone.page.locator(".price")).to_have_count(0)
        phone.click("#next-job")
        phone.shows(".card", "Requests appear here")
        assert [*consumer.problems, *operator.problems, *phone.problems] == []
