"""The console as an app: its manifest, and a service worker that keeps the page and never an answer of the API."""

import io
import json

import httpx
from PIL import Image
from playwright.sync_api import Browser, expect

from tests.console.people import ConsoleServer, a_tab, sign_up

KEPT = """async () => {
  const found = [];
  for (const name of await caches.keys()) {
    for (const each of await (await caches.open(name)).keys()) found.push(new URL(each.url).pathname);
  }
  return found;
}"""


def test_the_manifest_names_icons_of_the_sizes_that_it_says(server: ConsoleServer):
    page = httpx.get(f"{server.url}/console/")
    assert "manifest-src 'self'" in page.headers["content-security-policy"]
    manifest = httpx.get(f"{server.url}/console/manifest.webmanifest")
    assert manifest.headers["content-type"] == "application/manifest+json"
    said = json.loads(manifest.text)
    assert (said["start_url"], said["scope"], said["display"]) == ("/console/", "/console/", "standalone")
    for icon in said["icons"]:
        answer = httpx.get(f"{server.url}{icon['src']}")
        assert answer.headers["content-type"] == icon["type"]
        if icon["type"] == "image/png":
            assert "{}x{}".format(*Image.open(io.BytesIO(answer.content)).size) == icon["sizes"]


def test_chromium_can_install_the_console(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        tab.page.goto(f"{server.url}/console/")
        tab.page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        session = tab.page.context.new_cdp_session(tab.page)
        found = session.send("Page.getAppManifest")
        assert found["errors"] == []
        # A window without a profile that is kept, as in tests, is never offered an installation: nothing else is wrong.
        errors = {each["errorId"] for each in session.send("Page.getInstallabilityErrors")["installabilityErrors"]}
        assert errors <= {"in-incognito"}
        assert tab.problems == []


def test_the_page_opens_without_a_server_and_no_answer_of_the_api_is_kept(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        tab.allowed = (r"ERR_INTERNET_DISCONNECTED",)
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        tab.page.reload()  # from now on the worker answers
        for screen in ("sessions", "wallet", "team", "buy"):
            tab.go(screen)
            tab.shows("h1")
        kept = tab.page.evaluate(KEPT)
        assert "/console/" in kept
        assert [each for each in kept if not each.startswith("/console/") or "?" in each] == []
        tab.page.context.set_offline(True)
        tab.page.reload()
        tab.shows(".empty", "You are offline")
        tab.page.context.set_offline(False)
        expect(tab.page.locator("nav a[href*=buy]")).to_be_visible()
        assert tab.problems == []
