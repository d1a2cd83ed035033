"""Fixture: a new identity world per test."""

import pytest

from tests.identity.world import World


@pytest.fixture
def world() -> World:
    return World()
