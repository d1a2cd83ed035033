"""The port of the money records: the settlement outbox, holds, and the watcher's copy of wallets and their events.

Every method raises StoreUnavailableError or OutcomeUnknownError (sightline.domain.errors) when the store fails. Every
method is idempotent: a second call with the same arguments changes nothing.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol, Self, TypeVar, final

from sightline.domain.books.journal import JournalEntry
from sightline.domain.books.statement import Invoice, Month, WorkspaceStatement
from sightline.domain.errors import SightlineError
from sightline.domain.session.model import Ended, Session
from sightline.domain.settlement import ChainPayment, PaymentSums, SettlementPayload, UnknownPayments
from sightline.domain.units import MicroUsdc
from sightline.domain.value import Value, hiding

DAY_MS: Final = 86_400_000
HEADERS_MIN: Final = 256
"""Number of latest blocks whose headers are kept, to find the common ancestor after a reorganisation."""
HEADERS_MAX: Final = 1_000
"""The same on a chain where more blocks are not final yet."""
WOKEN_MAX: Final = 10
"""Maximum number of a payer's settlements that become due when its wallet changes.

When they settle, the wallet changes again and the next ones become due.
"""


class SettlementState(StrEnum):
    """The state of a settlement.

    COMPOSED -> SIGNED -> SENT -> MINED -> CONFIRMED. REVERTED, STUCK and FAILED carry a reason and are retried.
    MISMATCHED: the contract settled the session with parties or numbers that differ from ours. WRITTEN_OFF: ended by a
    command.
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
"""States without a transaction that may still be mined: the settlement can be signed or written off."""
SETTLEMENTS_IN_FLIGHT: Final = frozenset(
    {SettlementState.SIGNED, SettlementState.SENT, SettlementState.STUCK, SettlementState.MINED}
)


class SettlementLane(StrEnum):
    """The queue of a waiting settlement. Retries and free sessions never delay settlements that can be paid now.

    PAYABLE: never refused, and covered by the last reading of the wallet. RETRY: refused, or not covered. FREE: a
    charge of 0, settled in batches. VOID: a charge of 0 for a session that never was LIVE, which returns its amount
    from escrow; nobody is told of it.
    """

    PAYABLE = "PAYABLE"
    RETRY = "RETRY"
    FREE = "FREE"
    VOID = "VOID"


class FundsPolicy(StrEnum):
    """What secures a session's hold.

    ADVISORY: nothing; a hold that the wallet does not cover is recorded. ENFORCED: such a hold is refused. ESCROW: such
    a hold is refused, and the contract holds the amount from before the session starts.
    """

    ADVISORY = "advisory"
    ENFORCED = "enforced"
    ESCROW = "escrow"


class HoldState(StrEnum):
    """OPEN reserves the maximum charge, CHARGE the exact charge until it is settled on the chain, RELEASED nothing."""

    OPEN = "OPEN"
    CHARGE = "CHARGE"
    RELEASED = "RELEASED"


class ReadingState(StrEnum):
    """State of a wallet's reading: CURRENT, OUTDATED after a reorganisation, or NEW (its history was not read yet)."""

    CURRENT = "CURRENT"
    OUTDATED = "OUTDATED"
    NEW = "NEW"


class LedgerEventKind(StrEnum):
    """The kind of event in a ledger row."""

    DEPOSIT = "DEPOSIT"
    WITHDRAWAL = "WITHDRAWAL"
    APPROVAL = "APPROVAL"
    SETTLEMENT = "SETTLEMENT"
    TRANSFER_IN = "TRANSFER_IN"
    TRANSFER_OUT = "TRANSFER_OUT"


@final
class Attempt(Value, kw_only=True):
    """A signed transaction of a settlement. Attempts are never deleted, because any of them may be mined.

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

    __repr__ = hiding("raw")


@final
class Inclusion(Value, kw_only=True):
    """The block that includes a row's transaction, and the index of the contract's event in that block."""

    tx_hash: str
    block_number: int
    block_hash: str
    log_index: int | None = None
    opened_at_s: int | None = None
    """Of an opened hold: the block's time, which is part of the hold."""


