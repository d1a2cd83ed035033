"""Group commit: steps of many actors that come together share one round trip and one transaction.

A commit costs Postgres more than the step it makes durable, and the way across the bridge costs us as much
as preparing the step. So while `WRITERS` batches are under way, further steps gather, and go as one batch
when a writer is free. A lone step never waits: with a free writer it goes at once, alone.

The steps of a batch are executed one after the other by the same SQL function as alone, pipelined, in one
implicit transaction. A step that the store decides against writes nothing, which does not disturb the
others. A step that *fails* undoes the batch; then each is run alone, and only the one that fails again
fails. Batched are only steps that lock nothing but rows of their own: the order of locks among batches is
then of no consequence.

How callers gather, and who leads: `sightline.storage.database.batching`.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, final

from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from sightline.storage.database.batching import Batcher, Call
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

WRITERS: Final = 2
"""Batches under way at once: one waits for its commit while the other is executed."""

BATCH_MAX: Final = 64
"""Steps of one batch; bounds how long a step waits for the others of its batch (about 0.1 ms each)."""


@final
@dataclass(eq=False, slots=True)
class _Step(Call):
    arguments: tuple[object, ...] = ()
    row: Any = None
    error: StoreUnavailableError | OutcomeUnknownError | None = None
    runs_alone: bool = False
    """The batch was undone by one of its steps: run by yourself."""


@final
class GroupCommit:
    """Runs one statement, which gives one row, for many callers."""

    def __init__(
        self, database: Database, statement: str, *, order: Callable[[tuple[object, ...]], int] | None = None
    ) -> None:
        """Prepare to run the statement.

        Args:
            order: Rank of a step within its batch, from its arguments. Steps lock their shards; whoever takes shards
                over locks them in ascending order, and so must a batch.
        """
        self._database = database
        self._statement = statement
        self._order = order
        self._batcher: Batcher[_Step] = Batcher(self._serve, at_once=WRITERS, batch_max=BATCH_MAX)

    async def write(self, arguments: tuple[object, ...]) -> Any:
        """Run the statement and return its row.

        Raises:
            StoreUnavailableError, OutcomeUnknownError, StatementRefusedError: As `Database.run`.

        Cancellation: obeyed while gathered; nothing is written then.
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

        async def unit(connection: Connection) -> list[Any]:
            rows: list[Any] = await connection.fetchmany(self._statement, everything)
            return rows

        try:
            rows = await self._database.run(unit)
        except (StoreUnavailableError, OutcomeUnknownError) as error:
            for step in batch:
                step.error = error
        except Exception:  # noqa: BLE001  whose fault it is shows when each runs alone
            for step in batch:
                step.runs_alone = True
        else:
            for step, row in zip(batch, rows, strict=True):
                step.row = row
