"""Messages from the consumer to the operator during a view, and the quality of the video that a phone sends."""

import re

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from tests.console.people import (
    DESK,
    PATIENCE_MS,
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

ABOVE_KEYS = ViewportSize(width=390, height=560)
IS_WHOLE = """selector => {
  const [text, stage] = [document.querySelector(selector), document.querySelector(".stage")];
  const [inner, outer] = [text, stage].map((each) => each.getBoundingClientRect());
  return text.scrollHeight <= text.clientHeight && inner.top >= outer.top && inner.bottom <= outer.bottom;
}"""
KURESSAARE = (58.252794, 22.484966)


@pytest.mark.nightly("tests/console/test_walk.py::test_a_stranger_gets_to_a_verified_receipt_by_clicks")
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

        turn = consumer.page.get_by_role("button", name="Turn left")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        video, stage = (consumer.page.locator(each).bounding_box() for each in (".stage video", ".stage"))
        assert video is not None
        assert stage is not None
        assert stage["height"] - video["height"] > -3, "nothing of the picture is cut off"
        consumer.click("#snapshot")
        consumer.shows("img.snapshot")
        consumer.page.set_viewport_size(ABOVE_KEYS)
        consumer.page.focus("#tell-text")
        picture, field, taken = (
            consumer.page.locator(each).bounding_box() for each in (".stage", "#tell-text", "img.snapshot")
        )
        assert picture is not None
        assert field is not None
        assert taken is not None
        assert 0 <= picture["y"] < picture["y"] + picture["height"] <= field["y"] < taken["y"]
        assert field["y"] + field["height"] <= ABOVE_KEYS["height"]
        consumer.page.set_viewport_size(DESK)
        turn.click()
        phone.shows("#said", "Turn left")
        consumer.shows(".messages li:first-child small", "Shown")
        phone.click("#said button")
        expect(phone.page.locator("#said")).to_be_empty()
        phone.shows(".messages li:first-child", "Turn left")
        consumer.page.fill("#tell-text", "Walk to the gate, and on to the tower behind it; " * 4)
        consumer.click("#tell")
        phone.shows("#said", "Walk to the gate")
        assert phone.page.evaluate(IS_WHOLE, "#said span"), "all of it is read while filming"
        expect(consumer.page.locator("#tell-text")).to_have_value("")
        # Sent one after the other: each stands over the picture for 10 s.
        for text in ("to the left", "closer to the gate, please"):
            consumer.page.fill("#tell-text", text)
            consumer.page.press("#tell-text", "Enter")
            expect(consumer.page.locator("#tell-text")).to_have_value("")
        phone.shows("#said", re.compile(r"to the left.*closer to the gate, please", re.DOTALL))
        for tab in (consumer, phone):
            tab.shows(".messages li:first-child", "closer to the gate, please")
            tab.shows(".messages li:last-child", "Turn left")
        consumer.page.evaluate("scrollTo(0, 0)")
        for part in (".stage", "#end", "#snapshot", "#tell-text", "#cost", "#extend", "#time-left"):
            box = consumer.page.locator(part).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= DESK["height"], f"{part} is seen without scrolling"
        phone.shows("#quality[data-grade]", re.compile(r"\d+p · \w+ video"))  # a busy machine encodes fewer pictures
        review.look(phone, "camera-told")
        expect(phone.page.locator("#said"), "the picture is free again").to_be_empty(timeout=60_000)
        review.look(consumer, "watch-told")

        operator.go(f"watch/{session_id}")
        operator.shows(".messages li:first-child", "closer to the gate, please")
        expect(operator.page.locator("#tell-text")).to_have_count(0)
        consumer.allowed += (r"429 \([\w ]+\) \S*/messages",)
        number, refused = 0, consumer.page.locator(".notice.bad")
        while not refused.count() and number < 12:  # the first messages may be older than a minute by now
            number += 1
            consumer.page.fill("#tell-text", f"number {number}")
            consumer.click("#tell")
            sent = consumer.page.locator(f".messages li:first-child:has-text('number {number}')")
            expect(sent.or_(refused).first).to_be_visible()
        consumer.shows(".notice.bad", re.compile(r"10 messages in a minute"))
        expect(consumer.page.locator("#tell-text")).to_have_value(f"number {number}")
        end_view(consumer)
        consumer.shows("#to-receipt")
        phone.shows("#next-job")
        expect(phone.page.locator("#said, #quality")).to_have_count(0)
    review.done(consumer, operator, phone)
