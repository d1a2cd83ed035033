"""The profile of Base Sepolia on anvil: CONFIRMED at 5 blocks, books at the block `finalized`, 64 below the head."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from sightline.chain.costs import CAPTURE_BYTES, GAS_PRICE_ORACLE, OPEN_BYTES, SESSION_GAS
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.money.journal import PostgresJournal
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from tests.chain.escrow.stage import KINDS, Kind, Stage
from tests.chain.interop.anvil import Anvil, open_anvil
from tests.chain.interop.conftest import a_world_on, mining
from tests.chain.world import Wallet, ids, until

pytestmark = pytest.mark.interop
BASE_SEPOLIA = 84_532
REORGANISED = 30
SCRIPT = Path(__file__).parents[3] / "scripts" / "public_network.py"


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
    stage: Stage, anvil: Anvil
) -> None:
    journal = PostgresJournal(stage.database)
    before = await stage.world.balance(stage.world.payer)
    async with stage.running(depth=None, capture_window_ms=0) as service:
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
        await anvil.reorganise(REORGANISED + 3)  # the capture is in a removed block
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
    stage: Stage, anvil: Anvil
) -> None:
    async with stage.running(depth=None) as service:
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
    stage: Stage, anvil: Anvil, kind: Kind
) -> None:
    async with stage.running(depth=0, capture_window_ms=0) as service, mining(anvil):
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


async def public_network(anvil: Anvil, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the script against anvil; returns its exit code and what it printed."""
    done = await trio.run_process(
        [sys.executable, str(SCRIPT), "--rpc-url", anvil.url, *arguments],
        capture_stdout=True, stderr=subprocess.STDOUT, check=False, env=os.environ | environment,
    )  # fmt: skip
    return done.returncode, done.stdout.decode()


async def test_one_command_deploys_and_settles_a_session_at_the_depth_of_the_profile(anvil: Anvil) -> None:
    async with mining(anvil):
        code, said = await public_network(anvil, SIGHTLINE_DEPLOYER_KEY=anvil.treasury_key)
    sys.stdout.write(said)
    assert code == 0, said
    assert "chain 84532, Base Sepolia: confirmed at 5 blocks" in said
    for what in ("deploy TestUSDC", "deploy SessionEscrow", "mint", "open", "capture"):
        (line,) = [line for line in said.splitlines() if line.startswith(f"{what} ")]
        receipt = await anvil.rpc.call("eth_getTransactionReceipt", line.removeprefix(what).split()[0])
        assert (receipt["status"], f"gas {int(receipt['gasUsed'], 16):>9,}" in line) == ("0x1", True)
    assert said.count("confirmed: 5 blocks on top") == 2
    for who, change in (("payer", -20_000), ("payee", 17_000), ("fee receiver", 3_000)):
        assert f"{change:+d}, expected {change:+d}" in next(each for each in said.splitlines() if each.startswith(who))
    assert said.splitlines()[-1] == "settled"


async def test_the_command_settles_in_the_networks_own_usdc_with_the_keys_that_it_is_given(stage: Stage) -> None:
    world, payee = stage.world, Wallet()
    anvil = Anvil(world.node_url, world.rpc, world.treasury_key, "", world.token, world.settlement)
    before = await world.balance(world.payer)
    given = {
        "SIGHTLINE_DEPLOYER_KEY": world.treasury_key, "SIGHTLINE_PAYER_KEY": world.payer.key,
        "SIGHTLINE_PAYEE": payee.address, "SIGHTLINE_CHAIN_METER_KEY": "0x" + stage.meter_key.hex(),
    }  # fmt: skip
    async with mining(anvil):
        code, said = await public_network(anvil, "--usdc", world.token, **given)
    assert code == 0, said
    assert "TestUSDC" not in said
    assert (before - await world.balance(world.payer), await world.balance(payee)) == (20_000, 17_000)
    for key in (world.treasury_key, world.payer.key, stage.meter_key.hex()):
        assert key.removeprefix("0x") not in said


async def test_the_command_says_what_failed_and_fails(anvil: Anvil) -> None:
    code, said = await public_network(anvil, SIGHTLINE_DEPLOYER_KEY="0x" + ids.token_bytes(32).hex())
    assert (code, "insufficient" in said.lower()) == (1, True), said
    code, said = await public_network(anvil, SIGHTLINE_DEPLOYER_KEY="no key")
    assert (code, said) == (1, "failed: SIGHTLINE_DEPLOYER_KEY is not a private key of 32 bytes in hex\n")
