"""The end of a view: a question comes first, everybody reads who ended it, and other pages show that it is over."""

import json
import re

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    Tab,
    a_tab,
    add_funds,
    all_three,
    camera_link,
    come_online,
    request_view,
    sign_up,
    stop_filming,
)
from tests.console.review import Review

POZNAN, LODZ = (52.406376, 16.925167), (51.759249, 19.455983)
END = """id => fetch(`/api/v1/sessions/${id}/end`, { method: "POST", headers: { "Idempotency-Key": id } })"""
NO_PRINTER = "window.print = () => { document.body.dataset.printed = 'yes'; };"


def without_clips(route: Route) -> None:
    """Answer the configuration of a server that keeps no video."""
    answer = route.fetch()
    body = answer.json()
    body["data"]["clipSeconds"] = 0
    route.fulfill(response=answer, body=json.dumps(body))


def copied(tab: Tab) -> str:
    text: str = tab.page.evaluate("navigator.clipboard.readText()")
    return text


@pytest.mark.nightly(
    "tests/console/faults/test_ending.py::test_a_view_that_was_ended_on_another_device_leaves_its_receipt_here"
)
def test_a_view_ends_when_the_question_is_answered_and_its_receipt_can_be_copied_and_printed(
    browser: Browser, server: ConsoleServer
):
    review = Review()
    with (
        a_tab(browser, server.url, place=POZNAN) as consumer,
        a_tab(browser, server.url) as operator,
        a_tab(browser, server.url, PHONE, place=POZNAN) as phone,
    ):
        consumer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        consumer.page.add_init_script(NO_PRINTER)
        consumer.page.route("**/api/v1/config", without_clips)
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        address = phone.page.get_attribute("#payee code", "title") or ""
        assert len(address) == 42
        assert address not in phone.page.inner_text("#payee")
        request_view(consumer, "North gate")
        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        expect(consumer.page.locator("#save-clip")).to_have_count(0)

        consumer.page.focus("#snapshot")
        consumer.page.keyboard.press("Enter")
        consumer.shows(".notice", "The snapshot is below the picture")
        expect(consumer.page.locator("#snapshot")).to_be_focused()
        session = consumer.page.url.rpartition("/")[2]
        consumer.go("wallet")
        consumer.shows("#available")
        consumer.go(f"watch/{session}")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        expect(consumer.page.locator("img.snapshot"), "it is kept while other screens are shown").to_have_count(1)
        consumer.page.fill("#tell-text", "a" * 180)
        consumer.shows("#letters", "180 of 200 characters")
        consumer.page.fill("#tell-text", "")

        phone.click("#stop")
        phone.shows(".confirm p", "Stop filming now?")
        review.look(phone, "camera-stop", (PHONE,))
        phone.page.keyboard.press("Escape")
        phone.shows("#stop")
        consumer.page.focus("#end")
        consumer.page.keyboard.press("Enter")
        consumer.shows(".confirm p", "End the view now?")
        expect(consumer.page.locator("main .confirm")).to_be_focused()
        consumer.page.keyboard.press("Enter")
        consumer.page.keyboard.press("Escape")
        expect(consumer.page.locator("#end")).to_be_focused()
        consumer.page.keyboard.press("Enter")
        consumer.page.get_by_role("button", name="Cancel", exact=True).press("Enter")
        expect(consumer.page.locator("#end")).to_be_focused()
        consumer.page.keyboard.press("Enter")
        consumer.shows(".confirm p", "End the view now?")
        review.look(consumer, "watch-end")
        consumer.shows(".badge.live")
        consumer.page.focus("#end-sure")
        consumer.page.keyboard.press("Enter")
        consumer.shows(".empty", "You ended it, in this browser.")
        phone.shows("main", "The viewer ended it.")

        consumer.click("#to-receipt")
        consumer.shows(".badge.confirmed", within_ms=PATIENCE_MS)
        consumer.shows("#ending", "You ended it")
        expect(consumer.page.locator("#delivered")).to_have_text(re.compile(r"\d:\d\d:\d\d.* \u2013 .*\d:\d\d:\d\d"))
        expect(consumer.page.locator(".address")).to_have_count(4)
        payee = consumer.page.locator(".address").nth(1)
        payee.get_by_role("button", name=re.compile("^Copy 0x")).click()
        expect(payee.locator("[role=status]")).to_have_text("Copied")
        assert copied(consumer) == address
        consumer.click("#print")
        consumer.until("() => document.body.dataset.printed === 'yes'")
        consumer.page.evaluate("document.documentElement.dataset.theme = 'dark'")
        consumer.page.emulate_media(media="print")
        colour = "getComputedStyle(document.querySelector('.price')).color"
        assert consumer.page.evaluate(colour) == "rgb(0, 0, 0)", "black on white, also from a dark screen"
        expect(consumer.page.get_by_text(address)).to_be_visible()
        expect(consumer.page.locator("p.on-paper")).to_have_text(
            re.compile(r"^Sightline · 127\.0\.0\.1:\d+ · [0-9a-f-]{36}$")
        )
        review.done(consumer, operator, phone)


def test_a_view_that_was_ended_on_another_device_leaves_its_receipt_here(browser: Browser, server: ConsoleServer):
    with all_three(browser, server.url, LODZ) as (consumer, operator, phone):
        session_id = request_view(consumer, "North gate")
        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        consumer.go("wallet")
        consumer.shows(".running .badge.live")
        consumer.page.evaluate(END, session_id)  # as another browser does
        consumer.shows(".running.over", "Ended by your workspace, with the wallet 0x")
        review = Review()
        review.look(consumer, "running-over")
        operator.shows(".running.over", "The viewer ended it.")
        consumer.click(".running.over a")
        consumer.shows("#ending", "Ended by your workspace")
        consumer.go("wallet")
        consumer.shows("#available")
        expect(consumer.page.locator(".running")).to_have_count(0)

        phone.click("#next-job")
        other = consumer.page.context.new_page()  # on the page of a view, which is over
        other.goto(f"{server.url}/console/#/watch/{session_id}")
        request_view(consumer, "South gate")
        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        expect(other.locator(".running .badge.live")).to_be_visible(timeout=PATIENCE_MS)
        consumer.go("wallet")
        consumer.click(".running .danger")
        consumer.shows(".running .confirm p", "End the view now?")
        consumer.page.keyboard.press("Escape")
        stop_filming(phone)
        phone.shows("main", "You ended it, in this browser.")
        consumer.shows(".running.over", "The operator ended it.")
        expect(other.locator(".running .badge.live")).to_have_count(0, timeout=PATIENCE_MS)
        other.close()
        consumer.page.locator(".running.over").get_by_role("button", name="Close").click()
        expect(consumer.page.locator(".running")).to_have_count(0)
        expect(consumer.page.locator("h1:focus")).to_have_count(1)
        review.done(consumer, operator, phone)
