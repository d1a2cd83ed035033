"""The money's records: the relayer's outbox, holds, and the watcher's copy of wallets and their events.

Every method raises StoreUnavailableError or OutcomeUnknownError (sightline.domain.errors) when the store behind it
fails. Every method is idempotent: a second call with the same arguments changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, Self, final

from sightline.domain.errors import SightlineError
from sightline.domain.session.model import Ended, Session
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc

DAY_MS: Final = 86_400_000
LEASE_MS_MAX: Final = 60_000
"""The longest lease. One that seems to run longer was taken before the store's clock was set back, and is over."""
WOKEN_MAX: Final = 10
"""Settlements of one payer that become due when its wallet changes. Their own settlement wakes the next."""


class SettlementState(StrEnum):
    """Where a settlement stands.

    COMPOSED -> SIGNED -> SENT -> MINED -> CONFIRMED. REVERTED, STUCK and FAILED carry a reason and are retried.
    MISMATCHED: the contract settled the session with other amounts than ours. WRITTEN_OFF: given up by command.
    """

    COMPOSED = "COMPOSED"
    SIGNED = "SIGNED"
    SENT = "SENT"
    MINED = "MINED"
    CONFIRMED = "CONFIRMED"
    REVERTED = "REVERTED"
    STUCK = "STUCK"
    FAILED = "FAILED"
    MISMATCHED = "MISMATCHED"
    WRITTEN_OFF = "WRITTEN_OFF"


SETTLEMENTS_WAITING: Final = frozenset({SettlementState.COMPOSED, SettlementState.REVERTED, SettlementState.FAILED})
"""Without a transaction that may still mine: to be signed, or written off."""
SETTLEMENTS_IN_FLIGHT: Final = frozenset(
    {SettlementState.SIGNED, SettlementState.SENT, SettlementState.STUCK, SettlementState.MINED}
)


class Lane(StrEnum):
    """Which queue a waiting settlement is in. Retries and free sessions never delay what can be paid now.

    PAYABLE: never refused, and the wallet as last read covers it. RETRY: refused, or not covered. FREE: a charge of 0,
    settled in batches.
    """

    PAYABLE = "PAYABLE"
    RETRY = "RETRY"
    FREE = "FREE"


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
    """One signed transaction of a settlement. Kept for ever: any of them may be the one that mines.

    The settlements of a batch each have an attempt with the same nonce, hash and bytes.
    """

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
    row that waits is looked at again; `tries` counts the refusals in a row. `on_chain` holds the contract's amounts
    of a MISMATCHED settlement.
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
    lane: Lane = Lane.PAYABLE
    on_chain: "SettledAmounts | None" = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def total(self) -> int:
        """The whole charge in micro-USDC: the payee's part and the fee."""
        return self.payload.to_amount + self.payload.fee_amount


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SettledAmounts:
    """What the contract's event says that it moved."""

    to_amount: int
    fee_amount: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionProof:
    """What the database recorded of an ended session and its hold. A settlement is signed only if it equals this."""

    payer: str
    payee: str
    consumer_workspace_id: str
    operator_workspace_id: str
    rate: MicroUsdc
    seconds: int
    charged: MicroUsdc
    platform_fee_bps: int
    held_of: str
    held_micro: int

    @classmethod
    def of(cls, session: Session, *, held_of: str, held_micro: int) -> Self | None:
        """The proof of a session whose hold has become its charge; None while it has not ended."""
        phase = session.phase
        if not isinstance(phase, Ended):
            return None
        return cls(
            payer=session.terms.payer_address,
            payee=phase.operator.wallet_address,
            consumer_workspace_id=session.terms.consumer_workspace_id,
            operator_workspace_id=phase.operator.workspace_id,
            rate=session.terms.rate,
            seconds=phase.clean_seconds,
            charged=phase.charged,
            platform_fee_bps=session.terms.platform_fee_bps,
            held_of=held_of,
            held_micro=held_micro,
        )


class NonceTakenError(SightlineError):
    """Another writer used this nonce or this settlement first; nothing was stored."""


class CursorMovedError(SightlineError):
    """Another writer moved the watcher's cursor; nothing was stored. Read the cursor again."""


