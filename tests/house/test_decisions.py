"""The index of decisions lists every decision once, by its title."""

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "adr"
ROW = re.compile(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \| (in force.*|superseded by \d{4}) \|$", re.MULTILINE)


def title_of(decision: Path) -> str:
    first = decision.read_text().splitlines()[0]
    return re.sub(r"^# (ADR )?\d{4}[.:]? *", "", first).strip()


def test_the_index_lists_every_decision_with_its_title_and_state() -> None:
    listed = {name: title for _number, name, title, _state in ROW.findall((DECISIONS / "README.md").read_text())}
    assert listed == {path.name: title_of(path) for path in DECISIONS.glob("[0-9]*.md")}
