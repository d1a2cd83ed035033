"""Statements and invoices on Postgres."""

from typing import Any, Final

from sightline.domain.books.statement import CLOSED_AFTER_MS, Invoice, Month, SessionAmounts, WorkspaceStatement
from sightline.storage.database.pool import Connection

_LOCK_KEY: Final = 5_300_048
"""Advisory lock of invoices: each has the number after the one before it."""
# A month is closed when every block of it is read and final.
_IS_CLOSED: Final = """
SELECT c.checked_at_ms >= $1 AND j.read_through >= c.number
  AND NOT EXISTS (SELECT FROM journal_pending p WHERE p.block_at_ms < $2)
FROM chain_cursor c CROSS JOIN journal_cursor j
"""
_SESSIONS: Final = """
WITH own AS (
  SELECT session_id, lower(payload ->> 'to') AS payee FROM settlement
  WHERE payload ->> 'consumer' = $1 AND composed_at_ms < $3
  UNION SELECT session_id, lower(payload ->> 'to') FROM settlement
  WHERE payload ->> 'operator' = $1 AND composed_at_ms < $3)
SELECT o.session_id::text, t.payload ->> 'consumer' = $1 AS is_consumer, t.payload ->> 'operator' = $1 AS is_operator,
  coalesce(last.block_at_ms, max(e.block_at_ms)) AS settled_at_ms,
  coalesce(last.tx_hash, (array_agg(e.tx_hash ORDER BY e.block_at_ms DESC, e.id DESC))[1]) AS tx_hash,
  coalesce(sum(l.amount) FILTER (WHERE l.account LIKE 'payer:%'), 0) AS charged,
  coalesce(sum(l.amount) FILTER (WHERE l.account LIKE 'held:%' AND e.kind IN ('RETURNED', 'RECLAIMED')), 0) AS returned,
  coalesce(sum(l.amount) FILTER (WHERE l.account LIKE 'refunds:%'), 0) AS refunded,
  coalesce(-sum(l.amount) FILTER (WHERE l.account LIKE 'payee:%'), 0) AS earned,
  coalesce(-sum(l.amount) FILTER (WHERE l.account = 'fee'), 0) AS fee,
  coalesce(-sum(l.amount) FILTER (WHERE l.account = 'credit:' || o.payee AND e.kind = 'CREDITED'), 0) AS credited
FROM own o JOIN settlement t USING (session_id) JOIN journal_entry e USING (session_id)
LEFT JOIN LATERAL unnest(e.accounts, e.amounts) AS l(account, amount) ON true
LEFT JOIN LATERAL (
  SELECT s.block_at_ms, s.tx_hash FROM journal_entry s WHERE s.session_id = o.session_id
  AND s.kind IN ('SETTLED', 'RETURNED', 'RECLAIMED', 'CREDITED') AND s.block_at_ms < $3
  ORDER BY s.block_at_ms DESC, s.id DESC LIMIT 1) AS last ON true
WHERE e.block_at_ms >= $2 AND e.block_at_ms < $3
  AND e.kind IN ('SETTLED', 'RETURNED', 'RECLAIMED', 'REFUND', 'CREDITED')
GROUP BY o.session_id, t.payload ->> 'consumer', t.payload ->> 'operator', o.payee, last.block_at_ms, last.tx_hash
ORDER BY settled_at_ms, session_id
"""
_WAITING: Final = """
SELECT coalesce(sum((t.payload ->> 'toAmount')::numeric), 0) FROM settlement t
WHERE t.payload ->> 'operator' = $1 AND t.composed_at_ms < $2 AND t.state <> 'WRITTEN_OFF' AND t.lane <> 'VOID'
  AND NOT EXISTS (
    SELECT FROM journal_entry e WHERE e.session_id = t.session_id AND e.kind = 'SETTLED' AND e.block_at_ms < $2)
"""
_INVOICE: Final = "SELECT * FROM invoice WHERE workspace_id = $1 AND month = $2"
_ISSUE: Final = """
INSERT INTO invoice (year, number, workspace_id, month, issued_at_ms, sessions, charged, refunded)
SELECT $1, 1 + coalesce((SELECT max(number) FROM invoice WHERE year = $1), 0), $2, $3, $4, $5, $6, $7
RETURNING *
"""


async def read_statement(connection: Connection, workspace_id: str, month: Month) -> WorkspaceStatement:
    """Read a workspace's sessions with entries in a month."""
    closed_ms = month.end_ms + CLOSED_AFTER_MS
    rows = await connection.fetch(_SESSIONS, workspace_id, month.first_ms, month.end_ms)
    return WorkspaceStatement(
        workspace_id=workspace_id,
        month=month,
        is_closed=bool(await connection.fetchval(_IS_CLOSED, closed_ms, month.end_ms)),
        sessions=tuple(_session(row) for row in rows),
        waiting=int(await connection.fetchval(_WAITING, workspace_id, month.end_ms)),
    )


async def issue_invoice(connection: Connection, statement: WorkspaceStatement, now_ms: int) -> Invoice:
    """Return the invoice of a closed month; write it with the next number of its year if there is none."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
    row = await connection.fetchrow(_INVOICE, statement.workspace_id, statement.month.name)
    if row is None:
        row = await connection.fetchrow(
            _ISSUE,
            statement.month.year,
            statement.workspace_id,
            statement.month.name,
            now_ms,
            len([*statement.side(is_operator=False)]),
            statement.sum_of("charged", is_operator=False),
            statement.sum_of("refunded", is_operator=False),
        )
    return Invoice(
        year=row["year"],
        number=row["number"],
        workspace_id=str(row["workspace_id"]),
        month=row["month"],
        issued_at_ms=row["issued_at_ms"],
        sessions=row["sessions"],
        charged=int(row["charged"]),
        refunded=int(row["refunded"]),
    )


def _session(row: Any) -> SessionAmounts:
    amounts = ("charged", "returned", "refunded", "earned", "fee", "credited")
    return SessionAmounts(
        session_id=row["session_id"],
        is_consumer=row["is_consumer"],
        is_operator=row["is_operator"],
        settled_at_ms=row["settled_at_ms"],
        tx_hash=row["tx_hash"],
        **{name: int(row[name]) for name in amounts},
    )
