"""Group commit: concurrent writes of many actors share one round trip and one transaction.

A commit costs Postgres more than the write it makes durable, and the way across the bridge costs as much CPU as
preparing the write. While `WRITERS` batches are in flight, further writes wait and go as one batch. A single write
does not wait.

The writes of a batch are executed one after the other by the same SQL function as a single write, pipelined, in one
implicit transaction. A write that the function rejects changes nothing and does not affect the others. A write that
raises an error undoes the batch; each write is then run alone, so that only the faulty one fails. Only writes that
lock no rows but their own are batched, so batches cannot deadlock with each other.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Final, TypeAlias, final

from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from sightline.storage.database.batching import BatchedCall, Batcher
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

WRITERS: Final = 2
"""Batches in flight: one waits for its commit while the other is executed."""

BATCH_MAX: Final = 64
"""Writes of one batch; bounds how long a write waits for the others (about 0.1 ms each)."""

Columns: TypeAlias = tuple[object, ...]
"""The arguments of one write."""


@final
class _Step(BatchedCall, eq=False):
    arguments: Columns = ()
    row: Any = None
    error: StoreUnavailableError | OutcomeUnknownError | None = None
    runs_alone: bool = False
    """The batch was undone by the error of one write: run this one alone."""


@final
class GroupCommit:
    """Runs one statement, which returns one row, for many callers."""

    def __init__(
        self,
        database: Database,
        statement: str,
        *,
        order: Callable[[Columns], int] | None = None,
        lead: Callable[[list[Columns]], Columns] | None = None,
    ) -> None:
        """Prepare to run the statement.

        Args:
            order: Sort key of a write within its batch, from its arguments. Writes lock their shards in this order; a
                take-over locks shards in ascending order, so a batch must too.
            lead: Makes the arguments of the first write of a batch from those of all, for writes that lock more than
                one shard: the first one locks the shards of the whole batch.
        """
        self._database = database
        self._statement = statement
        self._order = order
        self._lead = lead
        self._batcher: Batcher[_Step] = Batcher(self._serve, at_once=WRITERS, batch_max=BATCH_MAX)

    async def write(self, arguments: Columns) -> Any:
        """Run the statement and return its row.

        Raises:
            StoreUnavailableError, OutcomeUnknownError, StatementRefusedError: As `Database.run`.

        Cancellation: obeyed while the write waits for a batch; nothing is written then.
        """
        step = _Step(arguments=arguments)
        await self._batcher.submit(step)
        if step.runs_alone:
            return await self._database.run(lambda connection: connection.fetchrow(self._statement, *arguments))
        if step.error is not None:
            # The error of the batch, as an exception of its own for each caller.
            raise copy(step.error) from step.error
        return step.row

    async def _serve(self, batch: list[_Step]) -> None:
        if (order := self._order) is not None:
            batch.sort(key=lambda step: order(step.arguments))
        everything = [step.arguments for step in batch]
        if self._lead is not None:
            everything[0] = self._lead(everything)

        async def unit(connection: Connection) -> list[Any]:
            rows: list[Any] = await connection.fetchmany(self._statement, everything)
            return rows

        try:
            rows = await self._database.run(unit)
        except (StoreUnavailableError, OutcomeUnknownError) as error:
            for step in batch:
                step.error = error
        except Exception:  # noqa: BLE001  running each alone shows which one failed
            for step in batch:
                step.runs_alone = True
        else:
            for step, row in zip(batch, rows, strict=True):
                step.row = row
