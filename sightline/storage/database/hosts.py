"""Connects to the one of several Postgres hosts that accepts writes. Used on the asyncio thread only.

asyncpg tries the hosts one after the other within one timeout. A first host that drops packets, as a machine without
power does, would use all of it, so that no connection would be opened after a failover. Here each attempt starts
`STAGGER_S` after the one before it, or when that one has failed, and the first connection that is made is kept.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import asyncpg

from sightline.storage.database.history import StaleDatabaseError

STAGGER_S: Final = 0.25
"""With three hosts, all attempts begin within 0.5 s. Renewing a lease may have to open a connection, and has 1 s."""


async def connect_first(
    urls: Sequence[str], connect_to: Callable[[str], Coroutine[Any, Any, asyncpg.Connection]]
) -> asyncpg.Connection:
    """Connect to the first of these URLs that can be reached and is what `target_session_attrs` asks for.

    Raises:
        StaleDatabaseError: All of them are older than the database that was seen.
        Exception: What `connect_to` raised, if it failed for all. A host that cannot be reached or refuses the login
            goes before one that accepts no writes.

    Cancellation: no connection stays open.
    """
    if len(urls) == 1:
        return await connect_to(urls[0])
    remaining, attempts = deque(urls), list[asyncio.Task[asyncpg.Connection]]()
    chosen: asyncpg.Connection | None = None
    try:
        while chosen is None and (remaining or not all(attempt.done() for attempt in attempts)):
            if remaining:
                attempts.append(asyncio.create_task(connect_to(remaining.popleft())))
            running = [attempt for attempt in attempts if not attempt.done()]
            await asyncio.wait(running, timeout=STAGGER_S if remaining else None, return_when=asyncio.FIRST_COMPLETED)
            chosen = next((each.result() for each in attempts if each.done() and each.exception() is None), None)
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(lambda ended: _close_unless(chosen, ended))
    if chosen is not None:
        return chosen
    errors = [error for each in attempts if (error := each.exception()) is not None]
    stale = [error for error in errors if isinstance(error, StaleDatabaseError)]
    if stale and len(stale) < len(errors):
        # The one that is not reached, or not promoted yet, may be the present primary: not final.
        others = "; ".join(str(error) for error in errors if error not in stale)
        raise ConnectionError(f"{others}; of the other host, {stale[0]}")
    raise min(errors, key=lambda error: isinstance(error, asyncpg.TargetServerAttributeNotMatched))


def _close_unless(chosen: asyncpg.Connection | None, attempt: "asyncio.Task[asyncpg.Connection]") -> None:
    if not attempt.cancelled() and attempt.exception() is None and attempt.result() is not chosen:
        attempt.result().terminate()
