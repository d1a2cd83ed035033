"""A view that nobody looks at: it is seen on every screen, and ends after its page was closed."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import (
    DESK,
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    Tab,
    a_tab,
    add_funds,
    camera_link,
    come_online,
    request_view,
    sign_up,
    stop_filming,
)
from tests.console.review import Review

BERGEN, STAVANGER = (60.391263, 5.322054), (58.969976, 5.733107)
LEASE_MS = 60_000


def amount(tab: Tab, selector: str) -> float:
    """The USDC that an element shows."""
    return float(tab.page.inner_text(selector).split()[0])


@pytest.mark.nightly("tests/console/faults/test_leaving.py::test_a_view_is_ended_from_the_bar_of_another_screen")
def test_a_running_view_is_shown_on_every_screen_and_ends_after_its_page_was_closed(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=BERGEN) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=BERGEN) as phone:
            come_online(phone, link)
            request_view(consumer, "North gate")
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            expect(consumer.page.locator(".running")).to_have_count(0)
            expect(consumer.page.locator("#cost")).not_to_have_text(re.compile(r"^0\.00\s"))
            left = amount(consumer, "#cost")
            consumer.page.route("**/api/v1/sessions/*", lambda route: route.abort())  # only what the page knows
            consumer.go("wallet")
            consumer.shows(".running strong")
            assert amount(consumer, ".running strong") >= left
            consumer.click(".running .danger")
            consumer.shows(".running .confirm p", re.compile(rf"so far: {consumer.page.inner_text('.running strong')}"))
            consumer.page.keyboard.press("Escape")
            consumer.page.unroute("**/api/v1/sessions/*")
            for screen in ("wallet", "sessions", "buy"):
                consumer.go(screen)
                consumer.shows(".running .badge.live")
            consumer.allowed += (r"ERR_FAILED",)
            review = Review()
            review.look(consumer, "running-view", (DESK, PHONE))
            consumer.click(".running a")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            with consumer.page.expect_event("dialog", timeout=PATIENCE_MS) as asked:
                consumer.page.close(run_before_unload=True)
            assert asked.value.type == "beforeunload"
            asked.value.accept()
            phone.shows("#next-job", within_ms=LEASE_MS + PATIENCE_MS)
            again = consumer.page.context.new_page()
            again.goto(consumer.url + "/")
            expect(again.locator(".running.over"), "its end is told to who comes back").to_contain_text("USDC")
            again.locator(".running.over").get_by_role("button", name="Close").click()
            expect(again.locator(".running")).to_have_count(0)
            assert not again.evaluate("Object.keys(localStorage).some((each) => each.startsWith('sightline.ran.'))")
            again.close()
            review.done(operator, phone)


def test_a_view_is_ended_from_the_bar_of_another_screen(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=(60.169856, 24.938379)) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        consumer.go("buy")
        consumer.page.fill("#place", "60.169856, 24.938379")
        consumer.click("#request:not([disabled])")
        consumer.shows("#cancel")
        dispatches: list[str] = []
        consumer.page.on("request", lambda sent: dispatches.extend([sent.url] if "/dispatch" in sent.url else []))
        consumer.click("#dispatch")
        consumer.shows(".notice", "Nobody is there now")
        assert dispatches == []
        consumer.page.goto(consumer.url + "/")
        consumer.shows(".running .badge.requested")
        consumer.click(".running button")
        expect(consumer.page.locator(".running")).to_have_count(0, timeout=PATIENCE_MS)


@pytest.mark.nightly("tests/console/faults/test_leaving.py::test_a_view_is_ended_from_the_bar_of_another_screen")
def test_signing_out_during_a_view_says_first_that_it_goes_on(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=STAVANGER) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        with a_tab(browser, server.url, PHONE, place=STAVANGER) as phone:
            come_online(phone, camera_link(operator))
            request_view(consumer, "North gate")
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            consumer.click(".menu summary")
            consumer.page.get_by_role("button", name="Sign out").click()
            consumer.shows(".menu .confirm", "A view is running, and is charged until it ends.")
            consumer.click("#sign-out-sure")
            consumer.page.wait_for_selector("#test-wallet", timeout=PATIENCE_MS)
            stop_filming(phone)
            assert consumer.problems == phone.problems == []
