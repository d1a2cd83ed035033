"""Assignments in Postgres: a session's row and its operator's row in one transaction, many of them in one commit."""

from typing import Final, cast

from sightline.domain.operator.codec import to_doc
from sightline.ports.store import Committed, RejectedAssignment, RejectedWhy, SessionWrite, WorkspaceWrite
from sightline.storage.database.group_commit import Columns, GroupCommit
from sightline.storage.database.sqlstate import StatementRefusedError
from sightline.storage.json import dump
from sightline.storage.postgres.commits import SQLSTATE
from sightline.storage.postgres.sessions import session_columns
from sightline.storage.postgres.workspaces import is_dispatchable

WRITE: Final = f"SELECT why, revision FROM write_assignment({', '.join(f'${number}' for number in range(1, 45))})"  # noqa: S608  numbers only


async def write_assignment(
    steps: GroupCommit, session: SessionWrite, workspace: WorkspaceWrite
) -> Committed | RejectedAssignment:
    """Store an assignment with its claim."""
    operator = workspace.workspace
    columns = (
        sorted({session.lease.shard, workspace.lease.shard}),
        *session_columns(session),
        workspace.lease.shard,
        workspace.lease.epoch,
        operator.id,
        operator.version,
        operator.slug,
        is_dispatchable(operator),
        dump(to_doc(operator)),
        workspace.at_ms,
    )
    try:
        row = await steps.write(columns)
    except StatementRefusedError as error:
        if error.sqlstate != SQLSTATE:
            raise
        return RejectedAssignment(session=RejectedWhy(error.reason))
    if row["why"] is not None:
        return RejectedAssignment(workspace=RejectedWhy(row["why"]))
    return Committed(session.session.version + 1, row["revision"])


def lock_all_shards(batch: list[Columns]) -> Columns:
    """The arguments of the first write of a batch, with the shards of the whole batch to be locked, ascending.

    A take-over locks the shards in ascending order. A batch that locked the shards of one write after another could
    wait for it while it waits for the batch.
    """
    shards = {shard for columns in batch for shard in cast(list[int], columns[0])}
    return (sorted(shards), *batch[0][1:])
