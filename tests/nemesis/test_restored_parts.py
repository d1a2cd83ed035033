"""Restore a backup of the chain alone, or of the database alone: the money of a settled session moves once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import Server
from tests.nemesis.restored_money import (
    FUNDS,
    backup_of,
    consumer_has,
    end_and_settle,
    film_until,
    receipt_says_only_that_it_is_mismatched,
    restore,
    settled_otherwise,
)
from tests.nemesis.test_clock_steps import a_pair

pytestmark = pytest.mark.interop


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory)
    yield made
    made.end()


async def test_a_settlement_that_an_older_chain_lacks_is_made_again_once(server: Server) -> None:
    await server.start()
    pair = await a_pair(server)
    await server.stop()
    chain = server.directory / "data" / "chain"
    with backup_of(chain) as backup:
        await server.start()
        await pair.go_live()
        await film_until(pair, 2)
        settled = await end_and_settle(pair)
        charged = sum(map(int, settled))
        assert charged > 0
        await consumer_has(pair, FUNDS - charged)
        await server.stop()
        restore(chain, backup)
    await server.start()
    await consumer_has(pair, FUNDS - charged)
    assert await end_and_settle(pair) == settled


async def test_a_session_that_an_older_database_ends_with_another_charge_is_a_mismatch(server: Server) -> None:
    pair = await settled_otherwise(server)
    assert "settlement_amounts_differ" in server.log()
    await receipt_says_only_that_it_is_mismatched(pair)
