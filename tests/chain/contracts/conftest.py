"""Fixtures of the escrow contract's tests."""

import dataclasses
from collections.abc import Iterator

import pytest

from tests.chain.contracts.escrow_world import EscrowWorld, escrow_world, funded
from tests.chain.contracts.ground import DirectGround


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EscrowWorld]:
    """Both contracts, and a payer with money and an allowance."""
    ground = DirectGround(tmp_path_factory.mktemp("escrow"))
    yield funded(escrow_world(ground))
    ground.close()


@pytest.fixture
def world(shared_world: EscrowWorld) -> Iterator[EscrowWorld]:
    """The shared contracts as they were deployed; what a test does is undone."""
    assert isinstance(shared_world.ground, DirectGround)
    with shared_world.ground.undone():
        yield dataclasses.replace(shared_world, holds={})
