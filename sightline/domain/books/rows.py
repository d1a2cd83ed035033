"""What the database holds of sessions, as the reconciliation compares it with the chain."""

from typing import final

from sightline.domain.value import Value


@final
class JournalPlace(Value, kw_only=True):
    """How far the watcher has read: blocks up to `read_through`. The entries of blocks up to `final` are written."""

    final: int
    read_through: int


@final
class PaidRow(Value, kw_only=True):
    """A settlement that is on the chain, with the numbers of the contract where it has others than ours."""

    session_id_hash: str
    payer: str
    payee: str
    to_amount: int
    fee_amount: int
    seconds: int
    tx_hash: str


@final
class RefundRow(Value, kw_only=True):
    """A refund that was signed."""

    tx_hash: str
    session_id: str
    receiver: str
    amount: int
