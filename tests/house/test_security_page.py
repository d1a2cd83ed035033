"""docs/ops/security.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ops" / "security.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    files = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for text in files for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 50
    assert named - defined == set()
    assert [path for path in re.findall(r"`(tests/\S+\.py)`", PAGE) if not (ROOT / path).is_file()] == []
