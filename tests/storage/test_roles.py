"""Roles: a relayer or watcher that another server has replaced reads on, and writes nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from sightline.domain.session.model import SessionState
from sightline.ports.leases import ServerRole
from sightline.ports.ledger import BlockApplication, BlockRef, SettlementState
from sightline.ports.store import ShardLease, ShardLostError
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.role_database import RoleDatabase
from sightline.storage.postgres.store import PostgresStore
from tests.contract.builders import T0, a_session, a_settlement, in_phase
from tests.shards import take_every_shard

BLOCK = BlockRef(number=1, block_hash="0x01", parent_hash="0x00")


@dataclass
class Server:
    """What one server writes as relayer and as watcher."""

    relayer: PostgresLedger
    watcher: PostgresLedger


async def a_server(database: Database, name: str) -> Server:
    epochs = await take_every_shard(PostgresStore(database), "host", name)

    def ledger(role: ServerRole) -> PostgresLedger:
        bound = RoleDatabase(database)
        bound.bind(ShardLease(role, epochs[role]))
        return PostgresLedger(bound)

    return Server(ledger(ServerRole.RELAYER), ledger(ServerRole.WATCHER))


@pytest.fixture
async def settlement(database: Database) -> str:
    payload = a_settlement(in_phase(a_session(), SessionState.ENDED))
    await PostgresLedger(database).compose(payload, now_ms=T0)
    return payload.session_id


def writes_of(server: Server, session_id: str) -> list[Callable[[], Awaitable[object]]]:
    """A write of each kind: one statement, several, and one that compares the cursor."""
    block = BlockApplication(
        headers=(BLOCK,), events=(), readings=(), settled=(), head=BLOCK, confirmed_block=1, previous=None
    )
    return [
        lambda: server.relayer.mark_waiting(
            session_id, SettlementState.FAILED, reason="tried", retry_at_ms=T0, now_ms=T0
        ),
        lambda: server.relayer.mark_sent([], now_ms=T0),
        lambda: server.relayer.store_signed("0xabc", [], now_ms=T0),
        lambda: server.watcher.apply_blocks(block, now_ms=T0),
        lambda: server.watcher.mark_checked(now_ms=T0),
    ]


async def test_a_server_writes_in_the_roles_that_it_holds(database: Database, settlement: str) -> None:
    server = await a_server(database, "first")
    for write in writes_of(server, settlement):
        await write()
    found = await server.relayer.settlement(settlement)
    assert found is not None
    assert found.reason == "tried"
    assert await server.watcher.chain_head() == BLOCK


async def test_a_server_that_was_replaced_writes_nothing_in_its_roles(database: Database, settlement: str) -> None:
    server = await a_server(database, "first")
    await a_server(database, "second")
    for write in writes_of(server, settlement):
        with pytest.raises(ShardLostError):
            await write()
    found = await server.relayer.settlement(settlement)
    assert found is not None
    assert found.reason is None
    assert await server.watcher.chain_head() is None


async def test_a_role_that_was_never_bound_writes_nothing(database: Database) -> None:
    with pytest.raises(ShardLostError):
        await PostgresLedger(RoleDatabase(database)).mark_checked(now_ms=T0)


async def test_a_server_of_the_version_before_owns_every_row_until_it_is_replaced(database: Database) -> None:
    rows = await database.read(lambda connection: connection.fetchval("SELECT count(*) FROM shard"))
    assert rows == 256
    assert len(await take_every_shard(PostgresStore(database), "host", "next")) == 256 + len(ServerRole)
