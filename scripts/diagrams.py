"""Draw the Mermaid diagrams of the manual's pages as SVG files in docs/images/diagrams, named by their source.

`make diagrams` runs it, with mermaid.min.js of npm and Chromium. The manual's build needs neither: it uses the drawn
files.
"""

import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from build_manual import DIAGRAMS, MERMAID, diagram_name, page_names

DRAW: Final = """async source => {
  mermaid.initialize({
    startOnLoad: false, theme: "neutral", fontFamily: "system-ui, sans-serif", htmlLabels: false,
    flowchart: { htmlLabels: false }, deterministicIds: true, deterministicIDSeed: "sightline",
  });
  return (await mermaid.render("diagram", source)).svg;
}"""


def main(library: Path, chromium: str) -> None:
    """Draw what is missing, and delete what no page uses any more."""
    pages = [page for page in page_names() if page.suffix == ".md"]
    sources = {diagram_name(source): source for page in pages for source in MERMAID.findall(page.read_text())}
    DIAGRAMS.mkdir(exist_ok=True)
    for old in DIAGRAMS.glob("*.svg"):
        if old.name not in sources:
            old.unlink()
    missing = {name: source for name, source in sources.items() if not (DIAGRAMS / name).exists()}
    if not missing:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<!doctype html><body></body>")
        page.add_script_tag(path=library)
        for name, source in missing.items():
            (DIAGRAMS / name).write_text(drawn(page, source))
            sys.stdout.write(f"{name}\n")
        browser.close()


def drawn(page: Page, source: str) -> str:
    """The SVG of a diagram."""
    picture: str = page.evaluate(DRAW, source)
    return picture + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