class OutboxRecord(Value, kw_only=True):
    """One row of an outbox: what shall happen on the chain for a session, with its attempts, oldest first.

    `tx_hash` is the mined transaction, or the newest attempt before one is mined. `retry_at_ms` is when a waiting
    row is examined again; `tries` counts successive refusals. `log_index` is the place of the contract's event, None
    for settlements of earlier versions.
    """

    session_id: str
    session_id_hash: str
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
    lane: SettlementLane = SettlementLane.PAYABLE
    log_index: int | None = None
    attempts: tuple[Attempt, ...] = ()


RecordT = TypeVar("RecordT", bound=OutboxRecord)


@final
class SettlementRecord(OutboxRecord, kw_only=True):
    """One settlement. `on_chain` has the parties and numbers of the contract's event where it is MISMATCHED."""

    payload: SettlementPayload
    on_chain: SettlementPayload | None = None

    @property
    def total(self) -> int:
        """The whole charge in micro-USDC: the payee's part and the fee."""
        return self.payload.to_amount + self.payload.fee_amount


@final
class SessionProof(Value, kw_only=True):
    """The recorded end of a session and its hold. A settlement is signed only if it equals them."""

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
        """Build the proof of a session whose hold was lowered to its charge; None while the session has not ended."""
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
    """Another writer already used this nonce or this settlement; nothing was stored."""


class CursorMovedError(SightlineError):
    """Another writer moved the watcher's cursor; nothing was stored. Read the cursor again."""


class WrittenOffMeanwhileError(SightlineError):
    """A settlement was written off while the block with its payment was read; nothing was stored. Read it again."""


@final
class BlockRef(Value, kw_only=True):
    """A block by its number, its hash and its parent's hash."""

    number: int
    block_hash: str
    parent_hash: str


@final
class LiveHold(Value):
    """What is reserved for a LIVE session: its maximum charge."""

    session_id: str
    payer: str
    """Lower-case address."""
    amount_micro: int
    session_limit_micro: int | None = None
    """The most that the settlement contract takes of the payer for one session, by the payer's own limit."""


