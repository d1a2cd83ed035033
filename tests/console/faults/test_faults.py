"""What the screens show when a camera or the server goes away, and that they recover by themselves."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import (
    DESK,
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

PARIS = (48.856614, 2.352222)
LISBON = (38.722252, -9.139337)
ROME = (41.902783, 12.496366)
SOON_MS = 45_000
"""3 s on a machine that has nothing else to do."""


def test_the_player_says_soon_that_the_camera_is_gone_and_plays_soon_after_its_return(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=PARIS) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=PARIS) as phone:
            come_online(phone, link)
            request_view(consumer, "North gate")
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
        consumer.page.wait_for_selector(".stage:not([data-picture=playing])", timeout=SOON_MS)
        consumer.shows(".stage .cover")
        consumer.shows(".banner.warn", "ends by itself", within_ms=PATIENCE_MS)
        review = Review()
        review.look(consumer, "watch-lost", (DESK,), is_loading=True)
        with a_tab(browser, server.url, PHONE, place=PARIS) as phone:
            phone.page.goto(link)
            phone.click("#film-instead")  # for the server it is another phone
            phone.page.wait_for_selector("#sending[data-sending=sending]", timeout=PATIENCE_MS)
            consumer.picture("playing", within_ms=SOON_MS)
            stop_filming(phone)
        consumer.shows("#to-receipt")
        review.done(consumer, operator)


@pytest.mark.nightly(
    "tests/console/faults/test_faults.py::test_the_player_says_soon_that_the_camera_is_gone_and_plays_soon_after_its_return"
)
def test_an_offline_phone_pauses_the_meter_and_goes_on_when_it_is_back(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=LISBON) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=LISBON) as phone:
            phone.allowed = (r"ERR_(INTERNET_DISCONNECTED|NETWORK_CHANGED|FAILED)", r"40[49] ")
            come_online(phone, link)
            request_view(consumer, "North gate")
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            phone.page.context.set_offline(True)
            phone.shows("main", "Time without a connection is not paid after a few seconds.")
            consumer.shows(".banner.warn", "ends by itself", within_ms=PATIENCE_MS)
            review = Review()
            review.look(phone, "camera-no-network", (PHONE,))
            with phone.page.expect_response(
                lambda each: each.request.method == "PATCH", timeout=PATIENCE_MS
            ) as restart:
                phone.page.context.set_offline(False)
            assert restart.value.status == 200, "ICE is restarted, and the publisher stays the same"
            expect(consumer.page.locator(".banner.warn")).to_have_count(0, timeout=PATIENCE_MS)
            consumer.shows(".badge.live")
            stop_filming(phone)
            consumer.shows("#to-receipt")
            review.done(consumer, operator, phone)


def test_six_tabs_of_one_browser_stay_responsive_over_http_1(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=LISBON) as first:
        sign_up(first, "Harbour Watch", "CONSUMER")
        first.go("sessions")
        first.shows(".empty")
        others = [first.page.context.new_page() for _ in range(5)]
        for page in others:
            page.goto(f"{server.url}/console/#/sessions")
            expect(page.locator(".empty")).to_be_visible(timeout=PATIENCE_MS)
        for page in [first.page, *others]:
            page.bring_to_front()
            page.goto(f"{server.url}/console/#/team")
            expect(page.locator("#new-key")).to_be_visible(timeout=PATIENCE_MS)
            expect(page.locator("main")).not_to_contain_text("Reconnecting", timeout=PATIENCE_MS)
        assert first.problems == []


def test_every_screen_recovers_when_the_server_is_killed_and_started_again(browser: Browser, server: ConsoleServer):
    with (
        a_tab(browser, server.url, place=ROME) as consumer,
        a_tab(browser, server.url) as operator,
        a_tab(browser, server.url, PHONE, place=ROME) as phone,
    ):
        for tab in (consumer, operator, phone):
            tab.allowed = (
                r"ERR_(ABORTED|CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE|INCOMPLETE_CHUNKED)|40[49] ",
                r"503 ",  # until a server that stood still has its lease again
            )
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        request_view(consumer, "North gate")
        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        phone.click("button:has-text('Flip camera')")  # what is sent after the restart is the camera that is open now
        with server.standing_still():
            consumer.shows(".page-head .badge", "Not connected", within_ms=PATIENCE_MS)
            for _ in range(2):
                consumer.page.wait_for_event(
                    "requestfailed", predicate=lambda request: request.url.endswith("/meter"), timeout=PATIENCE_MS
                )
                consumer.page.evaluate("() => new Promise(requestAnimationFrame)")
                assert consumer.page.inner_text(".page-head .badge") == "Not connected", "a call that was given up"
        consumer.shows(".page-head .badge.live", within_ms=PATIENCE_MS)
        server.kill()
        consumer.shows(".banner", "Reconnecting", within_ms=PATIENCE_MS)
        operator.shows(".banner", "Reconnecting", within_ms=PATIENCE_MS)
        consumer.shows(".stage .cover", "The server is away. A gap of less than 10 s is charged", within_ms=PATIENCE_MS)
        consumer.shows(".page-head .badge", "Not connected")
        expect(consumer.page.locator(".facts .dim"), "no estimate runs on").to_have_count(0)
        phone.shows(".badge", re.compile("^Not connected$"), within_ms=PATIENCE_MS)
        # One position in 2 s: longer than the 10 s of silence after which the meter pauses, also where a start is fast.
        waiting = phone.page.locator(".banner", has_text=re.compile(r"\b([7-9]|\d\d) positions wait"))
        expect(waiting).to_be_visible(timeout=PATIENCE_MS)
        server.start()
        consumer.picture("playing", within_ms=PATIENCE_MS)
        expect(operator.page.locator("main")).not_to_contain_text("Reconnecting", timeout=PATIENCE_MS)
        phone.shows(".badge.live", within_ms=PATIENCE_MS)
        for count in (1, 2):
            consumer.click("#snapshot")
            expect(consumer.page.locator("img.snapshot")).to_have_count(count, timeout=PATIENCE_MS)
        stop_filming(phone)
        consumer.shows("#to-receipt")
        expect(consumer.page.locator("img.snapshot")).to_have_count(2)
        consumer.click("#to-receipt")
        consumer.shows(".windows", "Neither position nor picture arrived: this server was away")
        assert consumer.problems == operator.problems == phone.problems == []
