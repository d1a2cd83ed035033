"""The console by keyboard alone."""

from playwright.sync_api import Browser, expect

from tests.console.people import ConsoleServer, Tab, a_tab

CAIRO = (30.044420, 31.235712)
STOPS_MAX = 40


def tab_to(tab: Tab, selector: str) -> None:
    """Press Tab until an element has the focus, and check that the focus can be seen."""
    tab.shows(selector)
    for _ in range(STOPS_MAX):
        if tab.page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"{selector} does not show its focus"
            return
        tab.page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by {STOPS_MAX} presses of Tab")


def press(tab: Tab, selector: str) -> None:
    tab_to(tab, selector)
    tab.page.keyboard.press("Enter")


def test_a_view_is_requested_and_cancelled_by_keyboard_alone(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=CAIRO) as tab:
        tab.page.goto(tab.url)
        press(tab, "#test-wallet")
        tab_to(tab, "#workspace-name")
        tab.page.keyboard.type("Harbour Watch")
        tab.page.keyboard.press("Enter")
        press(tab, "#faucet")
        press(tab, "#approve")
        press(tab, "#to-buy")
        tab_to(tab, "#place")
        tab.page.keyboard.type("cairo, egypt")
        tab.shows("[role=option]", "Cairo, Egypt")
        tab.page.keyboard.press("Enter")
        tab_to(tab, "#instructions")
        tab.page.keyboard.type("The square")
        press(tab, "#request:not([disabled])")
        press(tab, "#cancel")
        tab.shows(".badge.cancelled")
        press(tab, "nav a[href*=team]")
        press(tab, "#new-key")
        tab_to(tab, "#key-label")
        tab.page.keyboard.type("Agent")
        press(tab, "#mint")
        expect(tab.page.locator("#minted")).to_be_visible()
        assert tab.problems == []
