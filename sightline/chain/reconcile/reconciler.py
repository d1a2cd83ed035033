"""The reconciliation: recomputes everything from the chain and compares it with the journal and the sessions' rows.

It compares the blocks that are final and in the journal, range after range, so that its memory does not grow with the
history. It writes nothing but its result.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol, final

import structlog

from sightline.chain.reconcile.compare import EventKey, compare_events, standing
from sightline.chain.reconcile.facts import ChainFacts, Fact, Payment, fee_facts, refund_facts
from sightline.chain.reconcile.source import ChainSource
from sightline.domain.books.differences import BooksCheck, Difference, DifferenceKind
from sightline.domain.books.journal import EntryKind, JournalEntry
from sightline.domain.books.rows import JournalPlace, PaidRow, RefundRow
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.clock import Clock
from sightline.ports.ledger import StoredEntry

log = structlog.get_logger()

LOGGED_MAX: Final = 20
DIFFERENCES_MAX: Final = 1_000
"""How many differences are reported; all are counted."""
_OF_TRANSACTIONS: Final = (EntryKind.GAS, EntryKind.REFUND)
"""Entries that are checked by the receipt of their transaction and not by the contract's logs."""


class BooksRows(Protocol):
    """Reads the journal and the rows of sessions, and stores the result."""

    async def place(self) -> JournalPlace | None:
        """Return how far the watcher has read; None before the first block."""
        ...

    async def entries_between(self, first: int, last: int) -> list[StoredEntry]:
        """Return the entries of blocks, write-offs left out, in the order in which they were written."""
        ...

    async def entries_of(self, tx_hashes: Sequence[str]) -> list[StoredEntry]:
        """Return the entries of transactions."""
        ...

    async def sessions_of(self, hashes: Sequence[str]) -> dict[str, str]:
        """Return the sessions with these hashes."""
        ...

    async def paid(self, hashes: Sequence[str]) -> dict[str, PaidRow]:
        """Return the settlements with these hashes that say that they are on the chain."""
        ...

    async def paid_between(self, first: int, last: int) -> list[str]:
        """Return the hashes of settlements that are confirmed in these blocks."""
        ...

    async def opened_between(self, first: int, last: int) -> dict[str, int]:
        """Return the amounts of holds that are confirmed in these blocks, by hash."""
        ...

    async def owners(self, tx_hashes: Sequence[str]) -> dict[str, str | None]:
        """Return the transactions that our keys have signed, with the session if it is only one."""
        ...

    async def refunds(self, tx_hashes: Sequence[str]) -> dict[str, RefundRow]:
        """Return the refunds in these transactions."""
        ...

    async def without_entry(self, *, after: str, limit: int) -> list[str]:
        """Return transactions that our keys have signed and that lack an entry of their gas or refund, by hash."""
        ...

    async def balances(self, through: int) -> dict[str, int]:
        """Return the journal's balance of escrow and stray, and of all holds and credits (`held`, `credit`)."""
        ...

    async def own_differences(self, through: int) -> list[Difference]:
        """Return what differs between the database's own tables."""
        ...

    async def record(self, check: BooksCheck) -> None:
        """Store the result as the last one."""
        ...

    async def last_check(self) -> BooksCheck | None:
        """Return the last result."""
        ...


