"""Money's bookkeeping: the relayer's outbox, holds, and what the watcher saw of wallets on the chain.

Every method raises StoreUnavailableError or OutcomeUnknownError (sightline.domain.errors) when the store behind it
fails. All of them may be repeated: a second call with the same arguments changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, final

from sightline.domain.errors import SightlineError
from sightline.domain.settlement import SettlementPayload


class SettlementState(StrEnum):
    """Where a settlement stands. The last three are told to operators with a reason and are tried again."""

    COMPOSED = "COMPOSED"
    SIGNED = "SIGNED"
    SENT = "SENT"
    MINED = "MINED"
    CONFIRMED = "CONFIRMED"
    REVERTED = "REVERTED"
    STUCK = "STUCK"
    FAILED = "FAILED"


class FundsPolicy(StrEnum):
    """Whether a hold that the wallet does not cover is refused."""

    ADVISORY = "advisory"
    ENFORCED = "enforced"


class HoldState(StrEnum):
    """OPEN reserves the maximum, CHARGE the exact charge until the chain shows it, RELEASED nothing."""

    OPEN = "OPEN"
    CHARGE = "CHARGE"
    RELEASED = "RELEASED"


class Reading(StrEnum):
    """How well a tracked wallet is known: CURRENT, OUTDATED by a reorganisation, or NEW (its history is unread)."""

    CURRENT = "CURRENT"
    OUTDATED = "OUTDATED"
    NEW = "NEW"


class EventKind(StrEnum):
    """What a ledger row says happened to a wallet."""

    DEPOSIT = "DEPOSIT"
    WITHDRAWAL = "WITHDRAWAL"
    APPROVAL = "APPROVAL"
    SETTLEMENT = "SETTLEMENT"
    TRANSFER_IN = "TRANSFER_IN"
    TRANSFER_OUT = "TRANSFER_OUT"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One signed transaction of a settlement. Kept for ever: any of them may be the one that mines."""

    session_id: str
    nonce: int
    tx_hash: str
    raw: bytes
    max_fee_wei: int
    tip_wei: int
    signed_at_ms: int
    sent_at_ms: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Inclusion:
    """The block a settlement's transaction is in."""

    tx_hash: str
    block_number: int
    block_hash: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementRecord:
    """One row of the outbox with its attempts, oldest first.

    `tx_hash` is the mined transaction once there is one, before that the newest attempt. `retry_at_ms` is when a
    row that waits is looked at again; `tries` counts the refusals in a row.
    """

    session_id: str
    session_id_hash: str
    payload: SettlementPayload
    state: SettlementState
    reason: str | None
    tx_hash: str | None
    block_number: int | None
    block_hash: str | None
    confirmed_at_ms: int | None
    retry_at_ms: int
    tries: int
    notified: bool
    composed_at_ms: int
    updated_at_ms: int
    attempts: tuple[Attempt, ...] = ()


class NonceTakenError(SightlineError):
    """Another writer used this nonce or this settlement first; nothing was stored."""


