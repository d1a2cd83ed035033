"""Differences between the books and the chain: what was found, and what a person does about it."""

from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Final, final

from sightline.domain.value import Value


@unique
class DifferenceKind(StrEnum):
    """What does not agree."""

    MISSING = "missing entry"
    DOUBLED = "doubled entry"
    NO_SUCH_EVENT = "entry without an event"
    NOT_ON_CHAIN = "entry of a block that is not on the chain"
    UNBALANCED = "unbalanced entry"
    ACCOUNT = "wrong account"
    AMOUNT = "wrong amount"
    SESSION = "wrong session"
    BALANCE = "wrong balance"
    SETTLEMENT = "settlement differs"
    HOLD = "hold differs"
    CHARGE = "charge differs"
    WRITE_OFF = "write-off differs"
    CHAIN = "chain does not add up"


_JOURNAL: Final = (
    "The journal was changed by hand, or an entry was lost. Look at the entry and the transaction, find out who had "
    "write access, and add an entry that corrects it"
)
ADVICE: Final[Mapping[DifferenceKind, str]] = {
    DifferenceKind.MISSING: _JOURNAL,
    DifferenceKind.DOUBLED: _JOURNAL,
    DifferenceKind.NO_SUCH_EVENT: _JOURNAL,
    DifferenceKind.NOT_ON_CHAIN: (
        "The chain was reorganised below the configured depth, or the entry was made by hand. Look at the block on "
        "another endpoint; raise SIGHTLINE_CHAIN_CONFIRMATIONS if it was a reorganisation"
    ),
    DifferenceKind.UNBALANCED: _JOURNAL,
    DifferenceKind.ACCOUNT: _JOURNAL,
    DifferenceKind.AMOUNT: _JOURNAL,
    DifferenceKind.SESSION: _JOURNAL,
    DifferenceKind.BALANCE: "Look at the other differences first. Alone it means that the endpoint's logs lack some",
    DifferenceKind.SETTLEMENT: "Follow the runbook SightlineAmountsDiffer for this session",
    DifferenceKind.HOLD: "Look at the session and its hold; the contract's stateOf says whether it is open",
    DifferenceKind.CHARGE: "Compare the session's receipt with its settlement, and refund what was charged too much",
    DifferenceKind.WRITE_OFF: "Compare the audit log with the settlement",
    DifferenceKind.CHAIN: "Ask another endpoint for the same transaction: this one's logs are not complete",
}


@final
class Difference(Value, kw_only=True):
    """One difference. `chain` and `books` say what each of the two has."""

    kind: DifferenceKind
    subject: str
    """The entry, transaction, session or account."""
    chain: str
    books: str

    @property
    def advice(self) -> str:
        """What a person does about it."""
        return ADVICE[self.kind]


@final
class BooksCheck(Value, kw_only=True):
    """A comparison of the books with the chain, through one block."""

    at_ms: int
    through_block: int
    entries: int
    """How many events of the chain were compared."""
    differences: int
