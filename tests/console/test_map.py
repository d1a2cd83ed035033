"""The map: a place by name, by click and by keyboard, coverage before paying, and the form without the map."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import ConsoleServer, a_tab, camera_link, come_online, sign_up
from tests.console.review import SPEAK

OSLO = (59.913868, 10.752245)


def test_a_place_is_found_by_name_click_and_keyboard_and_its_coverage_is_shown(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=OSLO) as consumer, a_tab(browser, server.url, place=OSLO) as operator:
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(operator, camera_link(operator))
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        consumer.shows("[data-map=ready] .map-name", re.compile(r"\w+"))
        consumer.shows(".legend", "Zoom in to see where operators are online")
        place = consumer.page.locator("#place")

        place.fill("oslo")
        consumer.shows("[role=option]", "Oslo, Norway")
        place.press("Enter")
        expect(place).to_have_value("Oslo, Norway")
        consumer.shows("#place-hint", re.compile(r"^59\.9\d+, 10\.7\d+$"))
        consumer.shows(".legend", "Operators who are free")
        consumer.shows("[data-map=ready] .map-count", "1")
        consumer.shows(".map-fence")

        consumer.page.locator(".map-view").click(position={"x": 60, "y": 200})
        expect(place).to_have_value(re.compile(r"^-?\d+\.\d+, "))
        expect(place).not_to_have_value(re.compile(r"^59\.9\d+, 10\.7"))
        clicked = place.input_value()
        consumer.page.locator(".map-view").focus()
        consumer.page.keyboard.press("ArrowRight")
        consumer.page.keyboard.press("Enter")
        expect(place).not_to_have_value(clicked)
        consumer.shows(".price")
        assert consumer.problems == operator.problems == []


def test_without_the_map_the_form_stays(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=OSLO) as consumer:
        consumer.allowed = (r"ERR_FAILED",)
        consumer.page.route("**/atlas-*.js", lambda route: route.abort())
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        consumer.page.wait_for_selector(".map", state="detached")
        consumer.page.fill("#place", "59.91, 10.75")
        consumer.shows(".price")
        assert consumer.problems == []


@pytest.mark.nightly("tests/console/files/test_units.py::test_the_units_of_the_console_hold")
def test_in_arabic_the_map_has_arabic_names_and_units(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=OSLO) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        consumer.shows("[data-map=ready] .map-name", re.compile(r"[A-Z]"))
        consumer.shows(".leaflet-control-scale-line", "km")
        assert consumer.page.evaluate(SPEAK, "ar")
        consumer.shows("[data-map=ready] .map-name", re.compile(r"^[\u0621-\u064a\s-]+$"))
        consumer.shows(".leaflet-control-scale-line", re.compile(r"^[\d,.]+\sكم$"))
        consumer.page.fill("#place", "Oslo")
        consumer.shows("[role=option]", "أوسلو (Oslo)، النرويج")
        assert consumer.problems == []