class SettlementOutbox(Protocol):
    """The relayer's memory. One writer per relayer key, by a lease."""

    async def compose(self, payload: SettlementPayload, *, now_ms: int) -> None:
        """Record what is to be settled. A second one for the session is ignored: the first is immutable."""
        ...

    async def settlement(self, session_id: str) -> SettlementRecord | None:
        """The row of one session."""
        ...

    async def settlements(self, states: Sequence[SettlementState], *, limit: int = 1000) -> list[SettlementRecord]:
        """Rows in these states, oldest first."""
        ...

    async def settlements_due(self, *, now_ms: int, limit: int) -> list[SettlementRecord]:
        """Rows that wait for a (new) transaction and whose retry time has come, oldest first."""
        ...

    async def settlements_above(self, block_number: int) -> list[SettlementRecord]:
        """MINED and CONFIRMED rows in blocks above this one: what a reorganisation may have taken."""
        ...

    async def attempts_at(self, relayer: str, nonce: int) -> list[Attempt]:
        """The transactions ever signed with this nonce, oldest first."""
        ...

    async def take_lease(self, relayer: str, holder: str, *, now_ms: int, lease_ms: int) -> bool:
        """Become or stay the one writer for this key; False while another holder's lease runs."""
        ...

    async def next_nonce(self, relayer: str) -> int:
        """The nonce after the last stored transaction of this key; 0 for a new key. Never goes down."""
        ...

    async def store_signed(self, relayer: str, attempts: Sequence[Attempt], *, now_ms: int) -> None:
        """Keep signed transactions before anybody sees them, and use up their nonces, in one transaction.

        A nonce equal to an earlier attempt of the same session is a replacement.

        Raises:
            NonceTakenError: A new nonce is below the stored one.
        """
        ...

    async def mark_sent(self, tx_hashes: Sequence[str], *, now_ms: int) -> None:
        """The node took these: SIGNED rows become SENT, what reorganised is on its way again, STUCK stays so."""
        ...

    async def mark_mined(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """In a block, not yet deep enough."""
        ...

    async def mark_confirmed(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Deep enough: final for the outside. Sets confirmed_at_ms once; the row is unnotified."""
        ...

    async def mark_unmined(self, session_id: str, *, reason: str, now_ms: int) -> None:
        """A reorganisation took the block away: back to SENT. A CONFIRMED row keeps confirmed_at_ms."""
        ...

    async def mark_waiting(
        self, session_id: str, state: SettlementState, *, reason: str, retry_at_ms: int, now_ms: int
    ) -> None:
        """Into a side state (or COMPOSED) with the reason; counts one more try."""
        ...

    async def unnotified(self) -> list[SettlementRecord]:
        """CONFIRMED rows whose news has not been taken."""
        ...

    async def mark_notified(self, session_id: str) -> None:
        """The news was taken."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChainIdentity:
    """Which chain and contracts this database speaks of. Written once."""

    chain_id: int
    genesis_hash: str
    usdc_address: str
    settlement_address: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRef:
    """A block by number, hash and its parent's hash."""

    number: int
    block_hash: str
    parent_hash: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WalletReading:
    """Balance and allowance of one address, read pinned to one block."""

    address: str
    balance_micro: int
    allowance_micro: int
    block_number: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEvent:
    """A log that touched a tracked address, before it is told to each workspace of that address."""

    address: str
    kind: EventKind
    tx_hash: str
    log_index: int
    block_number: int
    block_hash: str
    from_address: str
    to_address: str
    amount_micro: int
    session_id_hash: str | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockApplication:
    """What the watcher learned of blocks up to `head`, applied in one transaction.

    `settled` are the sessionIdHashes seen settled in these blocks: their holds are released with the readings.
    `confirmed_block` is the newest block at the configured depth.
    """

    headers: tuple[BlockRef, ...]
    events: tuple[ChainEvent, ...]
    readings: tuple[WalletReading, ...]
    settled: tuple[tuple[str, int], ...]
    head: BlockRef
    confirmed_block: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WalletView:
    """The cache of one workspace's wallet. All zero and block 0 until the first reading."""

    workspace_id: str
    address: str
    balance_micro: int
    allowance_micro: int
    held_micro: int
    last_sync_block: int
    updated_at_ms: int

    @property
    def available_micro(self) -> int:
        """What could be held now, never below zero."""
        return max(0, min(self.balance_micro, self.allowance_micro) - self.held_micro)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One event as a workspace sees it. `sequence` orders rows as they were first seen; `removed` rows stay."""

    sequence: int
    workspace_id: str
    kind: EventKind
    tx_hash: str
    log_index: int
    block_number: int
    block_hash: str
    from_address: str
    to_address: str
    amount_micro: int
    session_id: str | None
    confirmations: int
    confirmed_at_ms: int | None
    removed: bool
    created_at_ms: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerQuery:
    """Which rows: newest first, below `before_sequence` when given; block bounds are inclusive."""

    limit: int
    before_sequence: int | None = None
    kinds: tuple[EventKind, ...] = ()
    from_block: int | None = None
    to_block: int | None = None


class WalletLedger(Protocol):
    """What the watcher writes and the wallet resources read."""

    async def identify(self, identity: ChainIdentity) -> ChainIdentity:
        """Record the chain's identity if there is none; answers the recorded one."""
        ...

    async def track(self, workspace_id: str, address: str, *, now_ms: int) -> None:
        """Follow the wallet of a workspace."""
        ...

    async def tracked_addresses(self) -> dict[str, Reading]:
        """Lower-case addresses followed, and how well each is known."""
        ...

    async def chain_head(self) -> BlockRef | None:
        """The last block applied."""
        ...

    async def recent_headers(self) -> list[BlockRef]:
        """The last applied blocks that a reorganisation is walked back through, newest first."""
        ...

    async def mark_checked(self, *, now_ms: int) -> None:
        """The chain was seen to stand where the cursor is: what is stored is not stale."""
        ...

    async def apply_blocks(self, application: BlockApplication, *, now_ms: int) -> None:
        """Write events, readings, released holds and the cursor together."""
        ...

    async def roll_back(self, ancestor: BlockRef, *, now_ms: int) -> None:
        """Void what was applied above the common ancestor: events are removed, released charges are held again,
        readings are OUTDATED."""
        ...

    async def wallet(self, workspace_id: str) -> WalletView | None:
        """The wallet of a workspace, None when it is not tracked."""
        ...

    async def ledger(self, workspace_id: str, query: LedgerQuery) -> list[LedgerRow]:
        """The workspace's events."""
        ...

    async def take_hold(
        self, session_id: str, payer: str, amount_micro: int, policy: FundsPolicy, *, now_ms: int
    ) -> bool:
        """Reserve for a session. False, with nothing reserved, when ENFORCED and not covered."""
        ...

    async def charge_hold(self, session_id: str, charged_micro: int) -> None:
        """Lower the reservation to the charge; it stays until the chain shows the settlement."""
        ...

    async def release_hold(self, session_id: str) -> None:
        """Give up the reservation."""
        ...


class Ledger(SettlementOutbox, WalletLedger, Protocol):
    """Both halves, as one adapter offers them: a release and a reading are one transaction."""
