"""The manual can be built: every Mermaid diagram of its pages has been drawn, and every page is in its navigation."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DIAGRAMS: Final = ROOT / "docs" / "images" / "diagrams"


@pytest.fixture(scope="module")
def build_manual() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_manual", ROOT / "scripts" / "build_manual.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_diagram_has_been_drawn_and_no_picture_is_left_over(build_manual: ModuleType) -> None:
    pages = [page for page in build_manual.page_names() if page.suffix == ".md"]
    wanted = {
        build_manual.diagram_name(source): page.relative_to(ROOT)
        for page in pages
        for source in build_manual.MERMAID.findall(page.read_text())
    }
    drawn = {picture.name for picture in DIAGRAMS.glob("*.svg")}
    missing = {str(page) for name, page in wanted.items() if name not in drawn}
    assert missing == set(), "run `make diagrams` and commit docs/images/diagrams"
    assert drawn <= wanted.keys(), "run `make diagrams` and commit docs/images/diagrams"


def test_every_guide_and_operations_page_is_in_the_navigation(build_manual: ModuleType) -> None:
    named = set(re.findall(r'"([\w./-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    pages = {name for name in build_manual.page_names().values() if not name.startswith("files/")}
    assert pages - named == {"guides/simulation.md", "ops/mutants.md"}, "those two are for developers"
