"""What comes of a click: what was made has the focus and can be copied, and what is gone leaves the focus near."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import ConsoleServer, Tab, a_tab, add_funds, camera_link, come_online, request_view, sign_up
from tests.console.review import SPEAK, Review

GDANSK, HEL, NUUK = (54.352025, 18.646638), (54.608013, 18.801010), (64.175029, -51.735539)

IS_WHOLE = """() => {
  const { scrollHeight, clientHeight } = document.querySelector("#share-url");
  return scrollHeight <= clientHeight;
}"""

IS_LEFT_TO_RIGHT = """(words) => {
  const texts = document.createTreeWalker(document.querySelector(".banner.warn"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode() && !texts.currentNode.data.includes(words));
  const at = texts.currentNode.data.indexOf(words);
  const lefts = [...words].map((_, index) => {
    const range = document.createRange();
    range.setStart(texts.currentNode, at + index);
    range.setEnd(texts.currentNode, at + index + 1);
    const { left, top } = range.getBoundingClientRect();
    return top * 10_000 + left;
  });
  return lefts.every((left, index) => index === 0 || left > lefts[index - 1]);
}"""

PRESS_WITHOUT_FOCUS = """async (selector) => {
  document.activeElement.blur();
  document.querySelector(selector).click();
  for (let frame = 0; frame < 6; frame++) await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
  return document.activeElement === document.body;
}"""


def copied(tab: Tab) -> str:
    text: str = tab.page.evaluate("navigator.clipboard.readText()")
    return text


def test_a_key_that_was_made_has_the_focus_and_one_that_is_revoked_leaves_it_near(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=GDANSK) as tab:
        tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.go("team")
        tab.click("#new-key")
        tab.page.fill("#key-label", "Agent")
        tab.page.locator("#mint").press("Enter")
        expect(tab.page.locator("#minted")).to_be_focused()
        key = tab.page.input_value("#minted")
        tab.page.keyboard.press("Tab")
        tab.page.keyboard.press("Enter")
        tab.shows(".secret button", "Copied")
        expect(tab.page.locator(".secret [role=status]")).to_have_text("Copied")
        assert copied(tab) == key
        assert tab.page.evaluate(PRESS_WITHOUT_FOCUS, ".secret button"), (
            "browsers that do not focus a button at a click"
        )

        tab.page.locator(".rows button:has-text('Revoke')").press("Enter")
        tab.page.locator(".confirm .danger").press("Enter")
        tab.shows(".notice", re.compile("Revoked.*Agent"))
        expect(tab.page.locator("li:focus")).to_contain_text("stops in")
        assert tab.problems == []


@pytest.mark.nightly("tests/console/sharing/test_shared.py::test_a_view_is_shared_by_a_link_that_can_be_revoked")
def test_a_link_that_was_made_can_be_read_and_says_that_another_device_cannot_open_it(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=GDANSK) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        add_funds(tab)
        request_view(tab, "The crane")
        tab.page.locator("#share").press("Enter")
        link = tab.page.locator("#share-url")
        expect(link).to_be_focused()
        assert tab.page.evaluate(IS_WHOLE)
        tab.shows(".banner.warn", "is this computer itself")
        tab.page.locator(".rows button:has-text('Revoke')").press("Enter")
        tab.page.locator(".confirm .danger").press("Enter")
        tab.shows(".notice", "Revoked")
        expect(tab.page.locator("li:focus")).to_contain_text("ended")
        tab.click("#cancel")
        tab.shows(".badge.cancelled")
        assert tab.problems == []


def test_the_code_for_a_phone_says_at_a_loopback_address_what_to_do(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=GDANSK) as tab:
        sign_up(tab, "Pier Cams", "SUPPLIER")
        tab.go("operate")
        tab.shows(".banner.warn", "--tls auto")
        expect(tab.page.locator("main .button.main")).to_have_count(1)
        for language in ("ar", "en"):
            assert tab.page.evaluate(SPEAK, language)
            assert tab.page.evaluate(IS_LEFT_TO_RIGHT, "--tls auto"), language
        tab.click("#make-qr")
        expect(tab.page.locator("#camera-link")).to_be_focused()
        tab.shows(".banner.warn", "--tls auto")
        assert tab.problems == []


@pytest.mark.nightly(
    "tests/console/test_map.py::test_a_place_is_found_by_name_click_and_keyboard_and_its_coverage_is_shown"
)
def test_where_nobody_is_a_wider_circle_shows_who_is_nearest(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=HEL) as consumer, a_tab(browser, server.url) as operator:
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, place=HEL) as phone:
            come_online(phone, link)
            sign_up(consumer, "Harbour Watch", "CONSUMER")
            consumer.go("buy")
            consumer.page.fill("#place", f"{GDANSK[0]}, {GDANSK[1]}")
            consumer.click("#widen")
            consumer.shows("#nearest", re.compile(r"about 3\d\skm away"))
            consumer.shows("[data-map=ready] .map-count", "1")
            consumer.shows(".legend", "The place and its area")
            review.look(consumer, "buy-wider")
            consumer.page.fill("#place", f"{NUUK[0]}, {NUUK[1]}")
            consumer.click("#widen")
            consumer.shows("#nearest", "Nobody is free within about 1000 km")
        review.done(consumer, operator)
