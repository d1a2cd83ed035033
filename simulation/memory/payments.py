"""Payments that the database does not know, and the journal that adopts them, in memory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

from sightline.domain.settlement import ChainPayment, PaymentSums, UnknownPayments


@dataclass(slots=True)
class _Found:
    payment: ChainPayment
    is_final: bool = False


@final
class MemoryPayments:
    """Implements `PaymentJournal`. The ledger that owns it records what the watcher found."""

    def __init__(self, is_pending: Callable[[str], bool], settled: Callable[[], UnknownPayments]) -> None:
        """Create an empty journal.

        Args:
            is_pending: Whether the session of a hash has a settlement, or will have one because it is not over.
            settled: Adds up the settlements that are on the chain.
        """
        self._is_pending = is_pending
        self._settled = settled
        self._found: dict[str, _Found] = {}
        self._adopted: dict[str, ChainPayment] = {}
        self.is_read = False
        """Whether the watcher has read the chain up to its head. One process runs one watcher."""

    def is_adopted(self, session_id_hash: str) -> bool:
        """Return whether the payment of a session is in the journal."""
        return session_id_hash in self._adopted

    def is_found(self, session_id_hash: str) -> bool:
        """Return whether the watcher has found a payment of a session."""
        return session_id_hash in self._found

    def apply(self, found: Iterable[ChainPayment], confirmed_block: int) -> None:
        """Record payments, and those that became final, as part of the ledger's step."""
        for payment in found:
            self._found[payment.session_id_hash] = _Found(payment)
        for each in self._found.values():
            each.is_final = each.is_final or each.payment.block_number <= confirmed_block

    def roll_back(self, ancestor: int) -> None:
        """Forget the payments above a block, as part of the ledger's step."""
        self._found = {key: each for key, each in self._found.items() if each.payment.block_number <= ancestor}

    def _unknown(self) -> list[ChainPayment]:
        found = [
            each.payment for key, each in self._found.items()
            if each.is_final and key not in self._adopted and not self._is_pending(key)
        ]  # fmt: skip
        return sorted(found, key=lambda payment: (payment.block_number, payment.log_index))

    async def unknown(self) -> UnknownPayments:
        """Count the payments that nobody has adopted."""
        return sum_of(self._unknown())

    async def unknown_payments(self, *, limit: int) -> Sequence[ChainPayment]:
        """Return the payments that nobody has adopted, by block."""
        return self._unknown()[:limit]

    async def adopt(
        self, *, through_block: int, count: int, adopted_by: str, reason: str, now_ms: int
    ) -> UnknownPayments | None:
        """Move the unknown payments of the blocks up to one into the journal."""
        chosen = [payment for payment in self._unknown() if payment.block_number <= through_block]
        if len(chosen) != count:
            return None
        self._adopted |= {payment.session_id_hash: payment for payment in chosen}
        return sum_of(chosen)

    async def is_chain_read(self, *, runs_watcher: bool) -> bool:
        """Return whether the watcher has read the chain up to its head."""
        return self.is_read

    async def sums(self) -> PaymentSums:
        """Add up the books."""
        return PaymentSums(settled=self._settled(), adopted=sum_of(self._adopted.values()))


def sum_of(payments: Iterable[ChainPayment]) -> UnknownPayments:
    """Return number and sum of payments."""
    totals = [payment.total for payment in payments]
    return UnknownPayments(count=len(totals), amount_micro=sum(totals))
