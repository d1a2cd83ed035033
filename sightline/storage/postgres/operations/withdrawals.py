"""Records withdrawals of rights in a file and in the database, and applies those that a restored database lacks.

The change itself is committed first, then the file is written, then the database notes the time of the newest entry. A
database that was restored from before has an older time, or none: then the entry is applied. So an entry of one
server's file does not undo a later change that another server has recorded in its own file.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

import trio
from msgspec.structs import asdict

from sightline.domain.access import Role
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.ports.identity import Withdrawal, WithdrawalKind
from sightline.ports.relations import RELATION_OF_ROLE, WALLET, WORKSPACE
from sightline.storage.database.bridge import Database
from sightline.system.withdrawal_file import append_withdrawals

BATCH: Final = 200
"""Entries in one statement; a statement is an argument of psql at a restore."""

_GIVEN: Final = """
given AS (
  SELECT DISTINCT ON (g.kind, g.workspace_id, g.subject) g.* FROM
    jsonb_to_recordset($1::jsonb) AS g(kind text, workspace_id text, subject text, state text, actor text, at_ms bigint)
  LEFT JOIN withdrawal w USING (kind, workspace_id, subject)
  WHERE w.at_ms IS NULL OR w.at_ms < g.at_ms
  ORDER BY g.kind, g.workspace_id, g.subject, g.at_ms DESC
),
noted AS (
  INSERT INTO withdrawal SELECT kind, workspace_id, subject, at_ms FROM given
  ON CONFLICT (kind, workspace_id, subject) DO UPDATE SET at_ms = greatest(withdrawal.at_ms, excluded.at_ms)
)
"""
_NOTE: Final = f"WITH {_GIVEN} SELECT count(*) FROM given"  # noqa: S608  no value is part of the text
_APPLY: Final = f"""
WITH {_GIVEN},
keys AS (
  UPDATE api_key k SET revoked_at_ms = g.at_ms, grace_ends_at_ms = g.at_ms FROM given g
  WHERE g.kind = 'key' AND g.state = '' AND k.key_id::text = g.subject
    AND coalesce(k.revoked_at_ms > g.at_ms, true) RETURNING k.key_id
),
kept_keys AS (
  UPDATE api_key k SET revoked_at_ms = NULL, grace_ends_at_ms = NULL FROM given g
  WHERE g.kind = 'key' AND g.state <> '' AND k.key_id::text = g.subject AND k.grace_ends_at_ms > g.at_ms
),
sign_ins AS (
  UPDATE wallet_session s SET ended_at_ms = g.at_ms FROM given g
  WHERE g.kind = 'sign_in' AND s.session_id::text = g.subject AND s.ended_at_ms IS NULL RETURNING s.session_id
),
gone AS (
  DELETE FROM relation_tuple t USING given g
  WHERE g.kind = 'member' AND t.resource_type = '{WORKSPACE}' AND t.resource_id = g.workspace_id
    AND t.subject_type = '{WALLET}' AND t.subject_id = g.subject AND t.relation <> g.state RETURNING t.subject_id
),
kept AS (
  INSERT INTO relation_tuple SELECT '{WORKSPACE}', workspace_id, state, '{WALLET}', subject FROM given
  WHERE kind = 'member' AND state <> '' AND EXISTS (SELECT FROM workspace w WHERE w.id::text = workspace_id)
  ON CONFLICT DO NOTHING
),
uninvited AS (
  UPDATE invitation i SET ended_at_ms = g.at_ms, ended_as = 'WITHDRAWN' FROM given g
  WHERE g.kind = 'member' AND i.workspace_id::text = g.workspace_id AND lower(i.wallet_address) = g.subject
    AND i.ended_at_ms IS NULL AND i.created_at_ms <= g.at_ms
),
suspended AS (
  INSERT INTO workspace_suspension SELECT workspace_id::uuid, at_ms, actor, state FROM given
  WHERE kind = 'suspension' AND state <> '' ON CONFLICT DO NOTHING RETURNING workspace_id
),
lifted AS (
  DELETE FROM workspace_suspension s USING given g
  WHERE g.kind = 'suspension' AND g.state = '' AND s.workspace_id::text = g.workspace_id
)
SELECT (SELECT count(*) FROM keys) || ' keys revoked, ' || (SELECT count(*) FROM gone) || ' memberships ended, ' ||
  (SELECT count(*) FROM suspended) || ' workspaces suspended, ' || (SELECT count(*) FROM sign_ins) || ' sign-ins ended'
"""  # noqa: S608  no value is part of the text


@final
class WithdrawalLog:
    """The file of this server and the table, which both have every withdrawal."""

    def __init__(self, path: Path, database: Database) -> None:
        self._path = path
        self._database = database

    async def record(self, withdrawal: Withdrawal) -> None:
        """Append it to the file, then note it in the database."""
        entry = _stored(withdrawal)
        try:
            await trio.to_thread.run_sync(append_withdrawals, self._path, (entry,))
            await self._database.run(lambda connection: connection.fetchval(_NOTE, _json((entry,))))
        except (OSError, UnavailableError) as error:
            raise OutcomeUnknownError(f"{self._path}: the change is done, and not recorded: {error}") from error

    async def apply(self, withdrawals: Sequence[Withdrawal]) -> list[str]:
        """Apply what the database lacks; returns what was done, one line for each statement."""
        return [await self._apply(values) for values in _batches(withdrawals)]

    async def _apply(self, values: str) -> str:
        return str(await self._database.run(lambda connection: connection.fetchval(_APPLY, values)))


def apply_statements(withdrawals: Sequence[Withdrawal]) -> Iterator[str]:
    """Statements that apply what a database lacks, and return what was done. For psql."""
    for values in _batches(withdrawals):
        literal = values.replace("'", "''")
        yield _APPLY.replace("$1", f"'{literal}'")


def _batches(withdrawals: Sequence[Withdrawal]) -> Iterator[str]:
    newest: dict[tuple[str, str, str], Withdrawal] = {}
    for each in withdrawals:
        key = (each.kind, each.workspace_id, each.subject)
        if key not in newest or newest[key].at_ms <= each.at_ms:
            newest[key] = each
    entries = list(newest.values())
    for start in range(0, len(entries), BATCH):
        yield _json(entries[start : start + BATCH])


def _json(entries: Sequence[Withdrawal]) -> str:
    return json.dumps([asdict(each) for each in entries])


def _stored(withdrawal: Withdrawal) -> Withdrawal:
    """With the relation of a member's role, as the graph has it."""
    if withdrawal.kind is not WithdrawalKind.MEMBER or not withdrawal.state:
        return withdrawal
    relation = RELATION_OF_ROLE[Role[withdrawal.state]]
    return Withdrawal(
        kind=withdrawal.kind, at_ms=withdrawal.at_ms, workspace_id=withdrawal.workspace_id,
        subject=withdrawal.subject, state=relation, actor=withdrawal.actor,
    )  # fmt: skip
