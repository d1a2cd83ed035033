"""Group commit of heartbeats: one writer, many workspaces, one transaction per batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import structlog
import trio

from sightline.ports.store import Heartbeat, IdempotencyRecord, ShardLease, Store

BATCH_MAX: Final = 2_000
QUEUE_MAX: Final = 20_000
GATHER_S: Final = 0.003
GATHER_BELOW: Final = 32
"""How long a small batch waits for company: a commit costs the same for one as for thirty, and takes longer."""
WRITERS: Final = 2
"""Batches under way at once: while one waits for its commit the next one fills."""

log = structlog.get_logger("sightline.heartbeats")

Done: TypeAlias = Callable[[Exception | None], None]


@final
@dataclass(frozen=True, slots=True)
class Submitted:
    """Heartbeats of one report, at least one, and whom to tell: `done(None)` once they are durable, `done(error)` if
    they are not."""

    heartbeats: tuple[Heartbeat, ...]
    done: Done
    answer: IdempotencyRecord | None = None
    """Kept with the heartbeats, if the report came with a key."""

    @property
    def workspace_id(self) -> str:
        """Whose heartbeats they are."""
        return self.heartbeats[0].workspace_id


@final
class HeartbeatWriter:
    """Writes what is submitted, in batches as large as have gathered while the last one was being written."""

    def __init__(self, store: Store, lease: Callable[[str], ShardLease]) -> None:
        self._store = store
        self._lease = lease
        self._queue: list[Submitted] = []
        self._queued = 0
        self._wakeup = trio.Event()
        self._turn = trio.Lock()

    @property
    def depth(self) -> int:
        """Heartbeats that wait for a batch."""
        return self._queued

    def submit(self, submitted: Submitted) -> bool:
        """Hand over heartbeats.

        Returns:
            False if too many wait already; nothing was taken.
        """
        if self._queued + len(submitted.heartbeats) > QUEUE_MAX:
            return False
        self._queue.append(submitted)
        self._queued += len(submitted.heartbeats)
        self._wakeup.set()
        return True

    async def run(self) -> None:
        """Write for ever."""
        async with trio.open_nursery() as nursery:
            for _ in range(WRITERS):
                nursery.start_soon(self._write_batches)

    async def _write_batches(self) -> None:
        while True:
            async with self._turn:
                while not self._queue:
                    self._wakeup = trio.Event()
                    await self._wakeup.wait()
                if self._queued < GATHER_BELOW:
                    await trio.sleep(GATHER_S)
                batch = self._take()
            error: Exception | None = None
            try:
                beats = [beat for item in batch for beat in item.heartbeats]
                leases = {self._lease(workspace_id) for workspace_id in {item.workspace_id for item in batch}}
                answers = [item.answer for item in batch if item.answer is not None]
                await self._store.append_heartbeats(beats, leases, answers)
            except Exception as caught:
                log.exception("heartbeats_not_written", heartbeats=sum(len(item.heartbeats) for item in batch))
                error = caught
            for item in batch:
                item.done(error)

    def _take(self) -> list[Submitted]:
        count, size = 0, 0
        for item in self._queue:
            if count and size + len(item.heartbeats) > BATCH_MAX:
                break
            count += 1
            size += len(item.heartbeats)
        batch, self._queue = self._queue[:count], self._queue[count:]
        self._queued -= size
        return batch