class SettlementOutbox(Protocol):
    """The relayer's records. One writer per relayer key, by a lease."""

    async def compose(self, payload: SettlementPayload, *, now_ms: int) -> None:
        """Record what is to be settled. A second one for the session is ignored: the first is immutable.

        A charge of 0 goes into the FREE lane, one that the payer's wallet as last read does not cover into RETRY.
        """
        ...

    async def settlement(self, session_id: str) -> SettlementRecord | None:
        """The row of one session."""
        ...

    async def settlements(self, states: Sequence[SettlementState], *, limit: int = 1000) -> list[SettlementRecord]:
        """Rows in these states, oldest first."""
        ...

    async def settlements_in_flight(self, *, limit: int) -> list[SettlementRecord]:
        """Rows with a transaction that may still mine or is not deep enough, oldest first."""
        ...

    async def settlements_due(self, lane: Lane, *, now_ms: int, limit: int) -> list[SettlementRecord]:
        """Rows of a lane that wait for a (new) transaction and whose retry time has come, longest due first."""
        ...

    async def settlements_in(self, tx_hash: str) -> list[SettlementRecord]:
        """The rows that one transaction settles, in the order in which it was signed."""
        ...

    async def proofs(self, session_ids: Sequence[str]) -> dict[str, SessionProof]:
        """By session id, what was recorded of the session's end and hold; only ended ones whose charge is held."""
        ...

    async def spendable(self, payers: Sequence[str], *, now_ms: int) -> dict[str, int]:
        """What could be taken of each wallet now, as last read; wallets that are not known are left out."""
        ...

    async def settlements_above(self, block_number: int) -> list[SettlementRecord]:
        """MINED and CONFIRMED rows in blocks above this one: what a reorganisation may have taken."""
        ...

    async def attempts_at(self, relayer: str, nonce: int) -> list[Attempt]:
        """The transactions ever signed with this nonce, oldest first."""
        ...

    async def take_lease(self, relayer: str, holder: str, *, lease_ms: int) -> bool:
        """Become or stay the one writer for this key; False while another holder's lease runs.

        Time is the store's own: a step of the server's clock neither prolongs nor ends a lease. 0 ms gives it up.
        """
        ...

    async def free_batch_at_ms(self, relayer: str) -> int:
        """When this key last signed a batch of free sessions; 0 if never."""
        ...

    async def next_nonce(self, relayer: str) -> int:
        """The nonce after the last stored transaction of this key; 0 for a new key. Never goes down."""
        ...

    async def store_signed(
        self, relayer: str, attempts: Sequence[Attempt], *, now_ms: int, is_free_batch: bool = False
    ) -> None:
        """Store signed transactions before they are broadcast, and use up their nonces, in one transaction.

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
        self, session_id: str, state: SettlementState, *, reason: str, retry_at_ms: int, now_ms: int,
        lane: Lane | None = None,
    ) -> None:  # fmt: skip
        """Into a side state (or COMPOSED) with the reason; counts one more try. Without `lane` it stays in its lane."""
        ...

    async def mark_mismatched(
        self, session_id: str, inclusion: Inclusion, on_chain: SettledAmounts, *, now_ms: int
    ) -> None:
        """The contract settled this session with these amounts, which are not the payload's."""
        ...

    async def write_off(self, session_id: str, *, reason: str, now_ms: int) -> SettlementRecord | None:
        """Give a waiting settlement up for good and release its hold.

        Returns:
            The row as it is then: WRITTEN_OFF, or unchanged if it does not wait; None if there is none.
        """
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
    """Balance, allowance and limits of one address, read pinned to one block."""

    address: str
    balance_micro: int
    allowance_micro: int
    block_number: int
    limits: "SpendingLimits | None" = None

    def spendable(self, now_ms: int) -> int:
        """What could be taken now in all."""
        funds = min(self.balance_micro, self.allowance_micro)
        return funds if self.limits is None else min(funds, self.limits.left_of_day(now_ms))

    def covers(self, charge: int, now_ms: int) -> bool:
        """Whether one charge could be taken now."""
        is_within = self.limits is None or charge <= self.limits.per_session
        return is_within and charge <= self.spendable(now_ms)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLimits:
    """What a payer allows the settlement contract (`setLimits`); `spent` was taken on the UTC day `day`."""

    per_session: int
    per_day: int
    spent: int
    day: int

    def left_of_day(self, now_ms: int) -> int:
        """What may still be taken on the day of `now_ms`."""
        return max(0, self.per_day - (self.spent if now_ms // DAY_MS == self.day else 0))


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

    `previous` is the cursor that it continues, None for the first; the store compares. `settled` are the
    sessionIdHashes seen settled in these blocks: their holds are released with the readings.
    `confirmed_block` is the newest block at the configured depth.
    """

    headers: tuple[BlockRef, ...]
    events: tuple[ChainEvent, ...]
    readings: tuple[WalletReading, ...]
    settled: tuple[tuple[str, int], ...]
    head: BlockRef
    confirmed_block: int
    previous: BlockRef | None


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

    async def tracked_among(self, addresses: Sequence[str]) -> dict[str, Reading]:
        """Those of these lower-case addresses that are followed, and how well each is known."""
        ...

    async def wallets_to_read(self, *, limit: int) -> dict[str, Reading]:
        """Addresses that are NEW or OUTDATED."""
        ...

    async def oldest_readings(self, *, before_ms: int, limit: int) -> list[str]:
        """Addresses whose reading is older than this, oldest first."""
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
        """Write events, readings, released holds and the cursor together.

        Where a reading changed, up to WOKEN_MAX settlements of that payer which it covers become PAYABLE and due;
        PAYABLE ones which it does not cover go to RETRY.

        Raises:
            CursorMovedError: The cursor is not `application.previous`.
        """
        ...

    async def roll_back(self, ancestor: BlockRef, *, cursor: BlockRef, now_ms: int) -> None:
        """Void what was applied above the common ancestor: events are removed, released charges are held again,
        readings are OUTDATED.

        Raises:
            CursorMovedError: The cursor is not `cursor`.
        """
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
