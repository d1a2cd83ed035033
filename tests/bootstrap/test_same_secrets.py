"""Servers of one database use the same secrets."""

from pathlib import Path

import pytest

from sightline.bootstrap.database import require_same_secrets
from sightline.bootstrap.failures.errors import StartError
from sightline.config import Settings
from sightline.storage.database.bridge import Database
from sightline.system.ids import SystemIds
from sightline.system.secrets import load_secrets


async def test_a_server_with_other_secrets_is_refused(database: Database, tmp_path: Path) -> None:
    first, second = (Settings(secrets_file=tmp_path / name) for name in ("first.json", "second.json"))
    secrets = load_secrets(first.secrets_path, SystemIds())
    for _ in ("the first start", "a restart"):
        await require_same_secrets(first, secrets, database)
    others = load_secrets(second.secrets_path, SystemIds())
    with pytest.raises(StartError, match=r"second\.json.*SIGHTLINE_SECRETS_FILE"):
        await require_same_secrets(second, others, database)
    assert secrets.fingerprint not in str(others)