@final
class Reconciler:
    """Compares the books with the chain. Several may run at once."""

    def __init__(self, source: ChainSource, rows: BooksRows, *, start_block: int, clock: Clock) -> None:
        """Args: start_block: as the watcher has it."""
        self._source = source
        self._rows = rows
        self._start_block = start_block
        self._clock = clock

    async def run_if_due(self, every_ms: int) -> None:
        """Compare if the last comparison, of whichever server, is as old as this."""
        last = await self._rows.last_check()
        if last is None or self._clock.now_ms() - last.at_ms >= every_ms:
            await self.compare()

    async def compare(self) -> tuple[BooksCheck, Sequence[Difference]]:
        """Compare everything that is final, and store the result.

        Returns:
            The result, and the first differences.

        Raises:
            ChainUnavailableError: The endpoint did not answer, or is behind the journal.
            StoreUnavailableError: The database did not answer.
        """
        place = await self._rows.place()
        through = -1 if place is None else min(place.final, place.read_through)
        run = _Run(self._source, self._rows)
        is_read = through >= self._start_block
        if is_read:
            await run.through(self._start_block, through)
        check = BooksCheck(
            at_ms=self._clock.now_ms(), through_block=through, entries=run.compared, differences=run.count
        )
        if is_read:
            await self._rows.record(check)
        for difference in run.differences[:LOGGED_MAX]:
            log.error(
                "books_differ", difference=difference.kind.value, subject=difference.subject, chain=difference.chain,
                books=difference.books,
            )  # fmt: skip
        return check, run.differences


