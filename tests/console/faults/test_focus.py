"""Where the focus goes when the button that had it is gone, and where people go whose sign-in is over."""

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import ConsoleServer, Tab, a_tab, add_funds, sign_up

BRNO = (49.195061, 16.606836)
LOST_AFTER_CANCEL = """async (rounds) => {
  const timer = (ms) => new Promise((next) => setTimeout(next, ms));
  const lost = [];
  for (let round = 0; round < rounds; round++) {
    const asking = document.querySelector(".confirm button");
    asking.focus();
    asking.click();
    while (!document.querySelector(".confirm p")) await timer(0);
    const cancel = [...document.querySelectorAll(".confirm button")].at(-1);
    cancel.focus();
    cancel.click();
    const busyUntil = performance.now() + (round % 7) * 3;
    while (performance.now() < busyUntil);
    await timer(250);
    if (document.activeElement !== document.querySelector(".confirm button")) lost.push(round);
  }
  return lost;
}"""
"""Takes the question back so often, and returns in which rounds the focus went elsewhere. The page is idle between two
rounds, so that the next frame and the timers are due at once: under such conditions another element took the focus."""


def focused(tab: Tab) -> str:
    text: str = tab.page.evaluate("document.activeElement.textContent")
    return text


@pytest.mark.nightly("tests/console/test_keyboard.py::test_a_view_is_requested_and_cancelled_by_keyboard_alone")
def test_each_step_of_the_start_takes_the_focus_from_the_one_before(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=BRNO) as tab:
        tab.page.goto(tab.url)
        tab.shows("#test-wallet")
        expect(tab.page.locator("h2:focus"), "nothing is framed before the first key").to_have_count(0)
        for button, heading in (
            ("#test-wallet", "Name your workspace"),
            ("#create-workspace", "Get test money"),
            ("#faucet", "Set a spending limit"),
            ("#approve", "Everything is set up"),
        ):
            tab.page.locator(button).press("Enter")
            expect(tab.page.locator("h2:focus")).to_contain_text(heading)
        tab.page.locator("#to-buy").press("Enter")
        expect(tab.page.locator("h1:focus")).to_contain_text("What do you want to see?")
        tab.page.fill("#place", f"{BRNO[0]}, {BRNO[1]}")
        tab.page.locator("#request:not([disabled])").press("Enter")
        tab.shows("#cancel")
        expect(tab.page.locator("h1:focus")).to_have_count(1)
        tab.page.locator("#cancel").press("Enter")
        tab.shows(".badge.cancelled")
        expect(tab.page.locator("h1:focus")).to_have_count(1)
        assert tab.problems == []


@pytest.mark.nightly("tests/console/test_keyboard.py::test_a_view_is_requested_and_cancelled_by_keyboard_alone")
def test_a_screen_does_not_take_the_focus_from_a_field(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=BRNO) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        add_funds(tab)
        tab.page.goto(f"{tab.url}/console/#/buy")
        tab.page.focus("#place")
        tab.page.keyboard.type("brno")
        tab.shows("[role=option]", "Brno")
        expect(tab.page.locator("#place")).to_be_focused()
        tab.page.keyboard.press("Enter")
        tab.shows(".price")
        expect(tab.page.locator("#place")).to_be_focused()


def test_who_signs_in_again_comes_back_to_the_screen(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=BRNO) as tab:
        tab.allowed = (r"401 ",)
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.page.context.clear_cookies()
        tab.page.goto("about:blank")
        tab.page.goto(f"{tab.url}/console/#/sessions")
        tab.shows(".notice.bad", "You were signed out")
        tab.page.wait_for_url("**/#/start")
        tab.click("#test-wallet")
        tab.page.wait_for_url("**/#/sessions")
        tab.shows("h1", "Sessions")

        tab.click(".menu summary")
        tab.click(".menu button:has-text('Sign out')")
        tab.page.wait_for_url("**/#/start")
        tab.click("#test-wallet")
        tab.shows("#faucet")
        assert tab.page.url.endswith("#/start"), "who signed out begins at the start"


@pytest.mark.nightly("tests/console/test_keyboard.py::test_a_view_is_requested_and_cancelled_by_keyboard_alone")
def test_who_takes_a_question_back_is_at_the_button_that_asked_also_on_a_slow_device(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=BRNO) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.go("team")
        tab.click("#new-key")
        tab.page.fill("#key-label", "Vision agent")
        tab.click("#mint")
        tab.shows(".confirm button")
        tab.page.context.new_cdp_session(tab.page).send("Emulation.setCPUThrottlingRate", {"rate": 8})
        assert tab.page.evaluate(LOST_AFTER_CANCEL, 40) == []
        assert tab.problems == []
