"""What the screens show when a camera or the server goes away, and that they recover by themselves."""

from playwright.sync_api import Browser, expect

from tests.console.people import DESK, PHONE, ConsoleServer, a_tab, camera_link, come_online, request_view, sign_up
from tests.console.review import Review

PARIS = (48.856614, 2.352222)
LISBON = (38.722252, -9.139337)
ROME = (41.902783, 12.496366)


def test_the_player_says_within_3_s_that_the_camera_is_gone_and_plays_within_3_s_of_its_return(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=PARIS) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=PARIS) as phone:
            come_online(phone, link)
            request_view(consumer, "North gate")
            phone.click("#start")
            consumer.picture("playing", within_ms=20_000)
        consumer.page.wait_for_selector(".stage:not([data-picture=playing])", timeout=3_000)
        consumer.shows(".stage .cover")
        consumer.shows(".banner.warn", "ends by itself", within_ms=20_000)
        review = Review()
        review.look(consumer, "watch-lost", (DESK,), is_loading=True)
        with a_tab(browser, server.url, PHONE, place=PARIS) as phone:
            phone.page.goto(link)
            phone.page.wait_for_selector("#sending[data-sending=sending]", timeout=15_000)
            consumer.picture("playing", within_ms=3_000)
            phone.click("#stop")
        consumer.shows("#to-receipt")
        review.done(consumer, operator)


def test_an_offline_phone_pauses_the_meter_and_goes_on_when_it_is_back(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=LISBON) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=LISBON) as phone:
            phone.allowed = (r"ERR_(INTERNET_DISCONNECTED|NETWORK_CHANGED|FAILED)", r"40[49] ")
            come_online(phone, link)
            request_view(consumer, "North gate")
            phone.click("#start")
            consumer.picture("playing", within_ms=20_000)
            phone.page.context.set_offline(True)
            phone.shows("main", "offline")
            consumer.shows(".banner.warn", "ends by itself", within_ms=20_000)
            review = Review()
            review.look(phone, "camera-no-network", (PHONE,))
            phone.page.context.set_offline(False)
            expect(consumer.page.locator(".banner.warn")).to_have_count(0, timeout=20_000)
            consumer.shows(".badge.live")
            phone.click("#stop")
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
            expect(page.locator(".empty")).to_be_visible(timeout=10_000)
        for page in [first.page, *others]:
            page.bring_to_front()
            page.goto(f"{server.url}/console/#/team")
            expect(page.locator("#new-key")).to_be_visible(timeout=5_000)
            expect(page.locator("main")).not_to_contain_text("Reconnecting", timeout=5_000)
        assert first.problems == []


def test_every_screen_recovers_when_the_server_is_killed_and_started_again(browser: Browser, server: ConsoleServer):
    with (
        a_tab(browser, server.url, place=ROME) as consumer,
        a_tab(browser, server.url) as operator,
        a_tab(browser, server.url, PHONE, place=ROME) as phone,
    ):
        for tab in (consumer, operator, phone):
            tab.allowed = (r"ERR_(CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE|INCOMPLETE_CHUNKED)|40[49] ",)
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        request_view(consumer, "North gate")
        phone.click("#start")
        consumer.picture("playing", within_ms=20_000)
        server.kill()
        consumer.shows(".banner", "Reconnecting", within_ms=5_000)
        operator.shows(".banner", "Reconnecting", within_ms=5_000)
        server.start()
        consumer.picture("playing", within_ms=30_000)
        expect(operator.page.locator("main")).not_to_contain_text("Reconnecting", timeout=15_000)
        phone.click("#stop")
        consumer.shows("#to-receipt")
        assert consumer.problems == operator.problems == phone.problems == []
