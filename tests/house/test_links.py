"""Relative links of the documents lead to files of this repository, and their fragments to headings."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```|~~~).*?^\1\s*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


def documents() -> list[Path]:
    """The pages that people read."""
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/*.md"), *ROOT.glob("deploy/**/*.md")]


def anchors(document: Path) -> set[str]:
    """Fragments of the headings, as GitHub makes them."""
    fenced = re.sub(r"^(```|~~~).*?^\1\s*$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(fenced))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def broken(document: Path) -> list[str]:
    """Name the page and each link of it that leads nowhere."""
    wrong = []
    for text, picture in LINK.findall(CODE.sub("", document.read_text())):
        target = text or picture
        path, _, fragment = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        found = (document.parent / path).resolve() if path else document
        is_anchor_wrong = fragment and found.suffix == ".md" and found.is_file() and fragment not in anchors(found)
        if not found.exists() or is_anchor_wrong:
            wrong.append(f"{document.name}: {target}")
    return wrong


def test_every_relative_link_leads_somewhere() -> None:
    pages = documents()
    assert len(pages) > 50
    assert [link for page in pages for link in broken(page)] == []


def test_a_missing_file_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Some title\n[a](#some-title) [b](#other) [c](page.md#some-title) [d](gone.md) `[e](code)`\n")
    assert broken(page) == ["page.md: #other", "page.md: gone.md"]
