"""Time, randomness, ids and cancellation of the client.

Each async name has a sync twin that takes its place in the generated sync client.
"""

import random
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")

REQUESTED_SESSION = "requested_session"
"""Attribute of the log record by which a view tells the session that it has requested."""

INTERRUPTED_SESSION = "interrupted_session"
"""Attribute of the log record by which a view tells that it has ended its session after Ctrl-C."""

SECONDS_MAX = 14_400
"""Longest duration of a session."""

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


async def async_finish(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Run `work` to its end although the caller is cancelled, once or more often, for at most this many seconds.

    Raises:
        TimeoutError: It took longer.
        Exception: What `work` raises.

    Cancellation: an asyncio task that is cancelled by `Task.cancel` meanwhile is cancelled afterwards.
    """
    values: list[T] = []
    errors: list[Exception] = []

    async def run() -> None:
        try:
            with anyio.fail_after(seconds, shield=True):
                values.append(await work())
        except Exception as error:  # noqa: BLE001  raised to the caller, without the group's wrapping
            errors.append(error)

    # A task of its own: no scope shields its caller from `Task.cancel` of asyncio.
    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
    if errors:
        raise errors[0]
    return values[0]


def sync_finish(work: Callable[[], T], _seconds: float) -> T:
    """Run `work`. A thread cannot be cancelled; the retry policy bounds the time."""
    return work()
