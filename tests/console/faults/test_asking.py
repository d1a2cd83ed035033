"""Asking for a view: money before the request, operators who come while the page is open, a circle that can be seen."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    Tab,
    a_tab,
    add_funds,
    camera_link,
    come_online,
    end_view,
    request_view,
    sign_up,
)
from tests.console.review import Review

# Of one look: the map is drawn anew with each answer about its coverage.
CIRCLE_CAN_BE_SEEN = """(radius) => {
  const circle = document.querySelector(`[data-map=ready] .map-fence[data-radius-m="${radius}"]`);
  const width = circle?.getBoundingClientRect().width;
  return width >= 24 && width <= 400;
}"""
TURKU, ESPOO, LUND, VISBY = (60.451813, 22.266630), (60.205490, 24.655899), (55.704659, 13.191007), (57.63484, 18.29484)
MALMO = (55.605870, 13.000730)


def limit(consumer: Tab, each: str, day: str = "100") -> None:
    """Set the most that one session and one day may take from the wallet."""
    consumer.go("wallet")
    consumer.page.fill("#per-session", each)
    consumer.page.fill("#per-day", day)
    consumer.click("button:has-text('Set both limits')")
    consumer.shows(".field:has(#per-session)", each)


def test_without_money_nothing_is_requested_and_the_way_to_money_is_offered(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=TURKU) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        consumer.page.fill("#place", f"{TURKU[0]}, {TURKU[1]}")
        consumer.shows(".banner.warn", "0.00 USDC available")
        expect(consumer.page.locator("#request")).to_be_disabled()
        review.look(consumer, "buy-without-money")
        consumer.click("#to-funds")
        add_funds(consumer)
        consumer.click("#to-buy")
        expect(consumer.page.locator("#place")).to_have_value(f"{TURKU[0]}, {TURKU[1]}")
        expect(consumer.page.locator("#request")).to_be_enabled(timeout=PATIENCE_MS)
        expect(consumer.page.locator("#to-funds")).to_have_count(0)

        # With a limit that is too low, the checklist of the start has nothing to say.
        consumer.go("wallet")
        consumer.page.fill("#allowance", "0.01")
        consumer.click("#allowance + button")
        consumer.shows(".facts", "0.01 USDC")
        consumer.go("buy")
        consumer.page.fill("#place", f"{TURKU[0]}, {TURKU[1]}")
        consumer.page.fill("#instructions", "The cathedral")
        consumer.page.select_option("#duration", "600")
        consumer.page.select_option("#radius", "1000")
        consumer.shows(".banner.warn", "Your wallet allows 0.01 USDC for views")
        consumer.click("#to-limits")
        consumer.shows(".banner", re.compile(r"Your request needs 0\.\d+\sUSDC more"))
        review.look(consumer, "wallet-for-a-request")
        consumer.click("#faucet")
        consumer.shows(".facts", "20.00 USDC")
        expect(consumer.page.locator("#allowance")).to_have_value("0.75")
        consumer.click("#allowance + button")
        consumer.shows(".facts", "0.75 USDC")
        consumer.click("#to-request")
        expect(consumer.page.locator("#request")).to_be_enabled(timeout=PATIENCE_MS)
        expect(consumer.page.locator("#instructions")).to_have_value("The cathedral")
        expect(consumer.page.locator("#duration")).to_have_value("600")
        expect(consumer.page.locator("#radius")).to_have_value("1000")
        consumer.go("wallet")
        expect(consumer.page.locator("#to-request")).to_have_count(0)
        review.done(consumer)


def test_a_price_above_the_wallets_own_limits_is_not_requested_and_leads_to_them(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=TURKU) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        limit(consumer, "0.01")
        consumer.go("buy")
        consumer.page.fill("#place", f"{TURKU[0]}, {TURKU[1]}")
        consumer.shows(".banner.warn", "The limit per session that your wallet set leaves 0.01")
        expect(consumer.page.locator("#request")).to_be_disabled()
        consumer.click("#to-limits")
        consumer.shows(".banner.info", "The limit per session")
        expect(consumer.page.locator("#per-session")).to_be_focused()
        expect(consumer.page.locator("#per-session"), "enough for the request").to_have_value(re.compile(r"^0\.[1-9]"))
        expect(consumer.page.locator("#per-day")).to_have_value("100.00")
        consumer.page.press("#per-session", "Enter")
        consumer.shows(".banner.good", "can pay your request now")
        limit(consumer, "50", "0.02")
        consumer.click("#to-request")
        consumer.shows(".banner.warn", re.compile(r"The limit per day that your wallet set leaves 0\.02\sUSDC today"))
        consumer.click("#to-limits")
        expect(consumer.page.locator("#per-day")).to_be_focused()
        consumer.shows("#left-today", "0.02")
        limit(consumer, "50")
        consumer.shows(".banner.good", "can pay your request now")
        consumer.page.fill("#allowance", "9")
        consumer.page.press("#allowance", "Enter")
        consumer.shows(".field:has(#allowance)", re.compile(r"9\.00?\sUSDC"))
        consumer.go("buy")
        expect(consumer.page.locator("#request")).to_be_enabled(timeout=PATIENCE_MS)
        expect(consumer.page.locator("#to-limits")).to_have_count(0)
        assert consumer.problems == []


@pytest.mark.nightly(
    "tests/console/faults/test_asking.py::test_a_price_above_the_wallets_own_limits_is_not_requested_and_leads_to_them"
)
def test_more_time_than_the_wallets_limits_allow_is_not_bought_and_a_refused_payment_says_why(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=VISBY) as consumer, a_tab(browser, server.url, place=VISBY) as operator:
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(operator, camera_link(operator))
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        limit(consumer, "0.5")
        session_id = request_view(consumer, "The wall")
        operator.click("#start")
        consumer.shows("#extend[disabled]")
        consumer.shows("#extend-unpaid", "The limit per session that your wallet set")
        consumer.click("#extend-unpaid a")
        consumer.shows(".banner.info", re.compile(r"The extension needs 0\.\d+\sUSDC more"))
        consumer.click("#to-request")
        consumer.shows("#proved", re.compile(r"0:0[1-9]"))
        limit(consumer, "0.000001")
        consumer.go(f"watch/{session_id}")
        end_view(consumer)
        consumer.click("#to-receipt")
        consumer.shows("#refused-payment", "a limit that your wallet set is lower than the charge")
        operator.go(f"receipt/{session_id}")
        operator.shows("#refused-payment", "Not collected yet")
        limit(consumer, "5")
        consumer.go(f"receipt/{session_id}")
        consumer.shows(".badge.confirmed")
        expect(consumer.page.locator("#refused-payment")).to_have_count(0)


def test_an_operator_who_comes_online_is_counted_on_an_open_page(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=ESPOO) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        consumer.page.fill("#place", f"{ESPOO[0]}, {ESPOO[1]}")
        consumer.shows(".banner.info", "Nobody")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=ESPOO) as phone:
            come_online(phone, link)
            expect(consumer.page.locator(".banner.info")).to_have_count(0, timeout=PATIENCE_MS)
            consumer.shows("[data-map=ready] .map-count", "1")
            assert consumer.problems == operator.problems == phone.problems == []


def test_a_request_that_is_asked_for_again_has_its_place_and_instructions(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=MALMO) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        consumer.go("buy")
        consumer.page.select_option("#radius", "1000")
        request_view(consumer, "The clock. Then walk north")
        consumer.shows("h1", re.compile(rf"^{MALMO[0]:.5f}, {MALMO[1]:.5f}$"))
        consumer.shows(".wish", re.compile("^The clock. Then walk north$"))
        consumer.click("#cancel")
        consumer.shows(".empty", "The request was cancelled. Nothing is charged, and nothing stays held.")
        consumer.go("buy")
        consumer.page.fill("#place", "1, 2")
        consumer.page.go_back()
        consumer.click("#ask-again")
        expect(consumer.page.locator("#instructions")).to_have_value("The clock. Then walk north")
        expect(consumer.page.locator("#radius")).to_have_value("1000")
        expect(consumer.page.locator("#place")).to_have_value(re.compile("^55.6"))
        assert consumer.problems == []


@pytest.mark.nightly(
    "tests/console/test_map.py::test_a_place_is_found_by_name_click_and_keyboard_and_its_coverage_is_shown"
)
def test_the_circle_of_a_chosen_place_can_be_seen(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=LUND) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        consumer.page.fill("#place", f"{LUND[0]}, {LUND[1]}")
        for radius in ("500", "100", "5000"):
            consumer.page.select_option("#radius", radius)
            consumer.until(CIRCLE_CAN_BE_SEEN, radius)


@pytest.mark.nightly(
    "tests/console/faults/test_phones.py::test_of_two_phones_with_one_key_one_films_and_the_other_can_take_over"
)
def test_the_camera_has_a_menu_and_the_phone_can_be_given_back(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url) as operator, a_tab(browser, server.url, PHONE, place=LUND) as phone:
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        phone.click("#camera-menu summary")
        expect(phone.page.locator("#camera-menu a[href*=operate]"), "it needs a sign-in").to_have_count(0)
        review.look(phone, "camera-menu", (PHONE,))
        phone.click("#forget-phone")
        expect(phone.page.locator("#camera-menu .confirm"), "what follows is said before").to_contain_text(
            "needs a new link"
        )
        phone.click("#forget-phone-sure")
        phone.shows("h1", "This phone has no camera link")
        operator.go("operate")
        operator.shows(".badge.offline")
        phone.page.reload()
        phone.shows("h1", "This phone has no camera link")
        review.done(operator, phone)
