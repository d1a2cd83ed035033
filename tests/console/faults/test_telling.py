"""Messages from the consumer to the operator during a view, and the quality of the video that a phone sends."""

import re

from playwright.sync_api import Browser, expect

from tests.console.people import (
    PHONE,
    ConsoleServer,
    a_tab,
    add_funds,
    camera_link,
    come_online,
    end_view,
    request_view,
    sign_up,
)
from tests.console.review import Review

KURESSAARE = (58.252794, 22.484966)


def test_a_phone_shows_what_its_viewer_says_and_how_well_it_sends(browser: Browser, server: ConsoleServer):
    review = Review()
    with (
        a_tab(browser, server.url, place=KURESSAARE) as consumer,
        a_tab(browser, server.url, place=KURESSAARE) as operator,
        a_tab(browser, server.url, PHONE, place=KURESSAARE) as phone,
    ):
        sign_up(operator, "Castle Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        session_id = request_view(consumer, "The castle")
        phone.click("#start")
        consumer.shows(".badge.live")
        expect(phone.page.locator("#said")).to_be_empty()

        consumer.page.get_by_role("button", name="Turn left").click()
        phone.shows("#said", "Turn left")
        consumer.shows(".messages li:first-child small", "Shown")
        phone.click("#said button")
        expect(phone.page.locator("#said")).to_be_empty()
        phone.shows(".messages li:first-child", "Turn left")
        consumer.page.fill("#tell-text", "Walk to the gate, and on to the tower behind it; " * 4)
        consumer.click("#tell")
        phone.shows("#said", "Walk to the gate")
        said = phone.page.locator("#said").bounding_box()
        assert said is not None
        assert said["height"] < 90, "two lines"
        consumer.page.fill("#tell-text", "closer to the gate, please")
        consumer.page.press("#tell-text", "Enter")
        phone.shows("#said", "closer to the gate, please")
        expect(consumer.page.locator("#tell-text")).to_have_value("")
        for tab in (consumer, phone):
            tab.shows(".messages li:first-child", "closer to the gate, please")
            tab.shows(".messages li:last-child", "Turn left")
        phone.shows("#quality[data-grade=good]", re.compile(r"\d+p · Good video"))
        review.look(phone, "camera-told")
        expect(phone.page.locator("#said"), "the picture is free again").to_be_empty(timeout=15_000)
        review.look(consumer, "watch-told")

        operator.go(f"watch/{session_id}")
        operator.shows(".messages li:first-child", "closer to the gate, please")
        expect(operator.page.locator("#tell-text")).to_have_count(0)
        for number in range(7):
            consumer.page.fill("#tell-text", f"number {number}")
            consumer.click("#tell")
            consumer.shows(".messages li:first-child", f"number {number}")
        consumer.page.fill("#tell-text", "one too many")
        consumer.allowed += (r"429 \([\w ]+\) \S*/messages",)
        consumer.click("#tell")
        consumer.shows(".notice.bad", re.compile(r"10 messages in a minute"))
        expect(consumer.page.locator("#tell-text")).to_have_value("one too many")
        end_view(consumer)
        consumer.shows("#to-receipt")
        phone.shows("#next-job")
        expect(phone.page.locator("#said, #quality")).to_have_count(0)
    review.done(consumer, operator, phone)
