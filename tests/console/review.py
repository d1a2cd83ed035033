"""Looks at a screen in every form: nothing for axe to report, nothing wider than the window, in each language.

If UPDATE_IMAGES is set, its pictures are stored in .interop/console, and those of the README in docs/images.
"""

import io
import os
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, ViewportSize, expect

from tests.console.people import DESK, PHONE, Tab

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / ".interop" / "console"
IMAGES = ROOT / "docs" / "images"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
NARROW = ViewportSize(width=320, height=640)
WIDE = ViewportSize(width=1920, height=1080)
ZOOMED = ViewportSize(width=320, height=256)
"""1280 by 1024 at 400 %."""
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
CONTRAST = {"type": "rule", "values": ["color-contrast"]}
"""The rules that depend on the theme."""
IMAGE_WIDTH = 880
UPDATES_IMAGES = bool(os.environ.get("UPDATE_IMAGES"))

EXCESS = """() => {
  const page = document.documentElement;
  scrollTo(-innerWidth, scrollY);  // from right to left, what is too wide hangs out on the left
  const hidden = Math.abs(scrollX);
  scrollTo(0, scrollY);
  return Math.max(page.scrollWidth - innerWidth, hidden);
}"""
SPEAK = """async language => {
  const root = document.documentElement;
  for (let tries = 0; tries < 3; tries++) {
    const choices = [...document.querySelectorAll(".preferences select")];
    const select = choices.find((each) => each.querySelector("[value=de]"));
    if (!select) return false;
    select.value = language;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    const until = performance.now() + 20_000;
    do await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    while (root.lang !== language && performance.now() < until);
    if (root.lang === language) return true;
  }
  throw new Error(`the language stays ${root.lang}: ${document.querySelector("[role=alert]")?.textContent}`);
}"""
"""Chooses a language as a user does, again if it could not be loaded, and waits until it is shown."""


def violations(page: Page, rules: dict[str, Any]) -> list[str]:
    """What axe reports: rule and element."""
    if page.evaluate("typeof window.axe") != "object":
        page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("rules => axe.run(document, {runOnly: rules})", rules)
    return [f"{each['id']}: {node['html'][:160]}" for each in found["violations"] for node in each["nodes"]]


def _show_whole(page: Page, size: ViewportSize) -> None:
    """Make the window as high as the page, so that the bars at its edges cover nothing wherever it was scrolled to."""
    page.set_viewport_size(size)
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size(ViewportSize(width=size["width"], height=max(size["height"], height)))


def _store(page: Page, name: str, size: ViewportSize) -> None:
    """Store the whole page as a picture."""
    if not UPDATES_IMAGES:
        return
    _show_whole(page, size)
    page.screenshot(path=PICTURES / f"{name}.png")


class Review:
    """Collects what is wrong with screens, so that one run reports all of it."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        if UPDATES_IMAGES:
            PICTURES.mkdir(parents=True, exist_ok=True)

    def look(
        self, tab: Tab, name: str, sizes: tuple[ViewportSize, ...] = (DESK, PHONE), *, is_loading: bool = False
    ) -> None:
        """Check the open screen in both themes, at each size, at 320 px, at 400 %, in German and in Arabic.

        A screen that is loading has no content yet, so that axe is not asked about it.
        """
        page = tab.page
        if not is_loading:
            expect(page.locator("main .spinner.big")).to_have_count(0)
        for theme, shown, rules in (("light", sizes, RULES), ("dark", sizes[:1], CONTRAST)):
            page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
            for size in shown:
                _store(page, f"{name}-{size['width']}-{theme}", size)
            if not is_loading:
                _show_whole(page, shown[-1])
                self.wrong += [f"{name} {theme} {each}" for each in violations(page, rules)]
        page.evaluate("document.documentElement.dataset.theme = 'system'")
        self._fits(tab, name, NARROW)
        self._fits(tab, name, WIDE)
        self._fits(tab, name, ZOOMED)
        if page.evaluate(SPEAK, "de"):
            self._fits(tab, f"{name} in German", NARROW)
            self._fits(tab, f"{name} in German", ZOOMED)
            _store(page, f"{name}-390-german", PHONE)
            self._look_from_right(tab, name, sizes, is_loading=is_loading)
            page.evaluate(SPEAK, "en")
        page.set_viewport_size(sizes[0])

    def _look_from_right(self, tab: Tab, name: str, sizes: tuple[ViewportSize, ...], *, is_loading: bool) -> None:
        """Check the screen in Arabic, which is written from right to left."""
        page = tab.page
        assert page.evaluate(SPEAK, "ar")
        assert page.evaluate("document.documentElement.dir") == "rtl"
        for size in sizes:
            self._fits(tab, f"{name} in Arabic", size)
            _store(page, f"{name}-{size['width']}-arabic", size)
        self._fits(tab, f"{name} in Arabic", NARROW)
        self._fits(tab, f"{name} in Arabic", ZOOMED)
        if not is_loading:
            _show_whole(page, NARROW)
            self.wrong += [f"{name} in Arabic {each}" for each in violations(page, RULES)]

    def _fits(self, tab: Tab, name: str, size: ViewportSize) -> None:
        tab.page.set_viewport_size(size)
        excess = tab.page.evaluate(EXCESS)
        if excess > 0:
            self.wrong.append(f"{name}: {excess} px wider than a window of {size['width']} by {size['height']} px")

    def publish(self, tab: Tab, name: str) -> None:
        """Store the window as a picture of the README, if the run was asked to."""
        if not UPDATES_IMAGES:
            return
        tab.page.set_viewport_size(ViewportSize(width=1280, height=800))
        picture = Image.open(io.BytesIO(tab.page.screenshot()))
        height = picture.height * IMAGE_WIDTH // picture.width
        small = picture.convert("RGB").resize((IMAGE_WIDTH, height), Image.Resampling.LANCZOS)
        small.quantize(256, Image.Quantize.MAXCOVERAGE).save(IMAGES / f"console-{name}.png", optimize=True)

    def done(self, *tabs: Tab) -> None:
        """Report everything that was wrong."""
        found = self.wrong + [each for tab in tabs for each in tab.problems]
        assert found == [], "\n".join(found)
