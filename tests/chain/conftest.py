"""What the chain's suites share: an EVM in this process, and whole chains behind an endpoint that can misbehave."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.chain.evm import Evm, an_evm
from tests.chain.world import World, open_world


@pytest.fixture(scope="module")
def evm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evm]:
    """Both contracts on a machine that a module's tests share."""
    evm = an_evm(tmp_path_factory.mktemp("evm"))
    yield evm
    evm.machine.store.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A fresh embedded chain in its process, an endpoint in front of it, a ledger in memory."""
    async with open_world(tmp_path) as world:
        yield world
