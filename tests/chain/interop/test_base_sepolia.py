"""The profile of Base Sepolia on anvil: CONFIRMED at 5 blocks, books at the block `finalized`, 64 below the head."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sightline.chain.costs import CAPTURE_BYTES, GAS_PRICE_ORACLE, OPEN_BYTES, SESSION_GAS
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.money.journal import PostgresJournal
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from tests.chain.escrow.stage import KINDS, Kind, Stage
from tests.chain.interop.anvil import Anvil, open_anvil
from tests.chain.interop.conftest import a_world_on, mining
from tests.chain.world import until

pytestmark = pytest.mark.interop
BASE_SEPOLIA = 84_532
REORGANISED = 30


@pytest.fixture
async def anvil() -> AsyncIterator[Anvil]:
    async with open_anvil(is_escrow=True, chain_id=BASE_SEPOLIA) as anvil:
        yield anvil


@pytest.fixture
async def stage(anvil: Anvil, database: Database) -> AsyncIterator[Stage]:
    async with a_world_on(anvil) as world:
        stage = Stage.on(world, database, bytes.fromhex(anvil.meter_key[2:]))
        async with mining(anvil):
            await world.ready_parties(10**9)
        await anvil.mine(2)
        yield stage


async def test_a_reorganisation_below_the_depth_costs_nothing_and_the_books_are_written_when_final(
    stage: Stage, anvil: Anvil, tmp_path: Path
) -> None:
    journal = PostgresJournal(stage.database)
    before = await stage.world.balance(stage.world.payer)
    async with stage.running(tmp_path, depth=None, capture_window_ms=0) as service:
        assert service.escrow is not None
        async with mining(anvil):
            session = await stage.assigned(service)
            await service.escrow.open_hold(session)
            await stage.ended(session, 5)
            service.notify()
            await stage.until_done(session.id)
        await anvil.mine(REORGANISED)
        await stage.world.until_in_step()
        kinds = {stored.entry.kind.value for stored in await journal.entries(limit=99)}
        assert kinds == set(), "CONFIRMED, and not final yet"
        await anvil.rpc.call("anvil_reorg", REORGANISED + 3, [])  # the capture is in a removed block
        async with mining(anvil):
            await stage.until_done(session.id)
        await anvil.mine(70)
        await stage.world.until_books_read()

        async def is_written() -> bool:
            entries = [stored.entry for stored in await journal.entries(limit=99)]
            return {"OPENED", "SETTLED", "RETURNED"} <= {
                each.kind.value for each in entries if each.session_id == session.id
            }

        await until("the journal has the session", is_written)
        assert all(stored.reverses is None for stored in await journal.entries(limit=99))
        assert await stage.world.balance(stage.world.payer) == before - 5_000
        check, differences = await service.reconciler(PostgresBooks(stage.database)).compare()
    assert differences == []
    final = int((await anvil.rpc.call("eth_getBlockByNumber", "finalized", False))["number"], 16)
    head = int(await anvil.rpc.call("eth_blockNumber"), 16)
    assert (check.through_block, head - final) == (final, 64)


async def test_fees_of_the_oracle_lower_the_number_of_sessions_that_the_relayer_can_pay(
    stage: Stage, anvil: Anvil, tmp_path: Path
) -> None:
    async with stage.running(tmp_path, depth=None) as service:
        without = await service.relayer_coin()
        cost_wei = without.balance_wei // without.sessions
        # Answers each call with its number, a size or gas, times 2**32.
        code = "0x600435" + "640100000000" + "02" + "600052" + "60206000f3"
        await anvil.rpc.call("anvil_setCode", GAS_PRICE_ORACLE, code)
        coin = await service.relayer_coin()
    beside_wei = (OPEN_BYTES + CAPTURE_BYTES + SESSION_GAS) << 32
    assert coin.balance_wei == without.balance_wei
    assert coin.sessions == pytest.approx(coin.balance_wei // (cost_wei + beside_wei), rel=1e-9)
    assert coin.sessions < without.sessions


@pytest.mark.parametrize("kind", KINDS)
async def test_no_open_and_no_capture_is_larger_than_what_its_data_fee_is_asked_for(
    stage: Stage, anvil: Anvil, tmp_path: Path, kind: Kind
) -> None:
    async with stage.running(tmp_path, depth=0, capture_window_ms=0) as service, mining(anvil):
        assert service.escrow is not None
        session = await stage.assigned(service, kind=kind)
        await service.escrow.open_hold(session)
        await stage.ended(session, 5)
        service.notify()
        await stage.until_done(session.id)
    opening, capture = await stage.openings.opening(session.id), await stage.world.record(session.id)
    assert opening is not None
    sizes = len(opening.attempts[-1].raw), len(capture.attempts[-1].raw)
    sys.stdout.write(f"bytes of open by {kind} and capture: {sizes}\n")
    assert sizes[0] <= OPEN_BYTES
    assert sizes[1] <= CAPTURE_BYTES
