"""What people read: prices, long titles, overlapping pauses; on paper, at 200 % zoom, the first screen of a phone."""

import json
import re

import pytest
from playwright.sync_api import Browser, Route, ViewportSize, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    a_tab,
    add_funds,
    camera_link,
    come_online,
    request_view,
    sign_up,
    stop_filming,
)
from tests.console.review import Review

TALLINN, RIGA, KAUNAS = (59.436961, 24.753575), (56.949649, 24.105186), (54.898521, 23.903597)
ZOOMED = ViewportSize(width=640, height=400)
LONG = "W" * 150


def is_overlapping(route: Route) -> None:
    """Answer a receipt of 74 s with 48 s proved: position and area missing at the same time, then everything."""
    answer = route.fetch()
    body = answer.json()
    data = body["data"]
    data["session"] |= {
        "startedAt": "2026-11-25T10:00:00.000Z",
        "endedAt": "2026-11-25T10:01:14.000Z",
        "cleanSeconds": 48,
    }
    pauses = (("LOCATION_STALE", 10, 19), ("GEOFENCE_EXIT", 9, 21), ("MEDIA_LOST", 40, 54), ("LOCATION_STALE", 41, 53))
    data["meter"]["windows"] = [
        {"reason": reason, "from": f"2026-11-25T10:00:{start:02}.000Z", "to": f"2026-11-25T10:00:{end:02}.000Z"}
        for reason, start, end in pauses
    ]
    route.fulfill(response=answer, body=json.dumps(body))


@pytest.mark.nightly("tests/console/test_screens.py::test_every_screen_of_a_view_is_accessible_and_fits")
def test_a_price_is_short_and_says_why(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=TALLINN) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        add_funds(tab)
        tab.go("buy")
        tab.page.fill("#place", f"{TALLINN[0]}, {TALLINN[1]}")
        tab.shows(".price", re.compile(r"^0\.0\d{2,3}\sUSDC a minute, about \d cents$"))
        tab.click(".why summary")
        tab.shows(".why", "No operator is free here")
        tab.shows(".why", re.compile(r"\+\d+%"))
        review.look(tab, "buy-why")
        review.done(tab)


@pytest.mark.nightly("tests/console/test_screens.py::test_every_screen_of_a_view_is_accessible_and_fits")
def test_a_view_with_a_long_title_is_read_on_a_phone_and_its_receipt_on_paper(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=RIGA) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=RIGA) as phone:
            come_online(phone, link)
            session_id = request_view(consumer, LONG)
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            consumer.page.set_viewport_size(PHONE)
            consumer.page.evaluate("scrollTo(0, 0)")
            title = consumer.page.locator("h1").bounding_box()
            assert title is not None
            assert title["height"] <= 2 * 36, "two lines"
            consumer.shows(".wish", LONG)
            expect(consumer.page.locator("h1")).to_have_text(f"{RIGA[0]:.5f}, {RIGA[1]:.5f}")
            review.look(consumer, "watch-long-title")
            consumer.page.set_viewport_size(PHONE)
            stop_filming(phone)
        consumer.shows("#to-receipt")
        consumer.page.set_viewport_size(ViewportSize(width=1280, height=860))
        consumer.page.route("**/receipt", is_overlapping)
        consumer.go(f"receipt/{session_id}")
        expect(consumer.page.locator("#not-charged")).to_have_text("0:26")
        rows = consumer.page.locator(".windows li")
        expect(rows).to_have_text(
            [
                re.compile(r"^The operator is outside of the area\. The operator's position is missing, or too.+0:10$"),
                re.compile(r"^The operator is outside of the area\. [^.]*0:02$"),
                re.compile(r"^Neither position nor picture arrived: this server was away.*0:14$"),
            ]
        )
        review.look(consumer, "receipt-overlap")
        consumer.page.emulate_media(media="print")
        for hidden in (".top", "#verify", ".notices"):
            expect(consumer.page.locator(hidden)).to_be_hidden()
        expect(consumer.page.locator("#charged")).to_be_visible()
        review.done(consumer, operator)


def test_the_end_of_a_view_is_on_the_first_screen_of_a_phone(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, PHONE, place=KAUNAS) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=KAUNAS) as phone:
            come_online(phone, link)
            request_view(consumer, "North gate")
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            consumer.page.evaluate("scrollTo(0, 0)")
            end = consumer.page.locator("#end").bounding_box()
            bar = consumer.page.locator(".top nav").bounding_box()
            assert end is not None
            assert bar is not None
            assert end["y"] + end["height"] <= bar["y"], "above the bar at the bottom"
            stop_filming(phone)
        assert consumer.problems == operator.problems == []


@pytest.mark.nightly("tests/console/test_screens.py::test_every_screen_of_a_view_is_accessible_and_fits")
def test_a_notice_covers_no_button_and_is_gone_on_the_next_screen(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, PHONE) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        add_funds(tab)
        tab.shows(".notice", "The spending limit is set")
        button, notice = (tab.page.locator(each).bounding_box() for each in ("#to-buy", ".notices"))
        assert button is not None
        assert notice is not None
        assert notice["y"] + notice["height"] <= button["y"]
        tab.click("#to-buy")
        tab.shows("#place")
        expect(tab.page.locator(".notice")).to_have_count(0, timeout=4_000)


@pytest.mark.nightly("tests/console/test_screens.py::test_every_screen_of_a_view_is_accessible_and_fits")
def test_bars_do_not_stay_in_a_window_that_is_not_high(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, ZOOMED) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.go("buy")
        tab.shows("#place")
        tab.page.evaluate("scrollTo(0, 1000)")
        for bar in (".top", ".top nav"):
            box = tab.page.locator(bar).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= 0, f"{bar} covers what is read"
