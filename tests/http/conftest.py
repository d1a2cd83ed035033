"""A fresh world per test."""

from collections.abc import AsyncIterator

import pytest

from tests.http.world import World, open_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as opened:
        yield opened
