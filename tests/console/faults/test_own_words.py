"""What the console says and understands: places as people write them, and its own words where a device refuses."""

import re

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import DESK, PATIENCE_MS, PHONE, ConsoleServer, a_tab, camera_link, sign_up

WRITTEN = (
    "52.520008, 13.404954",
    "52,520008 13,404954",
    "52,520008; 13,404954",
    "52°31'12\"N 13°24'18\"E",
    "52° 31.2' N, 13° 24.3' E",
    "https://www.google.com/maps/@52.520008,13.404954,15z",
    "https://www.openstreetmap.org/#map=15/52.520008/13.404954",
    "geo:52.520008,13.404954",
)
NO_PLACE = ("95.1, 13.4", "52.5", "https://example.com/")


@pytest.mark.nightly("tests/console/files/test_units.py::test_the_units_of_the_console_hold")
def test_a_place_is_understood_in_every_way_that_people_write_coordinates(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        for text in WRITTEN:
            consumer.page.fill("#place", "")
            expect(consumer.page.locator(".price")).to_have_count(0)  # the same place again would need no new price
            with consumer.page.expect_request(re.compile(r"/pricing/quote")) as asked:
                consumer.page.fill("#place", text)
            lat, lng = (float(re.findall(rf"{name}=([-0-9.]+)", asked.value.url)[0]) for name in ("lat", "lng"))
            assert (lat, lng) == pytest.approx((52.520, 13.405), abs=0.0001), text
        for text in NO_PLACE:
            consumer.page.fill("#place", text)
            expect(consumer.page.locator("#request")).to_be_disabled()
            expect(consumer.page.locator(".price")).to_have_count(0)


def test_the_price_of_the_former_place_is_no_offer_while_the_new_one_is_asked_for(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        consumer.page.fill("#place", "52.520008, 13.404954")
        consumer.shows(".price")
        consumer.page.route("**/pricing/quote*", lambda _route: None)  # a slow network: the answer does not come
        with consumer.page.expect_request(re.compile(r"/pricing/quote")):
            consumer.page.fill("#place", "48.137154, 11.576124")
        expect(consumer.page.locator("#request")).to_be_disabled()
        expect(consumer.page.locator(".price")).to_have_count(0)


def test_a_refused_position_is_explained_with_its_remedy(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as consumer:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.page.context.clear_permissions()
        consumer.go("buy")
        consumer.page.get_by_role("button", name="My position").click()
        consumer.shows(".notice.bad", "Allow it for this page in the browser's settings")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NotAllowedError", "Allow it for this page"),
        ("NotFoundError", "has no camera"),
        ("NotReadableError", "Another program uses the camera"),
    ],
)
@pytest.mark.nightly("tests/console/faults/test_own_words.py::test_a_refused_position_is_explained_with_its_remedy")
def test_each_error_of_a_camera_is_explained_in_its_own_words(
    browser: Browser, server: ConsoleServer, name: str, said: str
):
    with a_tab(browser, server.url) as operator:
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE) as phone:
            refuses = f"() => Promise.reject(new DOMException('words of the browser', '{name}'))"
            phone.page.add_init_script(f"navigator.mediaDevices.getUserMedia = {refuses}")
            phone.page.goto(link)
            phone.shows(".cover[role=alert]", said)
            expect(phone.page.locator("body")).not_to_contain_text("words of the browser")


def test_a_page_on_which_nothing_is_pressed_says_that_its_sign_in_was_ended_elsewhere(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, DESK) as consumer:
        consumer.allowed = (r"401 ",)
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("wallet")
        consumer.shows("h1")
        cookies = {each["name"]: each["value"] for each in consumer.page.context.cookies()}
        answer = httpx.post(f"{server.url}/api/v1/auth/logout", cookies=cookies, headers={"origin": server.url})
        assert answer.status_code == 200, answer.text
        consumer.shows(".notice.bad", "You were signed out")
        consumer.page.wait_for_url("**/#/start", timeout=PATIENCE_MS)


def test_who_signs_out_in_one_tab_is_signed_out_in_the_other(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, DESK) as consumer:
        consumer.allowed = (r"401 ",)
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        other = consumer.page.context.new_page()
        other.goto(f"{server.url}/console/#/wallet")
        expect(other.locator("header.top")).to_contain_text("Harbour Watch", timeout=PATIENCE_MS)
        consumer.click("header summary")
        consumer.page.get_by_role("button", name="Sign out").click()
        consumer.page.wait_for_url("**/#/start", timeout=PATIENCE_MS)
        expect(other.locator(".notice.bad")).to_contain_text("You were signed out", timeout=PATIENCE_MS)
        other.wait_for_url("**/#/start", timeout=PATIENCE_MS)
        expect(other.locator("header.top")).not_to_contain_text("Harbour Watch")


def test_a_sign_in_that_is_over_is_said(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, DESK) as consumer:
        consumer.allowed = (r"401 ",)
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("wallet")
        consumer.shows("h1")
        consumer.page.context.clear_cookies()
        consumer.go("sessions")
        consumer.shows(".notice.bad", "You were signed out")
        consumer.page.wait_for_url("**/#/start", timeout=PATIENCE_MS)
