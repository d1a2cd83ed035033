"""A menu closes when its user has turned to something else, and what costs money says so on its button."""

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import PHONE, ConsoleServer, a_tab, add_funds, camera_link, come_online, request_view, sign_up

KIEL = (54.323293, 10.122765)
BUTTONS_ARE_INSIDE = """() => {
  const body = document.querySelector("#camera-menu .menu-body").getBoundingClientRect();
  const buttons = [...document.querySelectorAll("#camera-menu .menu-body button")]
    .map((each) => each.getBoundingClientRect());
  return buttons.length > 0 && buttons.every(({ left, right }) => left >= body.left && right <= body.right);
}"""


@pytest.mark.nightly("tests/console/test_keyboard.py::test_a_view_is_requested_and_cancelled_by_keyboard_alone")
def test_a_menu_closes_by_escape_by_a_press_elsewhere_by_another_page_and_by_a_job(
    browser: Browser, server: ConsoleServer
):
    with (
        a_tab(browser, server.url, place=KIEL) as consumer,
        a_tab(browser, server.url, place=KIEL) as operator,
        a_tab(browser, server.url, PHONE, place=KIEL) as phone,
    ):
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        menu, body = "header .menu summary", consumer.page.locator("header .menu-body")
        consumer.click(menu)
        expect(body).to_be_visible()
        consumer.page.keyboard.press("Escape")
        expect(body).to_be_hidden()
        expect(consumer.page.locator(menu)).to_be_focused()
        consumer.click(menu)
        consumer.page.mouse.click(600, 700)
        expect(body).to_be_hidden()
        consumer.click(menu)
        consumer.page.evaluate("location.hash = '#/sessions'")
        expect(body).to_be_hidden()

        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        phone.shows("#no-open-requests", "No open requests")
        offline = phone.page.get_by_role("button", name="Go offline")
        expect(offline, "on the first screen of the phone").to_be_in_viewport()
        phone.page.evaluate("scrollTo(0, 0)")
        phone.page.locator("#camera-menu summary").focus()
        phone.page.keyboard.press("Enter")
        expect(phone.page.locator("#camera-menu .menu-body")).to_be_visible()
        expect(phone.page.locator("#forget-phone")).to_be_in_viewport()
        for language in ("de", "ar", "en"):
            phone.page.select_option("#camera-menu select >> nth=1", language)
            phone.until(BUTTONS_ARE_INSIDE)
        request_view(consumer, "The quay")
        phone.shows(".job", "The quay")
        expect(phone.page.locator("#camera-menu .menu-body")).to_be_hidden()
        assert consumer.problems == operator.problems == phone.problems == []
