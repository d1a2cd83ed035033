"""A fresh world per test."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from tests.http.world import World, open_world


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Calls are not logged line by line, save where a test wants to read them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.reset_defaults()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as opened:
        yield opened
