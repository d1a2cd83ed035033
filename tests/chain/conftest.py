"""Fixtures of the chain tests: an EVM in the test process, and chains behind an endpoint with injected faults."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from simulation.memory.ledger import MemoryLedger
from tests.chain.evm import Evm, an_evm
from tests.chain.relayer.desk import Desk, TrioClock
from tests.chain.relayer.settling_node import SettlingNode, open_node
from tests.chain.world import World, open_world


@pytest.fixture(scope="module")
def evm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evm]:
    """Both contracts on one EVM, shared by the tests of a module."""
    evm = an_evm(tmp_path_factory.mktemp("evm"))
    yield evm
    evm.machine.store.close()


@pytest.fixture(scope="session")
def shared_chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of an embedded chain that runs until the end of the test session."""
    directory = tmp_path_factory.mktemp("shared") / "chain"
    args = [
        sys.executable, "-m", "sightline.chain.embedded", "--data-dir", str(directory), "--chain-id", "84532001",
        "--max-fee-bps", "3000", "--session-cap-micro", "1000000000000", "--admin-delay-s", "0",
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
async def world(shared_chain: Path) -> AsyncIterator[World]:
    """The shared chain with an endpoint, wallets and a ledger for one test."""
    async with open_world(shared_chain) as world:
        yield world


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """A relayer's ledger and node, both in the test process."""
    node = SettlingNode()
    async with open_node(node) as rpc:
        yield Desk(node, rpc, MemoryLedger(TrioClock().now_ms))
