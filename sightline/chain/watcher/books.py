"""Decodes logs and receipts into entries of the journal. Does no I/O.

The order of the contract's logs says what a transfer is for: Opened and Extended come before the transfer that they
take, Credited of SessionSettlement after the transfer that it keeps, and Evidence after its Settled.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

from sightline.chain.contracts.abi import SETTLED_TOPIC, TRANSFER_TOPIC, SettledEvent, topic_address
from sightline.chain.contracts.escrow import (
    CREDITED_TOPIC,
    EVIDENCE_TOPIC,
    EXTENDED_TOPIC,
    OPENED_TOPIC,
    RECLAIMED_TOPIC,
    STRAY_RETURNED_TOPIC,
    WITHDRAWN_TOPIC,
)
from sightline.chain.costs import paid_wei
from sightline.chain.rpc.reader import hex_int
from sightline.chain.watcher.events import Log, Watched
from sightline.domain.books import journal as books
from sightline.domain.books.journal import EntryKind, JournalEntry, Line
from sightline.ports.ledger import OwnTransaction

_NO_SESSION: Final = "0x" + "0" * 64


def entries_in(
    logs: Iterable[Log],
    watched: Watched,
    times_ms: Mapping[int, int],
    own: Mapping[str, OwnTransaction],
    receipts: Mapping[str, dict[str, Any]],
) -> tuple[JournalEntry, ...]:
    """Build the entries of several blocks, in the order of the chain.

    Args:
        times_ms: The time of each block.
        own: The transactions that our keys have signed; their transfers may be refunds.
        receipts: The receipts of these transactions, for their gas.
    """
    by_transaction: dict[str, list[Log]] = {}
    for log in sorted(logs, key=lambda each: (each.block_number, each.log_index)):
        by_transaction.setdefault(log.tx_hash, []).append(log)
    entries: list[JournalEntry] = []
    for tx_hash, group in by_transaction.items():
        mine = own.get(tx_hash)
        reader = _TransactionReader(watched, times_ms, mine if mine is not None and mine.is_refund else None)
        entries += reader.read(group)
    for tx_hash, receipt in receipts.items():
        entries.append(_gas(own[tx_hash], receipt, times_ms))
    return tuple(sorted(entries, key=lambda entry: (entry.block_number, entry.log_index)))


def _gas(own: OwnTransaction, receipt: dict[str, Any], times_ms: Mapping[int, int]) -> JournalEntry:
    number = hex_int(receipt["blockNumber"])
    return JournalEntry(
        kind=EntryKind.GAS,
        tx_hash=own.tx_hash,
        log_index=books.GAS_LOG_INDEX,
        block_number=number,
        block_hash=str(receipt["blockHash"]).lower(),
        block_at_ms=times_ms[number],
        lines=books.gas_lines(str(receipt["from"]).lower(), paid_wei(receipt)),
        session_id=own.session_id,
    )


@final
class _TransactionReader:
    """Reads the logs of one transaction."""

    def __init__(self, watched: Watched, times_ms: Mapping[int, int], refund: OwnTransaction | None) -> None:
        self._watched = watched
        self._times_ms = times_ms
        self._refund = refund
        self._payers: dict[str, str] = {}
        """The payer of each session that was settled, for its Evidence."""
        self._taking: tuple[Log, EntryKind, int] | None = None
        """A hold whose amount the contract takes next. Extended does not name the payer, but the transfer does."""
        self._received: list[Log] = []
        """Transfers to the contract that belong to no hold and no credit so far."""
        self._entries: list[JournalEntry] = []

    def read(self, logs: Sequence[Log]) -> list[JournalEntry]:
        """Return the entries of the transaction's logs, given in their order."""
        for log in logs:
            if log.address == self._watched.settlement:
                self._of_contract(log)
            elif log.address == self._watched.token and log.topics[:1] == (TRANSFER_TOPIC,) and len(log.topics) == 3:
                self._transfer(log)
        for log in self._received:
            self._add(log, EntryKind.STRAY, books.moved(books.ESCROW, books.STRAY, _word(log, 0)))
        return self._entries

    def _transfer(self, log: Log) -> None:
        sender, receiver, amount = topic_address(log.topics[1]), topic_address(log.topics[2]), _word(log, 0)
        if receiver == self._watched.settlement and amount:
            if self._taking is not None and self._taking[2] == amount:
                hold, kind, _ = self._taking
                self._taking = None
                self._add(hold, kind, books.moved(books.ESCROW, books.held_by(sender), amount), hold.topics[1])
            else:
                self._received.append(log)
        elif self._refund is not None:
            lines = books.refund_lines(sender, receiver, amount)
            self._add(log, EntryKind.REFUND, lines, session_id=self._refund.session_id)

    def _of_contract(self, log: Log) -> None:
        kind = log.topics[0] if log.topics else ""
        if kind in (OPENED_TOPIC, EXTENDED_TOPIC):
            self._taking = (log, EntryKind.OPENED if kind == OPENED_TOPIC else EntryKind.EXTENDED, _word(log, 0))
        elif kind == SETTLED_TOPIC and len(log.topics) == 4:
            self._settled(log)
        elif kind == EVIDENCE_TOPIC:
            held = books.held_by(self._payers.get(log.topics[1], ""))
            self._add(log, EntryKind.RETURNED, books.moved(held, books.ESCROW, _word(log, 1)), log.topics[1])
        elif kind == RECLAIMED_TOPIC:
            held = books.held_by(topic_address(log.topics[2]))
            self._add(log, EntryKind.RECLAIMED, books.moved(held, books.ESCROW, _word(log, 0)), log.topics[1])
        elif kind == CREDITED_TOPIC:
            # SessionSettlement has kept the payer's transfer; SessionEscrow keeps what it had.
            if not self._watched.is_escrow and self._received and _word(self._received[-1], 0) == _word(log, 0):
                self._received.pop()
            credit = books.credit_of(topic_address(log.topics[1]))
            self._add(log, EntryKind.CREDITED, books.moved(books.ESCROW, credit, _word(log, 0)), log.topics[2])
        elif kind == WITHDRAWN_TOPIC:
            credit = books.credit_of(topic_address(log.topics[1]))
            self._add(log, EntryKind.WITHDRAWN, books.moved(credit, books.ESCROW, _word(log, 0)))
        elif kind == STRAY_RETURNED_TOPIC:
            self._add(log, EntryKind.STRAY_RETURNED, books.moved(books.STRAY, books.ESCROW, _word(log, 0)))

    def _settled(self, log: Log) -> None:
        event = SettledEvent.of(log.topics, log.data)
        self._payers[event.session_id_hash] = event.payer
        lines = books.settled_lines(
            payer=event.payer, payee=event.payee, to_amount=event.to_amount, fee_amount=event.fee_amount,
            is_escrow=self._watched.is_escrow,
        )  # fmt: skip
        self._add(log, EntryKind.SETTLED, lines, event.session_id_hash)

    def _add(
        self, log: Log, kind: EntryKind, lines: tuple[Line, ...], session_id_hash: str | None = None,
        *, session_id: str | None = None,
    ) -> None:  # fmt: skip
        self._entries.append(
            JournalEntry(
                kind=kind,
                tx_hash=log.tx_hash,
                log_index=log.log_index,
                block_number=log.block_number,
                block_hash=log.block_hash,
                block_at_ms=self._times_ms[log.block_number],
                lines=lines,
                session_id_hash=None if session_id_hash == _NO_SESSION else session_id_hash,
                session_id=session_id,
            )
        )


def _word(log: Log, index: int) -> int:
    return int.from_bytes(log.data[32 * index : 32 * index + 32], "big")
