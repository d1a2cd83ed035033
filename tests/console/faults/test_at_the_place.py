"""An operator who comes to a place where a request waits, and what each tab is called."""

import re

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

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

TARTU, NARVA = (58.378025, 26.728493), (59.377389, 28.190278)
PARNU, VILJANDI = (58.385807, 24.496580), (58.363890, 25.590000)


def test_a_camera_that_comes_online_shows_the_request_that_waits_there(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=TARTU) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        request_view(consumer, "The town hall")
        expect(consumer.page).to_have_title(re.compile(r"^58\.\d+, 26\.\d+ · Sightline$"))
        with a_tab(browser, server.url, PHONE, place=TARTU) as phone:
            come_online(phone, link)
            expect(phone.page).to_have_title("Pier Cams · Sightline")
            request = phone.page.locator("li", has_text="The town hall")
            expect(request).to_be_visible()
            expect(request).to_contain_text("Tartu, ")
            expect(request).to_contain_text("m from its centre")
            review.look(phone, "camera-open-request")
            phone.page.set_viewport_size(ViewportSize(width=390, height=664))  # between the bars of a browser
            request.get_by_role("button", name="Accept").click()
            for seen in ("#start", "#decline"):
                expect(phone.page.locator(seen), "without scrolling").to_be_in_viewport(ratio=1, timeout=PATIENCE_MS)
            phone.page.set_viewport_size(PHONE)
            phone.shows(".facts .town", "Tartu, ")
            phone.click("#start")
            expect(consumer.page.get_by_role("status").filter(has_text="Live")).to_be_visible()
            stop_filming(phone)
        review.done(consumer, operator)


@pytest.mark.nightly(
    "tests/console/faults/test_at_the_place.py::test_a_camera_that_comes_online_shows_the_request_that_waits_there"
)
def test_film_with_this_device_makes_one_key_and_is_offered_at_the_job_until_its_end(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, PHONE, place=NARVA) as phone:
        sign_up(phone, "Pier Cams", "SUPPLIER")
        for _ in range(2):
            phone.go("operate")
            phone.click("#film-here")
            phone.shows("#go-online")
        phone.go("team")
        expect(phone.page.locator("li", has_text="Camera")).to_have_count(1)
        with a_tab(browser, server.url, place=NARVA) as consumer:
            sign_up(consumer, "Harbour Watch", "CONSUMER")
            add_funds(consumer)
            phone.go("camera")
            phone.click("#go-online")
            phone.shows(".badge.online")
            phone.go("operate")
            request_view(consumer, "The castle")
            phone.shows("li", "The castle")
            phone.click("#film-job")
            phone.click("#start")
            phone.shows(".badge.live")
            phone.page.go_back()
            phone.shows("li", "The castle")
            phone.click("#film-job")
            stop_filming(phone)
            phone.shows("#next-job")
            phone.page.go_back()
            phone.shows("#earned")
            expect(phone.page.locator("#film-job"), "a view that ended is no job").to_have_count(0)


def test_an_online_phone_that_leaves_its_area_is_told_so_and_can_work_where_it_is(
    browser: Browser, server: ConsoleServer
):
    review = Review()
    with (
        a_tab(browser, server.url, place=VILJANDI) as consumer,
        a_tab(browser, server.url) as operator,
        a_tab(browser, server.url, PHONE, place=PARNU) as phone,
    ):
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        expect(phone.page.locator("#work-here")).to_have_count(0)
        phone.page.context.set_geolocation({"latitude": VILJANDI[0], "longitude": VILJANDI[1], "accuracy": 8})
        phone.shows(".banner", "You are outside of the area of 2 km that you cover")
        review.look(phone, "camera-away", (PHONE,))
        consumer.go("buy")
        consumer.page.fill("#place", f"{VILJANDI[0]}, {VILJANDI[1]}")
        consumer.shows(".facts", "Operators who cover this place now0")
        phone.click("#work-here")
        phone.shows(".notice", "You cover the area around you now")
        expect(phone.page.locator("#work-here")).to_have_count(0)
        consumer.shows(".facts", "Operators who cover this place now1")
        review.done(consumer, operator, phone)
