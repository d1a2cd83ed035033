"""`sightline serve --tls auto`: a phone that installed the authority gets camera and position.

The phone is emulated: Chromium with a phone's screen and touch, told to accept the certificate. That the certificate
itself verifies against the authority is shown with Python's own TLS.
"""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser

from tests.console.people import PATIENCE_MS, PHONE, ConsoleServer


def test_a_phone_gets_the_authority_and_then_a_page_with_camera_and_position(browser: Browser, tmp_path: Path):
    server = ConsoleServer(tmp_path, SIGHTLINE_TLS_AUTO="true")
    try:
        server.start()
        assert urlsplit(server.url).scheme == "https"
        authority = httpx.get(f"{server.url}/ca.crt", verify=ssl._create_unverified_context())
        assert authority.headers["content-type"] == "application/x-x509-ca-cert"
        trusting = ssl.create_default_context(cadata=authority.text)
        answer = httpx.get(f"{server.url}/console/", verify=trusting)
        assert answer.status_code == 200
        assert "strict-transport-security" not in answer.headers
        assert f"{server.url}/ca.crt" in server.log
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
        page.click("#make-qr")
        link = page.input_value("#camera-link", timeout=PATIENCE_MS)
        assert link.startswith(server.url)
        page.goto(link)
        page.wait_for_selector("#position:has-text('±')", timeout=PATIENCE_MS)
        page.click("#go-online")
        page.wait_for_selector(".badge.online", timeout=PATIENCE_MS)
        phone.close()
    finally:
        server.end()
