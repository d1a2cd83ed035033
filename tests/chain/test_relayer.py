"""Settlements reach the chain once, whatever the endpoint does in between."""

from pathlib import Path

import trio

from sightline.ports.ledger import SettlementState
from tests.chain.world import World, running


async def test_an_ended_session_is_confirmed_and_told_and_the_books_balance(world: World, tmp_path: Path) -> None:
    await world.ready_parties()
    async with running(world, tmp_path) as service:
        session_id = await world.end_session(rate=1_000, seconds=61)
        began = trio.current_time()
        service.notify()
        await world.until_told(session_id)
        took_s = trio.current_time() - began
        record = await world.record(session_id)
        assert record.state is SettlementState.CONFIRMED
        assert await world.settled_on_chain() == {session_id: 61_000}
        await world.assert_books_balance()
        view = await world.ledger.wallet(world.payer.workspace_id)
        assert view is not None
        assert view.held_micro == 0
    assert took_s < 2
