"""Workspaces in Postgres."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sightline.domain.conduct import Conduct
from sightline.domain.operator.codec import from_doc, to_doc
from sightline.domain.operator.model import Availability, Workspace
from sightline.domain.value import replace
from sightline.ports.store import Committed, Rejected, WorkspaceWrite
from sightline.storage.database.bridge import Database
from sightline.storage.database.group_commit import GroupCommit
from sightline.storage.database.pool import Connection
from sightline.storage.json import dump, load
from sightline.storage.postgres.commits import decided, edge_columns, id_bounds, idempotency_columns
from sightline.storage.postgres.money import holds

WRITE: Final = f"SELECT why, revision FROM write_workspace({', '.join(f'${number}' for number in range(1, 18))})"  # noqa: S608  numbers only

# The newest heartbeat is joined, because the workspace row is not written for every heartbeat.
_SELECT = """
SELECT w.doc, w.version, h.sequence, h.at_ms, h.lat, h.lng FROM workspace w LEFT JOIN LATERAL (
  SELECT sequence, at_ms, lat, lng FROM heartbeat WHERE workspace_id = w.id ORDER BY sequence DESC LIMIT 1
) h ON true
"""
BY_IDS: Final = f"{_SELECT} WHERE w.id = ANY($1::uuid[])"
_FIRST_BY_SLUG: Final = "SELECT id FROM workspace WHERE starts_with(slug, $1) ORDER BY slug LIMIT $2"
BY_SLUG: Final = f"{_SELECT} WHERE w.id IN ({_FIRST_BY_SLUG}) ORDER BY w.slug"
DISPATCHABLE: Final = f"{_SELECT} WHERE w.is_dispatchable AND w.id BETWEEN $1 AND $2"


CONDUCTS: Final = """
SELECT wallet, no_shows_ms, proved_at_ms FROM operator_conduct
WHERE proved_at_ms IS NOT NULL OR no_shows_ms[cardinality(no_shows_ms)] > $1
"""
SAVE_CONDUCT: Final = """
INSERT INTO operator_conduct (wallet, no_shows_ms, proved_at_ms, updated_at_ms) VALUES ($1, $2, $3, $4)
ON CONFLICT (wallet) DO UPDATE SET no_shows_ms = excluded.no_shows_ms, proved_at_ms = excluded.proved_at_ms,
  updated_at_ms = excluded.updated_at_ms
"""


async def write_workspace(database: Database, steps: GroupCommit, write: WorkspaceWrite) -> Committed | Rejected:
    """Store one write; the wallet of a new workspace is tracked from then on."""
    workspace = write.workspace
    columns = (
        write.lease.shard,
        write.lease.epoch,
        *idempotency_columns(write.idempotency),
        workspace.id,
        workspace.version,
        workspace.slug,
        is_dispatchable(workspace),
        dump(to_doc(workspace)),
        write.at_ms,
        *edge_columns(write.tuples),
    )

    async def open_account(connection: Connection) -> Any:
        row = await connection.fetchrow(WRITE, *columns)
        if row["why"] is None:
            await holds.track_wallet(connection, workspace.id, workspace.wallet_address, now_ms=write.at_ms)
        return row

    if workspace.version == 0:
        return await decided(database.transact(open_account), workspace.version)
    return await decided(steps.write(columns), workspace.version)


def is_dispatchable(workspace: Workspace) -> bool:
    """Whether the dispatcher's index and the claim reconciliation need this workspace."""
    return workspace.is_supplier and (workspace.availability is not Availability.OFFLINE or bool(workspace.claims))


async def find_workspaces(connection: Connection, ids: Sequence[str]) -> dict[str, Workspace]:
    """Read several by id; unknown ones are left out."""
    found = (_workspace(row) for row in await connection.fetch(BY_IDS, ids))
    return {workspace.id: workspace for workspace in found}


async def workspaces(database: Database, ids: Sequence[str]) -> Sequence[Workspace]:
    """Read several, in no promised order; unknown ids are left out."""
    found = await database.read(lambda connection: find_workspaces(connection, list(ids)))
    return list(found.values())


async def workspaces_by_slug(database: Database, start: str, limit: int) -> Sequence[Workspace]:
    """Read the workspaces whose slug starts with a text, ordered by slug."""
    rows = await database.read(lambda connection: connection.fetch(BY_SLUG, start, limit))
    return [_workspace(row) for row in rows]


async def suppliers(database: Database, shard: int | None) -> Sequence[Workspace]:
    """Every SUPPLIER that is ONLINE or BUSY or holds a claim, of one shard or of all."""
    bounds = id_bounds(shard)
    rows = await database.read(lambda connection: connection.fetch(DISPATCHABLE, *bounds), deadline_ms=30_000)
    return [_workspace(row) for row in rows]


async def conducts(database: Database, since_ms: int) -> Mapping[str, Conduct]:
    """The records of wallets that have ever proved themselves, or have a no-show since a time."""
    rows = await database.read(lambda connection: connection.fetch(CONDUCTS, since_ms), deadline_ms=30_000)
    return {
        row["wallet"]: Conduct(no_shows_ms=tuple(row["no_shows_ms"]), proved_at_ms=row["proved_at_ms"]) for row in rows
    }


async def save_conducts(database: Database, found: Mapping[str, Conduct]) -> None:
    """Record the conduct of wallets."""
    rows = [
        (wallet, list(each.no_shows_ms), each.proved_at_ms, max((*each.no_shows_ms, each.proved_at_ms or 0)))
        for wallet, each in sorted(found.items())
    ]
    await database.run(lambda connection: connection.executemany(SAVE_CONDUCT, rows))


def _workspace(row: Mapping[str, Any]) -> Workspace:
    workspace = from_doc(load(row["doc"]), row["version"])
    if row["sequence"] is None:
        return workspace
    workspace = replace(workspace, last_place=(row["lat"], row["lng"]))
    if row["sequence"] <= workspace.last_sequence:
        return workspace
    return replace(workspace, last_sequence=row["sequence"], last_seen_at_ms=row["at_ms"])
