"""docs/ops names every event that asks for action, every family of settings, and migrations that want a stop."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from sightline.config import Settings
from sightline.storage.database.migrate import ANNOUNCED_SINCE, known_migrations

ROOT: Final = Path(__file__).parents[2]
CALLS: Final = re.compile(r"""log(?:ger)?\.(?:warning|error|exception|critical)\(\s*"([a-z0-9_]+)\"""")
PAGES: Final = {path.name: path.read_text() for path in (ROOT / "docs" / "ops").glob("*.md")}
NOT_A_SERVER: Final = ("cli", "client", "sim")
"""Programs of callers and of developers."""


def test_every_event_that_asks_for_action_is_explained() -> None:
    events: dict[str, str] = {}
    for path in (ROOT / "sightline").rglob("*.py"):
        if path.relative_to(ROOT / "sightline").parts[0] not in NOT_A_SERVER:
            events |= dict.fromkeys(CALLS.findall(path.read_text()), path.name)
    explained = set(re.findall(r"`([a-z0-9_]+)`", "\n".join(PAGES.values())))
    assert len(events) > 40
    assert {event: where for event, where in events.items() if event not in explained} == {}


def test_every_setting_belongs_to_a_family_that_is_explained() -> None:
    table = PAGES["run.md"].partition("## Settings")[2].partition("\n## ")[0]
    families = re.findall(r"`([A-Z_*]+)`", "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    names = [name.upper() for name in Settings.model_fields]
    assert [name for name in names if not any(fnmatch(name, family) for family in families)] == []
    assert [family for family in families if not any(fnmatch(name, family) for name in names)] == []


def test_every_migration_for_which_all_servers_are_stopped_is_named() -> None:
    wanted = [
        f"{migration.number:04}"
        for migration in known_migrations()
        if migration.compatible_from is None and migration.number > ANNOUNCED_SINCE
    ]
    (named,) = re.findall(r"Migrations that want all servers stopped.*: ([\d, ]+)\.", PAGES["cluster.md"])
    assert named.split(", ") == wanted
