"""Every screen at a desk and on a phone, in both themes: nothing for axe to report, nothing wider than the window.

The pictures of all screens are in .interop/console; three of them, if UPDATE_IMAGES is set, in docs/images.
"""

import io
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.console.people import (
    DESK,
    PHONE,
    ConsoleServer,
    Tab,
    a_tab,
    camera_link,
    come_online,
    request_view,
    sign_up,
)

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / ".interop" / "console"
IMAGES = ROOT / "docs" / "images"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
MUNICH = (48.137154, 11.576124)
NARROW = ViewportSize(width=320, height=640)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
IMAGE_WIDTH = 880
UPDATES_IMAGES = bool(os.environ.get("UPDATE_IMAGES"))


def violations(page: Page) -> list[str]:
    """What axe reports: rule and element."""
    if page.evaluate("typeof window.axe") != "object":
        page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("tags => axe.run(document, {runOnly: tags})", RULES)
    return [f"{each['id']}: {node['html'][:160]}" for each in found["violations"] for node in each["nodes"]]


class Receiver(BaseHTTPRequestHandler):
    """Answers 200 to each webhook."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
        """Print nothing."""


@contextmanager
def a_receiver() -> Iterator[str]:
    """Run a receiver of webhooks; returns its URL."""
    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{receiver.server_port}/hook"
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()


class Review:
    """Looks at screens in every form, and keeps what is wrong."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        PICTURES.mkdir(parents=True, exist_ok=True)

    def look(self, tab: Tab, name: str, sizes: tuple[ViewportSize, ...] = (DESK, PHONE)) -> None:
        """Check the open screen in both themes and at each size, and at 320 px; store its pictures."""
        page = tab.page
        expect(page.locator("main .spinner.big")).to_have_count(0)
        for theme in ("dark", "light"):
            page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
            for size in sizes:
                page.set_viewport_size(size)
                page.screenshot(path=PICTURES / f"{name}-{size['width']}-{theme}.png", full_page=True)
            self.wrong += [f"{name} {theme} {each}" for each in violations(page)]
        page.set_viewport_size(NARROW)
        excess = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if excess > 0:
            self.wrong.append(f"{name}: {excess} px wider than a window of 320 px")
        page.set_viewport_size(sizes[0])
        page.evaluate("document.documentElement.dataset.theme = 'system'")

    def publish(self, tab: Tab, name: str) -> None:
        """Store the window as a picture of the README, if the run was asked to."""
        if not UPDATES_IMAGES:
            return
        tab.page.set_viewport_size(ViewportSize(width=1280, height=800))
        picture = Image.open(io.BytesIO(tab.page.screenshot()))
        height = picture.height * IMAGE_WIDTH // picture.width
        small = picture.convert("RGB").resize((IMAGE_WIDTH, height), Image.Resampling.LANCZOS)
        small.quantize(128).save(IMAGES / f"console-{name}.png", optimize=True)


@pytest.mark.timeout(240)
def test_every_screen_is_accessible_and_fits(browser: Browser, server: ConsoleServer):
    review = Review()
    url = server.url
    with (
        a_tab(browser, url, place=MUNICH) as consumer,
        a_tab(browser, url) as operator,
        a_tab(browser, url, PHONE, place=MUNICH) as phone,
    ):
        consumer.page.goto(url)
        consumer.shows("#test-wallet")
        review.look(consumer, "start-stranger")
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        review.look(consumer, "start-money")
        consumer.click("#faucet")
        consumer.click("#approve")
        consumer.shows("#to-buy")
        review.look(consumer, "start-ready")
        consumer.go("sessions")
        consumer.shows(".empty")
        review.look(consumer, "sessions-empty")

        sign_up(operator, "Pier Cams", "SUPPLIER")
        operator.go("operate")
        operator.shows(".empty")
        review.look(operator, "operate-empty")
        link = camera_link(operator)
        review.look(operator, "operate-code")
        come_online(phone, link)
        review.look(phone, "camera-online", (PHONE,))

        consumer.go("buy")
        consumer.shows("#place")
        review.look(consumer, "buy-empty")
        consumer.page.fill("#place", f"{MUNICH[0]}, {MUNICH[1]}")
        consumer.page.fill("#instructions", "North gate. Look at the queue")
        consumer.shows("#request:not([disabled])")
        review.look(consumer, "buy")
        review.publish(consumer, "buy")
        request_view(consumer, "North gate. Look at the queue")
        consumer.shows(".stage")
        review.look(consumer, "watch-assigned")
        phone.shows(".job")
        review.look(phone, "camera-asked", (PHONE,))
        phone.click("#start")
        consumer.picture("playing", within_ms=20_000)
        expect(consumer.page.locator("#proved")).to_have_text(re.compile(r"0:(0[3-9]|[1-5]\d)"), timeout=20_000)
        review.look(consumer, "watch-live")
        review.publish(consumer, "watch")
        review.look(phone, "camera-filming", (PHONE,))
        with a_tab(browser, server.internal_url) as ops:
            ops.page.goto(f"{server.internal_url}/ops")
            ops.shows("[data-ready=database].right")
            ops.shows("h2:has-text('Live sessions') >> xpath=../.. >> .badge.live")
            review.look(ops, "ops")
            assert ops.problems == []
        consumer.click("#end")
        consumer.shows("#to-receipt")
        review.look(consumer, "watch-ended")
        consumer.click("#to-receipt")
        consumer.shows(".badge.confirmed", within_ms=30_000)
        consumer.click("#verify")
        expect(consumer.page.locator("[data-check][data-state=right]")).to_have_count(5, timeout=15_000)
        review.look(consumer, "receipt")
        review.publish(consumer, "receipt")
        for screen, shown in (("sessions", ".list-row"), ("wallet", "#available"), ("team", "#new-key")):
            consumer.go(screen)
            consumer.shows(shown)
            consumer.shows("main .rows li, main .list-row, main .empty")
            review.look(consumer, screen)
        consumer.click("#new-key")
        review.look(consumer, "team-new-key")
        with a_receiver() as receiver:
            consumer.click("#new-webhook")
            consumer.page.fill("#webhook-url", receiver)
            review.look(consumer, "team-new-webhook")
            consumer.click("#create-webhook")
            expect(consumer.page.locator("#webhook-secret")).to_have_value(re.compile("^whsec_"))
            consumer.click(".webhook button:has-text('Deliveries')")
            consumer.click(".webhook button:has-text('Send a test event')")
            consumer.shows("[data-delivery=DELIVERED]", "webhook.ping")
            review.look(consumer, "team-webhooks")
            first = consumer.page.input_value("#webhook-secret")
            consumer.click("[data-delivery=DELIVERED] button:has-text('Send again')")
            consumer.shows("[data-delivery]", "attempt 2")
            consumer.click(".webhook button:has-text('New secret')")
            expect(consumer.page.locator("#webhook-secret")).not_to_have_value(first)
            consumer.shows(".webhook", "previous secret")
        consumer.page.evaluate("localStorage.setItem('sightline.language', 'de')")
        consumer.page.reload()
        consumer.go("buy")
        consumer.shows("h1", "Was möchten Sie sehen?")
        review.look(consumer, "buy-german")
        consumer.go("watch/00000000-0000-4000-8000-000000000000")
        consumer.allowed = (r"404 \(Not Found\) \S*/sessions/0000",)
        consumer.shows(".empty")
        review.look(consumer, "watch-missing")
        assert review.wrong == [], "\n".join(review.wrong)
        assert consumer.problems == operator.problems == phone.problems == []
