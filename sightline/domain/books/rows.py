"""What the database holds of sessions, as the reconciliation compares it with the chain."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPlace:
    """How far the watcher has read: blocks up to `read_through`. The entries of blocks up to `final` are written."""

    final: int
    read_through: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PaidRow:
    """A settlement that is on the chain, with the numbers of the contract where it has others than ours."""

    session_id_hash: str
    payer: str
    payee: str
    to_amount: int
    fee_amount: int
    seconds: int
    tx_hash: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RefundRow:
    """A refund that was signed."""

    tx_hash: str
    session_id: str
    receiver: str
    amount: int