class TransactionOutbox(Protocol[RecordT]):
    """Rows for which the relayer sends transactions. A lease allows one writer per relayer key."""

    async def has_work(self, *, now_ms: int) -> bool:
        """Return whether a row is in flight, or due in any lane."""
        ...

    async def in_flight(self, *, limit: int) -> list[RecordT]:
        """Return rows whose transaction may still be mined or is not deep enough, oldest first."""
        ...

    async def due(self, lane: SettlementLane, *, now_ms: int, limit: int) -> list[RecordT]:
        """Return rows of a lane that need a transaction and whose retry time has passed, longest due first."""
        ...

    async def of_transaction(self, tx_hash: str) -> list[RecordT]:
        """Return the rows of one transaction, in the order in which they were signed."""
        ...

    async def chain_head(self) -> BlockRef | None:
        """Return the last block that the watcher applied."""
        ...

    async def above_block(self, block_number: int) -> list[RecordT]:
        """Return MINED, CONFIRMED and MISMATCHED rows in blocks above this one. Lowest block first."""
        ...

    async def to_recheck(self) -> list[RecordT]:
        """Return MINED, CONFIRMED and MISMATCHED rows whose block is not the one that the watcher applied.

        The watcher applied another block of this number, or none yet. Older blocks than those of `recent_headers` are
        not compared. Lowest block first.
        """
        ...

    async def attempts_at(self, relayer: str, nonce: int) -> list[Attempt]:
        """Return every transaction signed with this nonce, oldest first."""
        ...

    async def next_nonce(self, relayer: str) -> int:
        """Return the nonce after the last stored transaction of this key; 0 for a new key. It never decreases."""
        ...

    async def store_signed(
        self, relayer: str, attempts: Sequence[Attempt], *, now_ms: int, is_free_batch: bool = False
    ) -> None:
        """Store signed transactions before they are broadcast, and use up their nonces, in one transaction.

        A nonce equal to an earlier attempt of the same session is a replacement.

        Raises:
            NonceTakenError: A new nonce is below the stored one, or the session's row is in flight under another nonce.
        """
        ...

    async def mark_sent(self, tx_hashes: Sequence[str], *, now_ms: int) -> None:
        """Mark transactions as accepted by the node: SIGNED and reorganised rows become SENT, STUCK rows stay STUCK."""
        ...

    async def mark_mined(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Mark the row as included in a block that is not deep enough yet."""
        ...

    async def mark_confirmed(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Mark the row as final. Sets confirmed_at_ms once; the row then waits to be reported."""
        ...

    async def mark_unmined(self, session_id: str, *, reason: str, now_ms: int) -> None:
        """Mark a row as in no block after a reorganisation (SENT again). CONFIRMED rows keep confirmed_at_ms."""
        ...

    async def mark_waiting(
        self, session_id: str, state: SettlementState, *, reason: str, retry_at_ms: int, now_ms: int,
        lane: SettlementLane | None = None,
    ) -> None:  # fmt: skip
        """Put a row into a waiting state with the reason, and count one try. Without `lane` the lane is kept."""
        ...

    async def unnotified(self) -> list[RecordT]:
        """Return CONFIRMED rows that were not reported yet."""
        ...

    async def mark_notified(self, session_id: str) -> None:
        """Mark the row as reported."""
        ...


class SettlementOutbox(TransactionOutbox[SettlementRecord], Protocol):
    """The settlements of ended sessions."""

    async def settlement(self, session_id: str) -> SettlementRecord | None:
        """Return the settlement of one session."""
        ...

    async def settlements(self, states: Sequence[SettlementState], *, limit: int) -> list[SettlementRecord]:
        """Return settlements in these states, oldest first."""
        ...

    async def proofs(self, session_ids: Sequence[str]) -> dict[str, SessionProof]:
        """Return the recorded end and hold by session id, for ended sessions whose charge is held."""
        ...

    async def spendable(self, payers: Sequence[str], *, now_ms: int) -> dict[str, int]:
        """Return the amount that could be charged to each wallet by its last reading; unread wallets are omitted."""
        ...

    async def funds_beside_charges(self, payers: Sequence[str], *, now_ms: int) -> dict[str, int]:
        """Return what each payer could pay besides the charges of its ended sessions that are not settled yet.

        By the last reading of each wallet; unread wallets are omitted. Negative if the charges are not covered.
        """
        ...

    async def free_batch_at_ms(self, relayer: str) -> int:
        """Return when this key last signed a batch of free sessions; 0 if never."""
        ...

    async def mark_mismatched(
        self, session_id: str, inclusion: Inclusion, on_chain: SettlementPayload, *, now_ms: int
    ) -> None:
        """Mark the settlement as settled by the contract with these parties and numbers, which differ from ours."""
        ...

    async def write_off(self, session_id: str, *, reason: str, now_ms: int) -> SettlementRecord | None:
        """Write off a waiting settlement permanently and release its hold.

        Returns:
            The row after the call: WRITTEN_OFF, or unchanged if it is not waiting, or if the watcher has seen a payment
            of its session on the chain; None if there is none.
        """
        ...


@final
class ChainIdentity(Value, kw_only=True):
    """The chain and the contracts that this database belongs to. Written once."""

    chain_id: int
    genesis_hash: str
    usdc_address: str
    settlement_address: str


@final
class WalletReading(Value, kw_only=True):
    """Balance, allowance and limits of one address, read pinned to one block."""

    address: str
    balance_micro: int
    allowance_micro: int
    block_number: int
    limits: "SpendingLimits | None" = None

    def spendable(self, now_ms: int) -> int:
        """Return the total amount that could be charged now."""
        funds = min(self.balance_micro, self.allowance_micro)
        return funds if self.limits is None else min(funds, self.limits.left_of_day(now_ms))

    def covers(self, charge: int, now_ms: int) -> bool:
        """Return whether this charge could be made now."""
        is_within = self.limits is None or charge <= self.limits.per_session
        return is_within and charge <= self.spendable(now_ms)


@final
class SpendingLimits(Value, kw_only=True):
    """The limits that a payer set on the settlement contract (`setLimits`); `spent` was charged on UTC day `day`."""

    per_session: int
    per_day: int
    spent: int
    day: int

    def left_of_day(self, now_ms: int) -> int:
        """Return what may still be charged on the UTC day of `now_ms`."""
        return max(0, self.per_day - (self.spent if now_ms // DAY_MS == self.day else 0))

    def left_for_session(self, held_beside: int, now_ms: int) -> int:
        """Return what one session may cost at most now, beside what is held for the payer's other sessions."""
        return min(self.per_session, max(0, self.left_of_day(now_ms) - held_beside))


@final
class ChainEvent(Value, kw_only=True):
    """A log that concerns a tracked address, before it is written to the ledger of each workspace with that address."""

    address: str
    kind: LedgerEventKind
    tx_hash: str
    log_index: int
    block_number: int
    block_hash: str
    from_address: str
    to_address: str
    amount_micro: int
    session_id_hash: str | None


@final
class BooksReading(Value, kw_only=True):
    """The journal's entries of all events in the blocks `first` to `through`, in the order of the chain."""

    first: int
    through: int
    entries: tuple[JournalEntry, ...]


@final
class OwnTransaction(Value, kw_only=True):
    """A transaction that a key of this service has signed."""

    tx_hash: str
    session_id: str | None
    """The one session that it is for; None for a batch."""
    is_refund: bool = False


@final
class BlockApplication(Value, kw_only=True):
    """The changes that the watcher read from blocks up to `head`, applied in one transaction.

    `previous` is the cursor before them, None for the first application; the store compares it. `settled` holds the
    sessionIdHashes settled in these blocks: their holds are released together with the readings. `escrowed` holds those
    whose amount the escrow contract took, and which therefore reserve nothing any more. `confirmed_block` is the newest
    block at the configured depth; `final_block` the newest one that the chain calls final, None if it calls none so.
    """

    headers: tuple[BlockRef, ...]
    events: tuple[ChainEvent, ...]
    readings: tuple[WalletReading, ...]
    settled: tuple[tuple[str, int], ...]
    head: BlockRef
    confirmed_block: int
    previous: BlockRef | None
    unknown: tuple[ChainPayment, ...] = ()
    """Payments of our relayers in these blocks without a settlement."""
    escrowed: tuple[tuple[str, int], ...] = ()
    books: BooksReading | None = None
    """Stored only if the journal has read the block before it, so that it never lacks a block in between."""
    final_block: int | None = None

    @property
    def final(self) -> int:
        """The newest block whose entries belong into the journal: final, and at the configured depth."""
        return self.confirmed_block if self.final_block is None else min(self.final_block, self.confirmed_block)

    @property
    def first_header(self) -> int:
        """The oldest block whose header is kept: the final one, within the last 256 to 1,000 blocks."""
        head = self.head.number
        return max(head - HEADERS_MAX + 1, min(head - HEADERS_MIN + 1, self.final))


@final
class WalletView(Value, kw_only=True):
    """The stored wallet of one workspace. All numbers are zero and the block is 0 until the first reading."""

    workspace_id: str
    address: str
    balance_micro: int
    allowance_micro: int
    held_micro: int
    last_sync_block: int
    updated_at_ms: int
    escrowed_micro: int = 0
    """What the escrow contract holds for open sessions; the balance is without it."""
    limits: SpendingLimits | None = None

    @property
    def available_micro(self) -> int:
        """Return what balance and allowance leave beside all holds; never below zero. The limits may be lower."""
        return max(0, min(self.balance_micro, self.allowance_micro) - self.held_micro)


@final
class LedgerRow(Value, kw_only=True):
    """One event in a workspace's ledger. `sequence` orders rows by first sight; `removed` rows are kept."""

    sequence: int
    workspace_id: str
    kind: LedgerEventKind
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
class LedgerQuery(Value, kw_only=True):
    """Selects ledger rows: newest first, below `before_sequence` if given; block bounds are inclusive."""

    limit: int
    before_sequence: int | None = None
    kinds: tuple[LedgerEventKind, ...] = ()
    from_block: int | None = None
    to_block: int | None = None
    session_id: str | None = None


class UsageSide(StrEnum):
    """The side of its sessions that a workspace asks about."""

    CONSUMER = "consumer"
    OPERATOR = "operator"


@final
class UsageDay(Value):
    """The ended sessions of a workspace on one UTC day; `day` counts from the epoch.

    `to_amount` went to operators, `fee_amount` to the platform. Write-offs are left out.
    """

    day: int
    sessions: int
    clean_seconds: int
    to_amount: int
    fee_amount: int


class WalletLedger(Protocol):
    """Wallets and ledger rows, written by the watcher and read by the wallet resources of the API."""

    async def identify(self, identity: ChainIdentity) -> ChainIdentity:
        """Record the chain's identity if there is none, and return the recorded one."""
        ...

    async def track(self, workspace_id: str, address: str, *, now_ms: int) -> None:
        """Track the wallet of a workspace."""
        ...

    async def tracked_among(self, addresses: Sequence[str]) -> dict[str, ReadingState]:
        """Return which of these lower-case addresses are tracked, with the state of each reading."""
        ...

    async def wallets_to_read(self, *, limit: int) -> dict[str, ReadingState]:
        """Return the addresses whose reading is NEW or OUTDATED."""
        ...

    async def oldest_readings(self, *, before_ms: int, limit: int) -> list[str]:
        """Return the addresses whose reading is older than this, oldest first."""
        ...

    async def chain_head(self) -> BlockRef | None:
        """Return the last applied block."""
        ...

    async def recent_headers(self) -> list[BlockRef]:
        """Return the last applied blocks, newest first; a reorganisation is traced back through them."""
        ...

    async def without_settlement(self, hashes: Sequence[str]) -> frozenset[str]:
        """Return which of these sessionIdHashes have neither a settlement that counts nor an adopted payment.

        A settlement that was written off does not count: nobody expected a payment any more.
        """
        ...

    async def written_off(self, hashes: Sequence[str]) -> frozenset[str]:
        """Return which of these sessionIdHashes have a settlement that was written off, and no adopted payment."""
        ...

    async def relayers(self) -> frozenset[str]:
        """Return the lower-case addresses of all keys that have signed settlements of this database."""
        ...

    async def books_read_through(self) -> int | None:
        """Return the last block whose events are in the journal or wait for finality; None before the first."""
        ...

    async def own_transactions(self, tx_hashes: Sequence[str]) -> dict[str, OwnTransaction]:
        """Return which of these transactions our keys have signed, for settlements, holds and refunds."""
        ...

    async def without_entry(self, *, after: str = "", limit: int) -> list[str]:
        """Return transactions that our keys have signed and whose gas or refund is not in the journal, by hash."""
        ...

    async def mark_checked(self, *, now_ms: int) -> None:
        """Record that the endpoint still has the cursor's block as head, so the stored readings are not stale."""
        ...

    async def apply_blocks(self, application: BlockApplication, *, now_ms: int) -> None:
        """Write events, readings, released holds and the cursor together.

        Entries of the journal wait until their block is final, and are then written once for each event.

        Where a reading changed, up to WOKEN_MAX of that payer's settlements that it covers become PAYABLE and due.
        PAYABLE
        ones that it does not cover move to RETRY.

        Raises:
            CursorMovedError: The cursor is not `application.previous`.
            WrittenOffMeanwhileError: A settled session is written off, and its payment is not among the unknown ones.
        """
        ...

    async def roll_back(self, ancestor: BlockRef, *, cursor: BlockRef, now_ms: int) -> None:
        """Remove everything that was applied above the common ancestor.

        Events are marked removed, released charges are held again, readings become OUTDATED, unknown payments are
        deleted. Each entry of the journal gets one that takes it back.

        Raises:
            CursorMovedError: The cursor is not `cursor`.
        """
        ...

    async def wallet(self, workspace_id: str) -> WalletView | None:
        """Return the wallet of a workspace; None when it is not tracked."""
        ...

    async def spent_by_key(self, key_id: str, *, now_ms: int) -> MicroUsdc:
        """Return what counts against the limit of an API key on this UTC day."""
        ...

    async def ledger(self, workspace_id: str, query: LedgerQuery) -> list[LedgerRow]:
        """Return the workspace's ledger rows."""
        ...

    async def usage(self, workspace_id: str, side: UsageSide, *, first_day: int, last_day: int) -> list[UsageDay]:
        """Return a workspace's ended sessions by the day on which their end was recorded; empty days are left out."""
        ...

    async def statement(self, workspace_id: str, month: Month) -> WorkspaceStatement:
        """Return what the journal says of a workspace's sessions in a month."""
        ...

    async def invoice(self, statement: WorkspaceStatement, *, now_ms: int) -> Invoice:
        """Return the invoice of a closed month; the first call writes it with the next number of the month's year."""
        ...

    async def take_from_faucet(self, address: str, amount_micro: int, *, daily_max: int, now_ms: int) -> int | None:
        """Count test money for a wallet. Returns what is left of the UTC day; None, with nothing counted, if too much.

        Counted before it is paid, so that a crash in between cannot pay more than the maximum.
        """
        ...

    async def left_of_faucet(self, address: str, *, daily_max: int, now_ms: int) -> int:
        """Return what the faucet may still give to a wallet on this UTC day."""
        ...

    async def live_holds(self, payer: str | None = None) -> list[LiveHold]:
        """Return the holds of LIVE sessions, of one payer or of all."""
        ...


class Ledger(SettlementOutbox, WalletLedger, Protocol):
    """Outbox and wallets in one adapter, because a hold's release and a wallet's reading are one transaction."""


class PaymentJournal(Protocol):
    """Payments of our relayers on the chain without a settlement in the database.

    A payment counts when its block is final and its session, if the database knows one, is over: a session that is not
    over will have a settlement, which is then compared with the payment.
    """

    async def unknown(self) -> UnknownPayments:
        """Count the payments that nobody has adopted."""
        ...

    async def unknown_payments(self, *, limit: int) -> Sequence[ChainPayment]:
        """Return the payments that nobody has adopted, by block."""
        ...

    async def adopt(
        self, *, through_block: int, count: int, adopted_by: str, reason: str, now_ms: int
    ) -> UnknownPayments | None:
        """Move the unknown payments of the blocks up to one into the journal, in one transaction.

        Args:
            count: How many there are, as the person who confirms has seen.

        Returns:
            What was adopted; None, with nothing adopted, if there are more or fewer.
        """
        ...

    async def is_chain_read(self, *, runs_watcher: bool) -> bool:
        """Return whether the present watcher, of whichever server, has once read the chain up to its head.

        Args:
            runs_watcher: Whether this server runs it. A watcher of an earlier version does not say what it has read. It
                counts as having read all, because it is another server's, which was running already.
        """
        ...

    async def sums(self) -> PaymentSums:
        """Add up the books."""
        ...


@final
class StoredEntry(Value, kw_only=True):
    """An entry of the journal with its place. `reverses` is the entry that it takes back."""

    id: int
    entry: JournalEntry
    turn: int
    reverses: int | None
    recorded_at_ms: int


class Journal(Protocol):
    """Reads the journal of the books, which only grows."""

    async def entries(self, *, after: int = 0, limit: int) -> list[StoredEntry]:
        """Return entries in the order in which they were written, from the first id above `after`."""
        ...
