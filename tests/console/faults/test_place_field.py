"""The place as a combobox: names in every script, keys, and an Enter that comes before the names are loaded."""

import re

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.console.people import ConsoleServer, Tab, a_tab, add_funds, camera_link, come_online, sign_up

NAMED = (
    ("München", "München (Munich), Bavaria, Germany", (48.137, 11.575)),
    ("東京", "東京 (Tokyo)", (35.69, 139.69)),
    ("القاهرة", "القاهرة (Cairo), Egypt", (30.06, 31.25)),
    ("Paris, Texas", "Paris, Texas, United States", (33.66, -95.56)),
)

TRONDHEIM = (63.43049, 10.39506)


def open_buy(tab: Tab) -> None:
    sign_up(tab, "Harbour Watch", "CONSUMER")
    tab.go("buy")
    tab.shows("#place")


def chosen(tab: Tab, field: str = "#place") -> tuple[float, float]:
    """The coordinates that stand below the name."""
    hint = tab.page.locator(f"{field}-hint")
    expect(hint).to_have_text(re.compile(r"^-?[\d.]+, -?[\d.]+$"))
    lat, lng = hint.inner_text().split(", ")
    return float(lat), float(lng)


def test_a_place_is_found_by_its_name_in_its_own_script(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        open_buy(tab)
        for typed, label, place in NAMED:
            tab.page.fill("#place", typed)
            tab.shows("[role=option]", label)
            tab.page.locator("[role=option]").first.click()
            assert chosen(tab) == pytest.approx(place, abs=0.05), typed
            expect(tab.page.locator("#place")).to_have_value(re.compile(f"^{re.escape(label)}"))
            expect(tab.page.locator("#place")).to_be_focused()
        tab.shows(".price")
        assert tab.problems == []


@pytest.mark.nightly("tests/console/faults/test_place_field.py::test_a_place_is_found_by_its_name_in_its_own_script")
def test_arrow_keys_choose_and_escape_closes(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        open_buy(tab)
        field = tab.page.get_by_role("combobox", name="Place", exact=True)
        expect(field).to_have_attribute("aria-expanded", "false")
        field.fill("Springfield")
        options = tab.page.locator("#place-list").get_by_role("option")
        expect(options).to_have_count(6)
        labels = options.all_inner_texts()
        assert len(set(labels)) == 6, labels
        expect(field).to_have_attribute("aria-expanded", "true")
        field.press("ArrowDown")
        field.press("ArrowDown")
        expect(options.nth(1)).to_have_attribute("aria-selected", "true")
        active = field.get_attribute("aria-activedescendant")
        assert active == options.nth(1).get_attribute("id")
        field.press("ArrowUp")
        field.press("ArrowUp")
        expect(options.nth(5)).to_have_attribute("aria-selected", "true")
        field.press("Escape")
        expect(field).to_have_attribute("aria-expanded", "false")
        expect(options).to_have_count(0)
        field.press("ArrowDown")
        expect(options.nth(0)).to_have_attribute("aria-selected", "true")
        field.press("ArrowDown")
        field.press("Enter")
        chosen(tab)
        expect(field).to_have_value(labels[1])
        expect(field).to_have_attribute("aria-expanded", "false")


@pytest.mark.nightly("tests/console/faults/test_place_field.py::test_a_place_is_found_by_its_name_in_its_own_script")
def test_enter_before_the_names_are_loaded_chooses_when_they_are(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        open_buy(tab)
        held: list[Route] = []
        tab.page.route("**/places.gen-*.txt", lambda route: held.append(route))
        with tab.page.expect_request("**/places.gen-*.txt"):
            tab.page.locator("#place").press_sequentially("cairo")
        tab.page.keyboard.press("Enter")
        tab.page.keyboard.press("Tab")  # the focus leaves the field before the names come
        for each in held:
            each.continue_()
        assert chosen(tab) == pytest.approx((30.06, 31.25), abs=0.05)


@pytest.mark.nightly("tests/console/faults/test_place_field.py::test_a_place_is_found_by_its_name_in_its_own_script")
def test_names_that_could_not_be_loaded_are_tried_again(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        tab.allowed = (r"ERR_FAILED",)
        open_buy(tab)
        tab.page.route("**/places.gen-*.txt", lambda route: route.abort())
        tab.page.fill("#place", "cair")
        tab.shows("#place-hint.bad", "could not be loaded")
        tab.page.unroute("**/places.gen-*.txt")
        tab.page.fill("#place", "cairo")
        tab.shows("[role=option]", "Cairo, Egypt")


@pytest.mark.nightly("tests/console/faults/test_place_field.py::test_a_place_is_found_by_its_name_in_its_own_script")
def test_what_is_no_name_and_no_coordinates_is_explained(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        open_buy(tab)
        tab.page.fill("#place", "https://maps.app.goo.gl/AbCdEf123")
        tab.shows("#place-hint.bad", "short link")
        tab.page.fill("#place", "95.0, 13")
        tab.shows("#place-hint.bad", "a latitude is at most 90 degrees")
        tab.page.fill("#place", "10115")
        tab.shows("#place-hint.bad", "This server knows no postcodes")


@pytest.mark.nightly("tests/console/faults/test_place_field.py::test_a_place_is_found_by_its_name_in_its_own_script")
def test_an_operator_names_the_city_that_they_cover(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        sign_up(tab, "Pier Cams", "SUPPLIER")
        tab.go("operate")
        tab.page.fill("#coverage", "Zürich")
        tab.shows("[role=option]", "Zürich")
        tab.page.locator("#coverage").press("Enter")
        assert chosen(tab, "#coverage") == pytest.approx((47.37, 8.55), abs=0.05)
        expect(tab.page.locator("#coverage")).to_have_value(re.compile("^Zürich"))


def test_a_misspelt_name_offers_those_like_it_and_chooses_none_by_itself(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        open_buy(tab)
        field = tab.page.locator("#place")
        field.fill("Berln")
        tab.shows("[role=option]", "Berlin, Germany")
        expect(tab.page.locator("#place-hint")).to_have_text("No city or town has this name. These have one like it.")
        field.press("Enter")
        expect(field).to_have_value("Berln")
        field.press("Enter")
        expect(field).to_have_value("Berlin, Germany")
        assert chosen(tab) == pytest.approx((52.52, 13.41), abs=0.05)
        assert tab.problems == []


@pytest.mark.nightly("tests/console/faults/test_place_field.py::test_a_place_is_found_by_its_name_in_its_own_script")
def test_a_place_that_was_named_in_one_tab_has_its_name_in_the_others(browser: Browser, server: ConsoleServer):
    with (
        a_tab(browser, server.url, place=TRONDHEIM) as consumer,
        a_tab(browser, server.url, place=TRONDHEIM) as operator,
    ):
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(operator, camera_link(operator))
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        consumer.go("wallet")
        other = consumer.page.context.new_page()
        other.goto(f"{server.url}/console/#/buy")
        other.fill("#place", "Trondheim")
        other.locator("[role=option]").first.click()
        other.click("#request:not([disabled])")
        other.wait_for_url("**/#/watch/*")
        consumer.shows(".running .number", "Trondheim")
        assert consumer.problems == operator.problems == []