@final
class _Run:
    """One comparison."""

    def __init__(self, source: ChainSource, rows: BooksRows) -> None:
        self._source = source
        self._rows = rows
        self._facts = ChainFacts(token=source.token, contract=source.contract, is_escrow=source.is_escrow)
        self.compared = 0
        self.count = 0
        self.differences: list[Difference] = []

    def _report(self, found: Collection[Difference]) -> None:
        self.count += len(found)
        self.differences += list(found)[: DIFFERENCES_MAX - len(self.differences)]

    async def through(self, first: int, through: int) -> None:
        hashes = await self._source.block_hashes([through])
        if through not in hashes:
            raise ChainUnavailableError(f"the endpoint does not have block {through}, which is in the journal")
        # Before the logs, because the endpoint may drop the state of a block soon.
        sums = await self._source.sums(hashes[through])
        start = first
        while start <= through:
            last, logs = await self._source.logs(start, through)
            self._facts.read(logs)
            # With the first range also what is said to be in blocks before the contract.
            await self._compare_range(0 if start == first else start, last)
            start = last + 1
        await self._compare_own(through)
        await self._compare_sums(sums, through)
        self._report(await self._rows.own_differences(through))

    async def _compare_range(self, first: int, last: int) -> None:
        entries = standing(await self._rows.entries_between(first, last))
        own = {key: each for key, each in entries.items() if each[0].kind in _OF_TRANSACTIONS}
        rest = {key: each for key, each in entries.items() if key not in own}
        facts, self._facts.facts = self._facts.facts, []
        payments, self._facts.payments = self._facts.payments, []
        opened, self._facts.opened = self._facts.opened, {}
        unexplained, self._facts.unexplained = self._facts.unexplained, []
        facts_of_receipts = await self._facts_of_receipts(own)
        self._report(
            [
                Difference(
                    kind=DifferenceKind.CHAIN, subject=f"transaction {tx_hash}",
                    chain=f"transfers {moved:+d}, events {told:+d}", books="",
                )
                for tx_hash, moved, told in unexplained
            ]
        )  # fmt: skip
        hashes = {fact.session_id_hash for fact in facts if fact.session_id_hash is not None}
        sessions = await self._rows.sessions_of(sorted(hashes))
        await self._compare_entries(facts, rest, sessions)
        await self._compare_entries(facts_of_receipts, own, sessions)
        self._report(_compare_payments(payments, await self._rows.paid(sorted(p.session_id_hash for p in payments))))
        paid = {payment.session_id_hash for payment in payments}
        self._report(
            [
                Difference(
                    kind=DifferenceKind.SETTLEMENT, subject=f"session with hash {hashed}",
                    chain=f"no Settled event in blocks {first} to {last}", books="a settlement that is confirmed there",
                )
                for hashed in await self._rows.paid_between(first, last) if hashed not in paid
            ]
        )  # fmt: skip
        await self._compare_openings(first, last, opened)

    async def _compare_entries(
        self, facts: Sequence[Fact], entries: Mapping[EventKey, Sequence[JournalEntry]], sessions: Mapping[str, str]
    ) -> None:
        self.compared += len(facts)
        known = {(fact.tx_hash, fact.index) for fact in facts}
        extra = sorted({each[0].block_number for key, each in entries.items() if key not in known})
        block_hashes = await self._source.block_hashes(extra)
        self._report(compare_events(facts, entries, sessions, block_hashes))

    async def _facts_of_receipts(self, own: Mapping[EventKey, Sequence[JournalEntry]]) -> list[Fact]:
        """Return what the receipts say of the transactions that have entries of gas or refunds."""
        tx_hashes = sorted({tx_hash for tx_hash, _ in own})
        # A signed transaction is deleted after `history_keep_days`. Its entries stay, and say whose it was.
        said = {tx_hash: each[0].session_id for (tx_hash, _), each in own.items() if each[0].kind is EntryKind.GAS}
        return await self._facts_of(tx_hashes, await self._source.receipts(tx_hashes), said)

    async def _facts_of(
        self, tx_hashes: Sequence[str], receipts: Mapping[str, Mapping[str, Any]], said: Mapping[str, str | None]
    ) -> list[Fact]:
        owners, refunds = {**said} | await self._rows.owners(tx_hashes), await self._rows.refunds(tx_hashes)
        facts: list[Fact] = []
        for tx_hash, receipt in receipts.items():
            if tx_hash in owners:
                facts.append(fee_facts(tx_hash, receipt, owners[tx_hash]))
            if tx_hash in refunds:
                session_id = refunds[tx_hash].session_id
                facts += refund_facts(receipt, self._source.token, self._source.contract, session_id)
        return facts

    async def _compare_own(self, through: int) -> None:
        """Find transactions of ours whose gas or refund is not in the journal."""
        after = ""
        while tx_hashes := await self._rows.without_entry(after=after, limit=500):
            after = tx_hashes[-1]
            entries = standing(await self._rows.entries_of(tx_hashes))
            compared = {key[0] for key, each in entries.items() if each[0].kind in _OF_TRANSACTIONS}
            receipts = await self._source.receipts([each for each in tx_hashes if each not in compared])
            due = {
                tx_hash: receipt for tx_hash, receipt in receipts.items()
                if int(receipt["blockNumber"], 16) <= through
            }  # fmt: skip
            self._report(compare_events(await self._facts_of(sorted(due), due, {}), {}, {}, {}))

    async def _compare_sums(self, sums: Mapping[str, int], through: int) -> None:
        books = await self._rows.balances(through)
        expected = {"escrow": books["escrow"]}
        if self._source.is_escrow:
            expected |= {"held": -books["held"], "credit": -books["credit"]}
        self._report(
            [
                Difference(
                    kind=DifferenceKind.BALANCE, subject=f"{name} at block {through}", chain=str(sums[name]),
                    books=str(amount),
                )
                for name, amount in expected.items() if sums[name] != amount
            ]
        )  # fmt: skip

    async def _compare_openings(self, first: int, last: int, opened: Mapping[str, int]) -> None:
        self._report(
            [
                Difference(
                    kind=DifferenceKind.HOLD, subject=f"session with hash {hashed}",
                    chain=f"opened with {opened.get(hashed, 0)}", books=f"opened with {amount}",
                )
                for hashed, amount in (await self._rows.opened_between(first, last)).items()
                if opened.get(hashed, 0) < amount
            ]
        )  # fmt: skip


def _compare_payments(payments: Sequence[Payment], rows: Mapping[str, PaidRow]) -> list[Difference]:
    """Compare what was settled with the settlements that this database has of it."""
    found: list[Difference] = []
    for payment in payments:
        row = rows.get(payment.session_id_hash)
        if row is None:
            continue
        chain = (
            payment.payer, payment.payee, payment.to_amount, payment.fee_amount, payment.seconds, payment.tx_hash
        )  # fmt: skip
        books = (row.payer, row.payee, row.to_amount, row.fee_amount, row.seconds, row.tx_hash)
        if chain != books:
            subject = f"session with hash {payment.session_id_hash}"
            found.append(
                Difference(kind=DifferenceKind.SETTLEMENT, subject=subject, chain=str(chain), books=str(books))
            )
    return found
