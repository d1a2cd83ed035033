"""Contract of the audit log, for memory and Postgres; in Postgres no statement changes an entry."""

from collections.abc import AsyncIterator

import pytest

from sightline.domain.units import DAY_MS
from sightline.domain.value import replace
from sightline.ports.administration import AuditAction, AuditEntry, AuditLog
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.database.sqlstate import StatementRefusedError
from sightline.storage.postgres.administration import PostgresAuditLog
from sightline.system.clock import SystemClock
from simulation.memory.audit import MemoryAuditLog

ENTRY = AuditEntry(
    act_id="3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44",
    at_ms=1_700_000_000_000,
    actor="Ada (account root)",
    action=AuditAction.SESSION_END,
    target="session 1",
    reason="dispute 17",
    outcome="REQUESTED",
)


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=database_dsn))) as opened:
        yield opened


@pytest.fixture
async def audit_log(store_address: str | None) -> AsyncIterator[AuditLog]:
    if store_address is None:
        yield MemoryAuditLog()
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as opened:
        yield PostgresAuditLog(opened)


async def test_entries_are_read_in_order_by_page_and_by_target(audit_log: AuditLog) -> None:
    for number in range(5):
        await audit_log.append(replace(ENTRY, target=f"session {number % 2}", reason=str(number)))
    page = await audit_log.entries(after_id=0, limit=3)
    assert [entry.reason for entry in page] == ["0", "1", "2"]
    rest = await audit_log.entries(after_id=page[-1].id, limit=3)
    assert [entry.reason for entry in rest] == ["3", "4"]
    assert [entry.reason for entry in await audit_log.entries(after_id=0, limit=9, target="session 1")] == ["1", "3"]
    assert replace(page[0], id=0) == replace(ENTRY, target="session 0", reason="0")


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit_entry SET outcome = 'DONE'", "DELETE FROM audit_entry", "TRUNCATE audit_entry"],
)
async def test_no_statement_changes_a_recent_entry(database: Database, statement: str) -> None:
    audit_log = PostgresAuditLog(database)
    await audit_log.append(replace(ENTRY, at_ms=SystemClock().now_ms() - 29 * DAY_MS))
    with pytest.raises(StatementRefusedError, match="RestrictViolation"):
        await database.run(lambda connection: connection.execute(statement))
    assert len(await audit_log.entries(after_id=0, limit=9)) == 1


async def test_retention_may_delete_entries_older_than_thirty_days(database: Database) -> None:
    audit_log = PostgresAuditLog(database)
    await audit_log.append(replace(ENTRY, at_ms=SystemClock().now_ms() - 31 * DAY_MS))
    await database.run(lambda connection: connection.execute("DELETE FROM audit_entry"))
    assert await audit_log.entries(after_id=0, limit=9) == []
