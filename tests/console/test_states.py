"""What screens show while something is loaded and when that failed, and that each of them recovers by a click."""

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.console.people import ConsoleServer, a_tab, sign_up
from tests.console.review import Review

KYIV = (50.450100, 30.523399)
SESSION = "00000000-0000-4000-8000-000000000000"
READS = re.compile(r"/api/v1/(sessions|wallet/events|workspaces/[^/]+/(api-keys|members)|webhooks)(?!.*events$)")


class Outage:
    """Leaves the reads of a page unanswered, and then refuses them, until its end."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._held: list[Route] | None = []
        page.route(READS, self._meet)

    def _meet(self, route: Route) -> None:
        if self._held is None:
            route.abort()
        else:
            self._held.append(route)

    def refuse(self) -> None:
        held, self._held = self._held or [], None
        for route in held:
            route.abort()

    def end(self) -> None:
        self._page.unroute(READS, self._meet)


def test_every_list_says_that_it_loads_and_offers_to_try_again_when_it_failed(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=KYIV) as tab:
        tab.allowed = (r"ERR_FAILED", r"404 \(Not Found\)")
        sign_up(tab, "Harbour Watch", "both")
        for screen in ("sessions", "wallet", "team", "operate", f"watch/{SESSION}", f"receipt/{SESSION}"):
            name = screen.partition("/")[0]
            outage = Outage(tab.page)
            tab.go(screen)
            tab.shows("main .spinner.big")
            review.look(tab, f"{name}-loading", is_loading=True)
            outage.refuse()
            tab.shows("button:has-text('Try again')")
            review.look(tab, f"{name}-failed")
            outage.end()
            tab.page.evaluate("document.querySelectorAll('main .empty button').forEach((each) => each.click())")
            expect(tab.page.locator("button:has-text('Try again')")).to_have_count(0)
            expect(tab.page.locator("main .spinner.big")).to_have_count(0)
        review.done(tab)


@pytest.mark.nightly(
    "tests/console/faults/test_faults.py::test_every_screen_recovers_when_the_server_is_killed_and_started_again"
)
def test_a_page_that_does_not_reach_the_server_says_so_and_begins_when_it_does(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url) as tab:
        tab.allowed = (r"ERR_FAILED",)
        tab.page.route("**/api/v1/config", lambda route: route.abort())
        tab.page.goto(tab.url)
        tab.shows(".empty", "cannot be reached")
        review.look(tab, "unreachable")
        tab.page.unroute("**/api/v1/config")
        tab.shows("#test-wallet")
        review.done(tab)
