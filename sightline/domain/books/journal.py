"""Journal entries: what an event of the chain means for each account, in double entry.

A positive amount is a debit, a negative one a credit; the lines of an entry sum to 0 in each currency, and the stores
refuse others. `escrow` is what the contract holds. A line on `payer`, `payee` or `fee` says what a session costs and
who earns it. An amount that a receiver refuses stays in the contract as its `credit`.
"""

from collections.abc import Iterable
from enum import StrEnum, unique
from typing import Final, final

from sightline.domain.value import Value

ESCROW: Final = "escrow"
FEE: Final = "fee"
STRAY: Final = "stray"
REFUNDS: Final = "refunds"
WRITE_OFFS: Final = "write-offs"
GAS: Final = "gas"
GAS_LOG_INDEX: Final = -1
"""The log index of a gas entry: gas belongs to the transaction and to none of its logs."""


@unique
class Currency(StrEnum):
    """The unit of a line's amount: micro-USDC, or wei for gas."""

    MICRO_USDC = "micro-USDC"
    WEI = "wei"


@unique
class EntryKind(StrEnum):
    """What an entry records: an event of the contract, a transfer of the token, gas, or an act in the database."""

    OPENED = "OPENED"
    EXTENDED = "EXTENDED"
    SETTLED = "SETTLED"
    RETURNED = "RETURNED"
    """The part of a hold that the event Evidence says went back to the payer."""
    RECLAIMED = "RECLAIMED"
    CREDITED = "CREDITED"
    WITHDRAWN = "WITHDRAWN"
    STRAY = "STRAY"
    """A transfer to the contract that belongs to no hold and no credit."""
    STRAY_RETURNED = "STRAY_RETURNED"
    REFUND = "REFUND"
    GAS = "GAS"
    WRITE_OFF = "WRITE_OFF"
    """A charge that was given up. It is an act in the database, and names the last block that was read before it."""


@final
class Line(Value):
    """A part of an entry; a debit is positive."""

    account: str
    amount: int
    currency: Currency = Currency.MICRO_USDC


@final
class JournalEntry(Value, kw_only=True):
    """One entry. Hashes and addresses are lower-case; `session_id_hash` is None where the event names no session."""

    kind: EntryKind
    tx_hash: str
    log_index: int
    block_number: int
    block_hash: str
    block_at_ms: int
    """The block's time."""
    lines: tuple[Line, ...]
    session_id_hash: str | None = None
    session_id: str | None = None


def is_balanced(lines: Iterable[Line]) -> bool:
    """Return whether lines sum to 0 in each currency."""
    sums: dict[Currency, int] = {}
    for line in lines:
        sums[line.currency] = sums.get(line.currency, 0) + line.amount
    return not any(sums.values())


def moved(debit: str, credit: str, amount: int, currency: Currency = Currency.MICRO_USDC) -> tuple[Line, ...]:
    """Return the two lines of an amount; none for an amount of 0."""
    return (Line(debit, amount, currency), Line(credit, -amount, currency)) if amount else ()


def held_by(payer: str) -> str:
    """Return the account of what the contract holds for a payer's open sessions."""
    return f"held:{payer}"


def credit_of(receiver: str) -> str:
    """Return the account of what the contract owes to a receiver that refused it."""
    return f"credit:{receiver}"


def payee_of(address: str) -> str:
    """Return the account of what a payee has earned."""
    return f"payee:{address}"


def payer_of(address: str) -> str:
    """Return the account of what a payer was charged."""
    return f"payer:{address}"


def settled_lines(*, payer: str, payee: str, to_amount: int, fee_amount: int, is_escrow: bool) -> tuple[Line, ...]:
    """Return the lines of a charge. With escrow it leaves the payer's hold and the contract."""
    total = to_amount + fee_amount
    leaves = moved(held_by(payer), ESCROW, total) if is_escrow else ()
    earned = (Line(payer_of(payer), total), Line(payee_of(payee), -to_amount), Line(FEE, -fee_amount))
    return leaves + tuple(line for line in earned if line.amount)


def refund_lines(account: str, receiver: str, amount: int) -> tuple[Line, ...]:
    """Return the lines of a refund that an account of the service pays to a receiver."""
    return moved(f"{REFUNDS}:{receiver}", f"refund-account:{account}", amount)


def write_off_lines(payer: str, amount: int) -> tuple[Line, ...]:
    """Return the lines of a charge that was given up."""
    return moved(WRITE_OFFS, f"receivable:{payer}", amount)


def gas_lines(sender: str, wei: int) -> tuple[Line, ...]:
    """Return the lines of a transaction's fee."""
    return moved(GAS, f"gas-key:{sender}", wei, Currency.WEI)
