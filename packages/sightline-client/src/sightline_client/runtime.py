"""Time, randomness, ids and cancellation of the client.

Each async name has a sync twin that takes its place in the generated sync client.
"""

import random
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

monotonic_s = time.monotonic
unix_s = time.time


def new_key() -> str:
    """Create an Idempotency-Key."""
    return uuid.uuid4().hex


def new_secret() -> bytes:
    """Create a secret of 24 random bytes."""
    return secrets.token_bytes(24)


def jitter() -> float:
    """Return a random factor from 0.5 to 1 for the delay of a retry."""
    return random.uniform(0.5, 1.0)  # noqa: S311  spreads retries; no secret


async def async_sleep(seconds: float) -> None:
    """Sleep."""
    await anyio.sleep(seconds)


def sync_sleep(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


@asynccontextmanager
async def async_shield(seconds: float) -> AsyncIterator[None]:
    """Run the block to its end although the caller is cancelled, for at most this many seconds.

    Raises:
        TimeoutError: The block took longer.
    """
    with anyio.fail_after(seconds, shield=True):
        yield


@contextmanager
def sync_shield(_seconds: float) -> Iterator[None]:
    """Run the block. A thread cannot be cancelled; the retry policy bounds the time."""
    yield
