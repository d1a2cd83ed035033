"""Servers of one database use the same secrets."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from sightline.bootstrap.database import require_same_secrets
from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.maintenance.stopped_server import on_stopped_server
from sightline.config import Settings
from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.operations.secrets_check import (
    are_same_secrets,
    replace_fingerprint,
    running_hosts,
    stored_fingerprint,
)
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


async def test_secrets_are_replaced_only_while_no_server_runs_and_nobody_else_replaced_them(database: Database) -> None:
    async def lease(ends_in: str) -> None:
        await database.transact(
            lambda connection: connection.execute(
                "INSERT INTO server_lease (incarnation, host, place, expires_at) "
                f"VALUES ('one', 'north', '/data', clock_timestamp() + interval '{ends_in}') "
                "ON CONFLICT (incarnation) DO UPDATE SET expires_at = excluded.expires_at"
            )
        )

    assert await are_same_secrets(database, "first")
    assert await replace_fingerprint(database, "first", "second")
    assert not await replace_fingerprint(database, "first", "third")
    await lease("6 s")
    assert await running_hosts(database) == ["north"]
    assert not await replace_fingerprint(database, "second", "third")
    await lease("1 hour")
    assert await running_hosts(database) == [], "a lease from before the clock was set back"
    assert await replace_fingerprint(database, "second", "third")
    assert await stored_fingerprint(database) == "third"


async def test_secrets_are_not_replaced_while_a_server_that_starts_commits_its_lease(
    database: Database,
) -> None:
    locks = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'server_lease'::regclass AND {})"
    waits, is_made = locks.format("NOT granted"), locks.format("mode = 'RowExclusiveLock' AND granted")
    assert await are_same_secrets(database, "first")
    replaced = list[bool]()

    async def start(connection: Connection) -> None:
        await connection.execute(
            "INSERT INTO server_lease (incarnation, host, place, expires_at) "
            "VALUES ('one', 'north', '/data', clock_timestamp() + interval '6 s')"
        )
        while not await connection.fetchval(waits):
            pass

    async def accept() -> None:
        replaced.append(await replace_fingerprint(database, "first", "second"))

    with trio.fail_after(30):
        async with trio.open_nursery() as both:
            both.start_soon(database.transact, start)
            while not await database.read(lambda connection: connection.fetchval(is_made)):
                pass
            both.start_soon(accept)
    assert replaced == [False]
    assert await stored_fingerprint(database) == "first"


@pytest.mark.parametrize(
    ("error", "begins", "said"),
    [
        (StoreUnavailableError("away"), True, "Nothing was changed: away\n"),
        (OutcomeUnknownError("lost."), False, "Nothing was changed: lost.\n"),
        (OutcomeUnknownError("lost."), True, "It is not known whether it was changed: lost. Run the command again.\n"),
        (OSError("full."), True, "It is not known whether it was changed: full. Run the command again.\n"),
    ],
)
def test_a_change_whose_outcome_is_not_known_is_not_called_none(
    error: Exception, begins: bool, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(begin: Callable[[], None]) -> bool:
        if begins:
            begin()
        raise error

    assert not on_stopped_server(Settings(data_dir=tmp_path), change)
    assert capsys.readouterr().err == said
