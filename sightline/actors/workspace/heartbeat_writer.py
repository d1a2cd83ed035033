"""Group commit of heartbeats: writes those of many workspaces in one transaction per batch."""

from typing import Final, final

import structlog
import trio
from msgspec import Struct, field

from sightline.actors.kernel import OverloadedError
from sightline.domain.errors import OutcomeUnknownError, SightlineError
from sightline.ports.store import HeartbeatWrite, ShardLease, ShardLostError, Store

BATCH_MAX: Final = 2_000
QUEUE_MAX: Final = 20_000
GATHER_S: Final = 0.003
GATHER_BELOW: Final = 32
"""A batch below GATHER_BELOW heartbeats waits GATHER_S for more: a commit of thirty costs little more than of one."""
WRITERS: Final = 2
"""Batches in flight at once: while one waits for its commit the next one fills."""

log = structlog.get_logger("sightline.heartbeats")


@final
class _Submitted(Struct, eq=False):
    write: HeartbeatWrite
    done: trio.Event = field(default_factory=trio.Event)
    error: SightlineError | None = None
    """Why the heartbeats may not have been written; valid once `done` is set."""


@final
class HeartbeatWriter:
    """Writes submitted heartbeats in batches; a batch holds what was submitted while the previous one was written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: list[_Submitted] = []
        self._queued = 0
        self._wakeup = trio.Event()
        self._turn = trio.Lock()

    @property
    def depth(self) -> int:
        """Heartbeats that wait to be written."""
        return self._queued

    async def write(self, write: HeartbeatWrite) -> None:
        """Write heartbeats; they are durable when this returns.

        Raises:
            OverloadedError: `QUEUE_MAX` heartbeats wait already; nothing was written.
            ShardLostError: Another server has taken the shard; nothing was written.
            StoreUnavailableError: Nothing was written.
            OutcomeUnknownError: They may have been written.

        Cancellation: they may be written.
        """
        if self._queued + len(write.heartbeats) > QUEUE_MAX:
            raise OverloadedError("too many heartbeats wait to be written")
        submitted = _Submitted(write)
        self._queue.append(submitted)
        self._queued += len(write.heartbeats)
        self._wakeup.set()
        await submitted.done.wait()
        if submitted.error is not None:
            raise submitted.error

    async def run(self) -> None:
        """Write batches until cancelled."""
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
            await self._store_batch(batch)

    async def _store_batch(self, batch: list[_Submitted]) -> None:
        """Write a batch, and give each submitter its outcome."""
        error: SightlineError | None = None
        lost: frozenset[ShardLease] = frozenset()
        try:
            lost = await self._store.append_heartbeats([item.write for item in batch])
        except Exception as caught:
            log.exception("heartbeats_not_written", heartbeats=sum(len(item.write.heartbeats) for item in batch))
            error = caught if isinstance(caught, SightlineError) else OutcomeUnknownError(str(caught))
        for item in batch:
            item.error = error
            if lost and item.write.lease in lost:
                item.error = ShardLostError("another server owns this workspace")
            item.done.set()

    def _take(self) -> list[_Submitted]:
        count, size = 0, 0
        for item in self._queue:
            if count and size + len(item.write.heartbeats) > BATCH_MAX:
                break
            count += 1
            size += len(item.write.heartbeats)
        batch, self._queue = self._queue[:count], self._queue[count:]
        self._queued -= size
        return batch
