"""Fixtures with an embedded chain on which SessionEscrow is deployed."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sightline.storage.database.bridge import Database
from tests.chain.escrow.stage import Stage
from tests.chain.world import open_world
from tests.e2e.server import Server


@pytest.fixture(scope="session")
def escrow_chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of an embedded chain with SessionEscrow, which runs until the end of the test session."""
    directory = tmp_path_factory.mktemp("escrow") / "chain"
    args = [
        sys.executable, "-m", "sightline.chain.embedded", "--data-dir", str(directory), "--chain-id", "84532001",
        "--max-fee-bps", "3000", "--session-cap-micro", "1000000000000", "--admin-delay-s", "0", "--escrow",
    ]  # fmt: skip
    child = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline().startswith(b"ready ")
    yield directory
    child.stdin.close()
    child.stdout.close()
    child.wait(10)


@pytest.fixture
async def stage(escrow_chain: Path, database: Database) -> AsyncIterator[Stage]:
    """A funded payer, who has no allowance, on the shared chain."""
    keys = json.loads((escrow_chain / "keys.json").read_text())
    async with open_world(escrow_chain) as world:
        stage = Stage.on(world, database, bytes.fromhex(keys["meter"][2:]))
        for wallet in (world.payer, world.payee):
            await stage.ledger.track(wallet.workspace_id, wallet.address, now_ms=0)
        await world.fund(world.payer)
        yield stage


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    """A real server with the funds policy escrow, stopped at the end of the test."""
    made = Server(data_directory, env={"SIGHTLINE_FUNDS_POLICY": "escrow"})
    yield made
    made.end()
