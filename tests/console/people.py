"""Tabs of the console as people use them: a consumer and an operator at a desk, and a phone as camera."""

import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

from sightline.system.server_address_file import read_server_addresses
from tests.e2e.server import Server
from tests.video.interop.browser import chromium_path

CHROMIUM_FLAGS = [
    # Fewer frames a second than the default 20, because encoding them takes much of the CPU of these tests.
    "--use-fake-device-for-media-stream=fps=8",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-features=WebRtcHideLocalIpsWithMdns",
]
PLACE = (52.520008, 13.404954)
DESK = ViewportSize(width=1280, height=860)
PHONE = ViewportSize(width=390, height=844)
ACROSS = ViewportSize(width=844, height=390)
"""A phone that is held as one films."""
PATIENCE_MS = 120_000
UNTIL = """async ([argument, patience]) => {
  const end = performance.now() + patience;
  while (performance.now() < end) {
    if (await (SCRIPT)(argument)) return true;
    await new Promise((next) => setTimeout(next, 50));
  }
  return false;
}"""


def in_trio(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run async code in a thread of its own: Playwright has an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(trio.run, work).result()


class ConsoleServer:
    """A server process that keeps its port when it is started again."""

    def __init__(self, directory: Path, **env: str) -> None:
        self._server = Server(directory, env={"SIGHTLINE_VIDEO_WORKERS": "1", **env})

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def internal_url(self) -> str:
        found = read_server_addresses(self.data_dir)
        assert found is not None
        return found.internal_url

    @property
    def internal_token(self) -> str:
        return self._server.internal_headers()["authorization"].removeprefix("Bearer ")

    @property
    def data_dir(self) -> Path:
        return self._server.directory / "data"

    @property
    def log(self) -> str:
        return self._server.log()

    def start(self) -> None:
        in_trio(self._server.start)

    def kill(self) -> None:
        in_trio(self._server.kill)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop the server's process in the block: its connections stay open, and nothing is answered."""
        assert self._server.process is not None
        self._server.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._server.end()


@contextmanager
def launched(playwright: Playwright, *, is_full: bool) -> Iterator[Browser]:
    """Run a headless Chromium with a fake camera.

    The headless shell, without installation and notifications, needs about half of the CPU for each tab.
    """
    path = chromium_path() if is_full else shutil.which("chromium-headless-shell")
    assert path, "scripts/interop_video.sh installs it"
    browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def a_browser() -> Iterator[Browser]:
    """Run full Chromium with a Playwright of its own: a process can have one only."""
    with sync_playwright() as playwright, launched(playwright, is_full=True) as browser:
        yield browser


@dataclass
class Tab:
    """One tab, and everything that it must not do."""

    page: Page
    url: str
    place: tuple[float, float]
    problems: list[str] = field(default_factory=list)
    allowed: tuple[str, ...] = (r"40[49] \([\w ]+\) \S*/whep/", r"40[49] \([\w ]+\) \S*/frame\?")
    """Console errors that are right. The browser logs each 4xx: WHEP's 409 says that the camera is not on yet, the 404
    of a DELETE that the server closed the player's connection first, a frame's 409 that the session has ended, and its
    404 that no picture came in time."""

    def heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.note(f"{message.text} {message.location.get('url', '')}")

    def answered(self, response: Response) -> None:
        if response.status >= 500:
            self.note(f"{response.status} {response.url}")

    def note(self, problem: str) -> None:
        if not any(re.search(pattern, problem) for pattern in self.allowed):
            self.problems.append(problem)

    def asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https") and parts.netloc != urlsplit(self.url).netloc:
            self.problems.append(f"foreign request {request.url}")

    def go(self, screen: str) -> None:
        self.page.goto(f"{self.url}/console/#/{screen}")

    def shows(
        self, selector: str, text: str | re.Pattern[str] | None = None, *, within_ms: float = PATIENCE_MS
    ) -> None:
        found = self.page.locator(selector).first
        if text is None:
            expect(found).to_be_visible(timeout=within_ms)
        else:
            expect(found).to_contain_text(text, timeout=within_ms)

    def click(self, selector: str) -> None:
        self.page.click(selector, timeout=PATIENCE_MS)

    def until(self, script: str, argument: object = None) -> None:
        """Wait until the function `script`, evaluated in the page, returns something true.

        `Page.wait_for_function` calls `eval` in the page from its second look on, which the page's policy forbids.
        """
        held = self.page.evaluate(UNTIL.replace("SCRIPT", script), [argument, PATIENCE_MS])
        assert held, f"not within {PATIENCE_MS} ms: {script}"

    def picture(self, state: str, *, within_ms: float) -> None:
        """Wait until the player is in a state."""
        self.page.wait_for_selector(f".stage[data-picture={state}]", timeout=within_ms)


@contextmanager
def a_tab(
    browser: Browser, url: str, viewport: ViewportSize = DESK, *, place: tuple[float, float] = PLACE
) -> Iterator[Tab]:
    """Open a tab with a profile of its own. Tests that share a server are at different places: an operator of one of
    them must not be sent to a session of another.
    """
    latitude, longitude = place
    context = browser.new_context(
        viewport=viewport,
        geolocation={"latitude": latitude, "longitude": longitude, "accuracy": 8},
        permissions=["geolocation", "camera", "microphone"],
        reduced_motion="reduce",
    )
    tab = Tab(context.new_page(), url, place)
    tab.page.on("console", tab.heard)
    tab.page.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.page.on("request", tab.asked)
    tab.page.on("response", tab.answered)
    try:
        yield tab
    finally:
        context.close()


def sign_up(tab: Tab, name: str, purpose: str) -> None:
    """From the root of the server to a workspace, by clicks."""
    tab.page.goto(tab.url + "/")
    tab.click("#test-wallet")
    tab.shows("#create-workspace")
    tab.page.fill("#workspace-name", name)
    tab.page.select_option("#purpose", purpose)
    tab.click("#create-workspace")
    tab.page.wait_for_selector("#create-workspace", state="detached", timeout=PATIENCE_MS)


def add_funds(consumer: Tab) -> None:
    """From the checklist to test money and a limit."""
    consumer.go("start")
    consumer.click("#faucet")
    consumer.click("#approve")
    consumer.shows("#to-buy")


def camera_link(operator: Tab) -> str:
    """The link that the code on the operator's screen shows."""
    operator.go("operate")
    operator.click("#make-qr")
    operator.shows("svg.qr")
    return operator.page.input_value("#camera-link")


def come_online(phone: Tab, link: str) -> None:
    phone.page.goto(link)
    phone.shows("#position", "±")
    phone.click("#go-online")
    phone.shows(".badge.online")


@contextmanager
def all_three(browser: Browser, url: str, place: tuple[float, float]) -> Iterator[tuple[Tab, Tab, Tab]]:
    """Open the tabs of a consumer with funds, an operator at a desk, and its phone, which is online at the place."""
    with (
        a_tab(browser, url, place=place) as consumer,
        a_tab(browser, url) as operator,
        a_tab(browser, url, PHONE, place=place) as phone,
    ):
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        yield consumer, operator, phone


def request_view(consumer: Tab, instructions: str) -> str:
    """Ask for a view and return the session's id; an operator must be online."""
    consumer.go("buy")
    consumer.page.fill("#place", f"{consumer.place[0]}, {consumer.place[1]}")
    consumer.page.fill("#instructions", instructions)
    consumer.click("#request:not([disabled])")
    consumer.page.wait_for_url("**/#/watch/*", timeout=PATIENCE_MS)
    return consumer.page.url.rpartition("/")[2]


def end_view(consumer: Tab) -> None:
    """End the running view, and confirm it."""
    consumer.click("#end")
    consumer.click("#end-sure")


def decline(phone: Tab) -> None:
    """Decline the job on the phone, and answer the question."""
    phone.click("#decline")
    phone.click("#decline-sure")


def stop_filming(phone: Tab) -> None:
    """End the view on the phone, and answer the question."""
    phone.click("#stop")
    phone.click("#stop-sure")
