"""Holds the transactions that wait for a block, and decides their order."""

import threading
from collections.abc import Iterable
from itertools import groupby
from typing import Any, final

from sightline.chain.embedded.machine import Mined, RejectedError
from sightline.domain.value import Value


@final
class TransactionOutcome(Value):
    """What became final for a transaction: the reason if it was rejected, and the CPU time it took in seconds."""

    refusal: RejectedError | None
    cpu_s: float


@final
class Pending:
    """The waiting transactions, and the outcomes that their callers have not fetched yet. Safe for threads."""

    def __init__(self, trusted: frozenset[bytes]) -> None:
        """`trusted` are the senders whose transactions come first in each block: relayer, treasury, fee receiver."""
        self._trusted = trusted
        self._lock = threading.Lock()
        self._waiting: dict[bytes, Any] = {}
        self._outcomes: dict[bytes, TransactionOutcome] = {}

    def add(self, transaction: Any) -> None:
        """Queue a transaction, unless it is queued."""
        with self._lock:
            self._waiting.setdefault(transaction.hash, transaction)

    def outcome(self, tx_hash: bytes) -> TransactionOutcome | None:
        """Fetch and forget the outcome of a transaction; None while it waits."""
        with self._lock:
            return self._outcomes.pop(tx_hash, None)

    def next_block(self) -> tuple[list[Any], list[Any]]:
        """The candidates for the next block in their order: transactions of trusted senders, and those of guests."""
        with self._lock:
            waiting = sorted(self._waiting.values(), key=lambda item: (item.sender, int(item.nonce)))
        own = [item for item in waiting if item.sender in self._trusted]
        guests = [item for item in waiting if item.sender not in self._trusted]
        return own, guests_in_order(guests)

    def settle(self, mined: Mined) -> None:
        """Record the outcome of every transaction that was mined or rejected."""
        with self._lock:
            for tx_hash, cpu_s in mined.cpu_s.items():
                if self._waiting.pop(tx_hash, None) is not None:
                    self._outcomes[tx_hash] = TransactionOutcome(mined.rejected.get(tx_hash), cpu_s)


def guests_in_order(guests: Iterable[Any]) -> list[Any]:
    """Order transactions, sorted by sender and nonce, so that senders with the least gas come first.

    The gas limit bounds what a transaction can cost, so an approval is not delayed by somebody's long computation. The
    order of a sender's own transactions stays.
    """
    of_senders = [list(items) for _, items in groupby(guests, lambda item: item.sender)]
    of_senders.sort(key=lambda items: sum(int(item.gas) for item in items))
    return [item for items in of_senders for item in items]
