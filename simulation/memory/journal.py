"""The journal of the books in memory, with the contract of Postgres."""

from collections.abc import Callable, Sequence
from typing import final

from sightline.domain.books.journal import EntryKind, JournalEntry, Line, is_balanced, write_off_lines
from sightline.domain.settlement import SettlementPayload
from sightline.domain.value import replace
from sightline.ports.ledger import BlockApplication, BlockRef, StoredEntry
from sightline.system.keccak import session_id_hash


@final
class MemoryJournal:
    """Implements `Journal`. The ledger that owns it adds the entries."""

    def __init__(self, session_of: Callable[[str], str | None]) -> None:
        """Args: session_of: finds the session of a hash by its hold."""
        self._session_of = session_of
        self._pending: dict[tuple[str, int], JournalEntry] = {}
        self._entries: list[StoredEntry] = []
        self.read_through: int | None = None

    async def entries(self, *, after: int = 0, limit: int) -> list[StoredEntry]:
        """Return entries in the order in which they were written."""
        return self._entries[after : after + limit]

    @property
    def written(self) -> Sequence[StoredEntry]:
        """Everything that was written."""
        return self._entries

    def is_read_before(self, end_ms: int, head: int | None) -> bool:
        """Return whether every block before an instant is read and final."""
        is_whole = self.read_through is not None and head is not None and self.read_through >= head
        return is_whole and all(entry.block_at_ms >= end_ms for entry in self._pending.values())

    def apply(self, application: BlockApplication, final: int, now_ms: int) -> None:
        """Add the entries of a reading to those that wait, and write those whose block is final."""
        books = application.books
        if books is not None and (self.read_through is None or self.read_through >= books.first - 1):
            self.read_through = max(books.through, self.read_through or 0)
            self._pending |= {(entry.tx_hash, entry.log_index): entry for entry in books.entries}
        final_ones = [entry for entry in self._pending.values() if entry.block_number <= final]
        for entry in sorted(final_ones, key=lambda each: (each.block_number, each.log_index)):
            del self._pending[entry.tx_hash, entry.log_index]
            self._write(entry, now_ms)

    def _write(self, entry: JournalEntry, now_ms: int) -> None:
        same = [each for each in self._entries if _key(each.entry) == _key(entry)]
        turn = sum(each.reverses is not None for each in same)
        if any(each.turn == turn and each.reverses is None for each in same):
            return
        if entry.session_id is None and entry.session_id_hash is not None:
            entry = replace(entry, session_id=self._session_of(entry.session_id_hash))
        self._add(entry, turn, None, now_ms)

    def _add(self, entry: JournalEntry, turn: int, reverses: int | None, now_ms: int) -> None:
        assert is_balanced(entry.lines), f"unbalanced entry: {entry}"
        self._entries.append(
            StoredEntry(
                id=len(self._entries) + 1, entry=entry, turn=turn, reverses=reverses, recorded_at_ms=now_ms
            )
        )  # fmt: skip

    def roll_back(self, ancestor: int, now_ms: int) -> None:
        """Drop what waits above a block, and take back what was written above it."""
        self._pending = {key: each for key, each in self._pending.items() if each.block_number <= ancestor}
        reversed_ids = {each.reverses for each in self._entries}
        for each in list(self._entries):
            is_above = each.entry.block_number > ancestor and each.entry.kind is not EntryKind.WRITE_OFF
            if is_above and each.reverses is None and each.id not in reversed_ids:
                lines = tuple(Line(line.account, -line.amount, line.currency) for line in each.entry.lines)
                self._add(replace(each.entry, lines=lines), each.turn, each.id, now_ms)
        if self.read_through is not None:
            self.read_through = min(self.read_through, ancestor)

    def write_off(self, payload: SettlementPayload, head: BlockRef | None, now_ms: int) -> None:
        """Write the entry of a settlement that was written off, as part of the ledger's step."""
        entry = JournalEntry(
            kind=EntryKind.WRITE_OFF,
            tx_hash=f"write-off:{payload.session_id}",
            log_index=0,
            block_number=0 if head is None else head.number,
            block_hash="" if head is None else head.block_hash,
            block_at_ms=now_ms,
            lines=write_off_lines(payload.from_address.lower(), payload.to_amount + payload.fee_amount),
            session_id=payload.session_id,
            session_id_hash=session_id_hash(payload.session_id),
        )
        self._write(entry, now_ms)


def _key(entry: JournalEntry) -> tuple[str, int]:
    return entry.tx_hash, entry.log_index
