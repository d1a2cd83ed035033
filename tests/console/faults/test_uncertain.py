"""A position that is too uncertain, a camera that is not open, and a tab that films and is closed."""

import re

import pytest
from playwright.sync_api import Browser, Geolocation, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    a_tab,
    all_three,
    request_view,
    sign_up,
    stop_filming,
)
from tests.console.review import Review

SKAGEN, HAMAR, VOSS, BODO = (
    (57.725004, 10.579186),
    (60.794533, 11.067998),
    (60.629160, 6.409720),
    (67.280356, 14.404916),
)
TOO_UNCERTAIN = re.compile(r"too uncertain: ±\s250\sm, and at most ±\s100\sm counts")


@pytest.mark.nightly(
    "tests/console/faults/test_uncertain.py::test_a_lost_position_is_told_at_the_top_at_once_and_no_old_distance_is_told_as_the_present_one"
)
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


def test_a_lost_position_is_told_at_the_top_at_once_and_no_old_distance_is_told_as_the_present_one(
    browser: Browser, server: ConsoleServer
):
    review = Review()
    here = Geolocation(latitude=BODO[0], longitude=BODO[1], accuracy=8)
    with all_three(browser, server.url, BODO) as (consumer, operator, phone):
        phone.page.context.set_geolocation(None)
        phone.shows("#no-position", "This device does not know its position.")
        phone.shows(".page-head .badge", "No position")
        phone.page.context.set_geolocation(here)
        phone.shows(".badge.online")
        request_view(consumer, "The quay")
        phone.shows(".page-head .badge", re.compile("^Asked$"))
        phone.shows("#away", re.compile(r"^0\sm ± 8\sm$"))
        phone.page.context.set_geolocation(None)
        phone.shows(".banner:has(#decline)", "This device does not know its position.")
        phone.shows("#away", re.compile(r"^last known: 0\sm ± 8\sm, 0:\d\d ago$"))
        review.look(phone, "camera-asked-no-position", (PHONE,))
        phone.page.context.set_geolocation(here)
        phone.click("#start:not([disabled])")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        phone.shows("#sending.recording", "Filming")
        consumer.shows("#operator", re.compile(r"^0\sm ± 8\sm$"))
        phone.page.context.set_geolocation({**here, "accuracy": 900})
        phone.shows("#inaccurate", "The meter pauses soon")
        phone.shows(".page-head .badge", "Position uncertain")
        phone.page.context.set_geolocation(None)
        phone.shows("#no-position", "This device does not know its position.")
        phone.shows("#paused", "Your position does not arrive.")
        phone.shows("#sending:not(.recording)", re.compile("^Paused$"))
        expect(phone.page.locator("#filmed")).to_have_count(0)
        expect(phone.page.get_by_text("Filming", exact=True)).to_have_count(0)
        consumer.shows("#operator", re.compile(r"^last known: 0\sm"))
        review.look(phone, "camera-lost-position", (PHONE,))
        stop_filming(phone)
        phone.shows(".uncharged", re.compile(r"Not paid \d:\d\d.*Your position was missing"))
        review.look(phone, "camera-done-unpaid", (PHONE,))
        consumer.shows(".uncharged", re.compile(r"Not charged \d:\d\d.*The operator's position is missing"))
        review.look(consumer, "watch-ended-uncharged")
        told = [tab.page.locator(".uncharged .number").all_text_contents() for tab in (phone, consumer)]
        consumer.click("#to-receipt")
        consumer.shows("#not-charged", re.compile(f"^{told[0][0]}$"))
        told.append(consumer.page.locator("#not-charged, .windows .number").all_text_contents())
        assert told[0] == told[1] == told[2], "the same seconds on each page"
        review.done(consumer, operator, phone)


@pytest.mark.nightly(
    "tests/console/faults/test_phones.py::test_a_phone_without_a_camera_gets_no_request_until_it_can_film_again"
)
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


@pytest.mark.nightly("tests/console/test_walk.py::test_a_stranger_gets_to_a_verified_receipt_by_clicks")
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
