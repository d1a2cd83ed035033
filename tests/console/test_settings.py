"""What settings change: an own authority for phones, streets on the map, a token for the operations page.

The phone is emulated: Chromium with a phone's screen and touch, told to accept the certificate. That the certificate
itself verifies against the authority is shown with Python's own TLS.
"""

import io
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import httpx
import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from sightline.domain.value import Value
from tests.console.people import PATIENCE_MS, PHONE, ConsoleServer, a_tab
from tests.console.review import Review

TOKEN = "0123456789abcdef0123456789abcdef"


class TileServer(BaseHTTPRequestHandler):
    """Answers one picture for every tile."""

    def do_GET(self) -> None:
        picture = io.BytesIO()
        Image.new("RGB", (256, 256), (150, 180, 150)).save(picture, "PNG")
        self.send_response(200)
        self.send_header("content-type", "image/png")
        self.end_headers()
        self.wfile.write(picture.getvalue())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
        """Print nothing."""


@contextmanager
def a_tile_server() -> Iterator[str]:
    """Run a tile server; returns the template of its URLs."""
    tiles = HTTPServer(("127.0.0.1", 0), TileServer)
    thread = threading.Thread(target=tiles.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{tiles.server_port}/{{z}}/{{x}}/{{y}}.png"
    finally:
        tiles.shutdown()
        thread.join()
        tiles.server_close()


class Configured(Value):
    """A server with these settings."""

    server: ConsoleServer
    tiles_url: str


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    with a_tile_server() as tiles_url:
        server = ConsoleServer(
            tmp_path_factory.mktemp("configured"),
            SIGHTLINE_TLS_AUTO="true",
            SIGHTLINE_MAP_TILES_URL=tiles_url,
            SIGHTLINE_MAP_ATTRIBUTION="© Harbour Maps",
            SIGHTLINE_INTERNAL_TOKEN=TOKEN,
        )
        try:
            server.start()
            yield Configured(server, tiles_url)
        finally:
            server.end()


def test_a_phone_gets_the_authority_and_then_a_page_with_camera_and_position(browser: Browser, configured: Configured):
    server = configured.server
    assert urlsplit(server.url).scheme == "https"
    authority = httpx.get(f"{server.url}/ca.crt", verify=ssl._create_unverified_context())
    assert authority.headers["content-type"] == "application/x-x509-ca-cert"
    trusting = ssl.create_default_context(cadata=authority.text)
    answer = httpx.get(f"{server.url}/console/", verify=trusting)
    assert answer.status_code == 200
    assert "strict-transport-security" not in answer.headers
    is_loopback = urlsplit(server.url).hostname == "127.0.0.1"  # of a machine without a private address
    assert (f"No phone can open {server.url}/" if is_loopback else f"{server.url}/ca.crt") in server.log
    assert (server.data_dir / "tls" / "ca_key.pem").stat().st_mode & 0o077 == 0

    phone = browser.new_context(
        viewport=PHONE,
        is_mobile=True,
        has_touch=True,
        ignore_https_errors=True,
        geolocation={"latitude": 52.5, "longitude": 13.4, "accuracy": 8},
        permissions=["geolocation", "camera"],
    )
    page = phone.new_page()
    page.goto(server.url)
    page.click("#test-wallet")
    page.fill("#workspace-name", "Pier Cams", timeout=PATIENCE_MS)
    page.select_option("#purpose", "SUPPLIER")
    page.click("#create-workspace")
    page.wait_for_selector("#create-workspace", state="detached", timeout=PATIENCE_MS)
    page.goto(f"{server.url}/console/#/operate")

    # The map with streets: tiles, the credit of their owner, and nothing that the page's policy refuses.
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.wait_for_selector(".leaflet-tile-loaded", timeout=PATIENCE_MS)
    tile = page.locator(".leaflet-tile-loaded").first.get_attribute("src") or ""
    assert tile.startswith(configured.tiles_url.partition("{")[0])
    expect(page.locator(".leaflet-control-attribution")).to_contain_text("© Harbour Maps")
    assert problems == []

    page.click("#make-qr")
    link = page.input_value("#camera-link", timeout=PATIENCE_MS)
    assert link.startswith(server.url)
    page.goto(link)
    page.wait_for_selector("#position:has-text('±')", timeout=PATIENCE_MS)
    page.click("#go-online")
    page.wait_for_selector(".badge.online", timeout=PATIENCE_MS)
    phone.close()


def test_the_operations_page_asks_for_the_token(browser: Browser, configured: Configured):
    review = Review()
    url = configured.server.internal_url
    with a_tab(browser, url) as ops:
        ops.allowed = (r"401 \(\S*\) ",)
        ops.page.goto(f"{url}/ops")
        ops.shows("#token")
        review.look(ops, "ops-token")
        ops.page.fill("#token", "wrong")
        ops.click("#enter")
        ops.shows("#token-wrong")
        ops.page.fill("#token", TOKEN)
        ops.click("#enter")
        ops.shows("[data-ready=database].right")
        review.look(ops, "ops-idle")
        review.done(ops)
