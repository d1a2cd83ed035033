"""The manual as the server serves it: no foreign request, nothing refused by its policy, no broken link.

scripts/interop_manual.sh has built it. Pictures of some pages are in .interop/manual.
"""

import gzip
import re
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.console.people import DESK, PATIENCE_MS, PHONE, ConsoleServer, a_tab

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "sightline" / "manual"
PICTURES = ROOT / ".interop" / "manual"
BYTES_MAX = 2_500_000
LINK = re.compile(r'(?:href|src)="([^"]+)"')
ID = re.compile(r'\sid="([^"]+)"')
SHOWN = ("index.html", "guides/watch.html", "guides/film.html", "guides/host.html", "api.html", "machines/session.html")


def page_texts() -> dict[str, str]:
    return {
        file.relative_to(BUILT).as_posix().removesuffix(".gz"): gzip.decompress(file.read_bytes()).decode()
        for file in BUILT.rglob("*.html.gz")
    }


def test_every_link_of_the_manual_leads_to_a_file_and_its_fragment_to_an_element() -> None:
    texts = page_texts()
    assert len(texts) > 25
    names = {file.relative_to(BUILT).as_posix().removesuffix(".gz") for file in BUILT.rglob("*.gz")}
    wrong = []
    for name, text in texts.items():
        for link in LINK.findall(text):
            parts = urlsplit(urljoin(f"/{name}", link.replace("&amp;", "&")))
            if urlsplit(link).scheme or link in ("/docs", "/openapi.json", "."):
                continue
            target = unquote(parts.path[1:]) or "index.html"
            is_lost = parts.fragment and target in texts and unquote(parts.fragment) not in ID.findall(texts[target])
            if target not in names or is_lost:
                wrong.append(f"{name}: {link}")
    assert wrong == []


def test_the_manual_is_small_and_has_no_inline_script_or_style() -> None:
    assert sum(file.stat().st_size for file in BUILT.rglob("*.gz")) < BYTES_MAX
    for name, text in page_texts().items():
        assert not re.search(r"<script(?![^>]*(src=|application/json))", text), name
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=\"", text), name


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_pages_load_nothing_from_elsewhere_and_break_no_policy(
    browser: Browser, server: ConsoleServer, viewport
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with a_tab(browser, server.url, viewport) as tab:
        for name in SHOWN:
            tab.page.goto(f"{server.url}/manual/{name}")
            expect(tab.page.locator("h1").first).to_be_visible(timeout=PATIENCE_MS)
            assert all(tab.page.evaluate("[...document.images].map(each => each.complete && each.naturalWidth > 0)"))
            assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            tab.page.screenshot(path=PICTURES / f"{name.replace('/', '-')}-{viewport['width']}.png")
        assert tab.problems == []


def test_the_search_finds_a_page_without_a_network(browser: Browser, server: ConsoleServer) -> None:
    with a_tab(browser, server.url) as tab:
        tab.page.goto(f"{server.url}/manual")
        tab.page.wait_for_load_state("networkidle")  # the script has bound the key
        tab.page.keyboard.press("Control+k")
        tab.page.locator("input[role=combobox]").fill("HOG detector", timeout=PATIENCE_MS)
        found = tab.page.locator("[role=option][href*='people_counter'] mark").first
        expect(found).to_be_visible(timeout=PATIENCE_MS)
        tab.page.screenshot(path=PICTURES / "search.png")
        assert tab.problems == []
