"""Statements and invoices in memory, with the contract of Postgres."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, final

from sightline.domain.books.journal import EntryKind, JournalEntry
from sightline.domain.books.statement import CLOSED_AFTER_MS, Invoice, Month, SessionAmounts, WorkspaceStatement
from sightline.ports.ledger import SettlementLane, SettlementRecord, SettlementState
from simulation.memory.journal import MemoryJournal

_KINDS: Final = frozenset(
    {EntryKind.SETTLED, EntryKind.RETURNED, EntryKind.RECLAIMED, EntryKind.REFUND, EntryKind.CREDITED}
)


@final
class MemoryStatements:
    """Reads the journal in memory, and keeps the invoices."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        self._invoices: dict[tuple[str, str], Invoice] = {}

    def read(
        self, workspace_id: str, month: Month, settlements: Sequence[SettlementRecord], checked_at_ms: int,
        head: int | None,
    ) -> WorkspaceStatement:  # fmt: skip
        """Read a workspace's sessions with entries in a month."""
        ended = [
            row for row in settlements
            if row.composed_at_ms < month.end_ms
            and workspace_id in (row.payload.consumer_workspace_id, row.payload.operator_workspace_id)
        ]  # fmt: skip
        sessions = [found for row in ended if (found := self._session(workspace_id, month, row)) is not None]
        return WorkspaceStatement(
            workspace_id=workspace_id,
            month=month,
            is_closed=checked_at_ms >= month.end_ms + CLOSED_AFTER_MS
            and self._journal.is_read_before(month.end_ms, head),
            sessions=tuple(sorted(sessions, key=lambda each: (each.settled_at_ms, each.session_id))),
            waiting=sum(row.payload.to_amount for row in ended if self._is_waiting(workspace_id, month, row)),
        )

    def _is_waiting(self, workspace_id: str, month: Month, row: SettlementRecord) -> bool:
        is_over = row.state is SettlementState.WRITTEN_OFF or row.lane is SettlementLane.VOID
        is_settled = any(
            entry.kind is EntryKind.SETTLED and entry.block_at_ms < month.end_ms for entry in self._of(row.session_id)
        )
        return row.payload.operator_workspace_id == workspace_id and not is_over and not is_settled

    def _of(self, session_id: str) -> list[JournalEntry]:
        return [each.entry for each in self._journal.written if each.entry.session_id == session_id]

    def _session(self, workspace_id: str, month: Month, row: SettlementRecord) -> SessionAmounts | None:
        entries = [
            entry for entry in self._of(row.session_id)
            if entry.kind in _KINDS and month.first_ms <= entry.block_at_ms < month.end_ms
        ]  # fmt: skip
        if not entries:
            return None
        sums: Counter[str] = Counter()
        for entry in entries:
            for line in entry.lines:
                account, _, holder = line.account.partition(":")
                if account == "credit" and holder != row.payload.to_address.lower():
                    continue
                sums[f"{account} {entry.kind}"] += line.amount
        settled = [
            entry for entry in self._of(row.session_id)
            if entry.kind in _KINDS - {EntryKind.REFUND} and entry.block_at_ms < month.end_ms
        ]  # fmt: skip
        last = max(enumerate(settled or entries), key=lambda each: (each[1].block_at_ms, each[0]))[1]
        refunded = sum(amount for name, amount in sums.items() if name.startswith("refunds "))
        return SessionAmounts(
            session_id=row.session_id,
            is_consumer=row.payload.consumer_workspace_id == workspace_id,
            is_operator=row.payload.operator_workspace_id == workspace_id,
            settled_at_ms=last.block_at_ms,
            tx_hash=last.tx_hash,
            charged=sums[f"payer {EntryKind.SETTLED}"],
            returned=sums[f"held {EntryKind.RETURNED}"] + sums[f"held {EntryKind.RECLAIMED}"],
            refunded=refunded,
            earned=-sums[f"payee {EntryKind.SETTLED}"],
            fee=-sums[f"fee {EntryKind.SETTLED}"],
            credited=-sums[f"credit {EntryKind.CREDITED}"],
        )

    def invoice(self, statement: WorkspaceStatement, now_ms: int) -> Invoice:
        """Return the invoice of a closed month; the first call writes it."""
        key = (statement.workspace_id, statement.month.name)
        if key not in self._invoices:
            year = statement.month.year
            self._invoices[key] = Invoice(
                year=year,
                number=1 + sum(each.year == year for each in self._invoices.values()),
                workspace_id=statement.workspace_id,
                month=statement.month.name,
                issued_at_ms=now_ms,
                sessions=len([*statement.side(is_operator=False)]),
                charged=statement.sum_of("charged", is_operator=False),
                refunded=statement.sum_of("refunded", is_operator=False),
            )
        return self._invoices[key]
