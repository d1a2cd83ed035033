"""The settlement outbox, holds and wallets in memory, with the contract of Postgres; for simulation and tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from sightline.domain.books.statement import Invoice, Month, WorkspaceStatement
from sightline.domain.session.model import Session, SessionState
from sightline.domain.settlement import UnknownPayments
from sightline.domain.units import DAY_MS, MicroUsdc
from sightline.ports.ledger import (
    WOKEN_MAX,
    BlockApplication,
    BlockRef,
    ChainEvent,
    ChainIdentity,
    CursorMovedError,
    FundsPolicy,
    HoldState,
    LedgerEventKind,
    LedgerQuery,
    LedgerRow,
    LiveHold,
    OwnTransaction,
    ReadingState,
    SessionProof,
    SettlementLane,
    SettlementRecord,
    SettlementState,
    SpendingLimits,
    UsageDay,
    UsageSide,
    WalletReading,
    WalletView,
    WrittenOffMeanwhileError,
)
from sightline.ports.store import DEMAND_PAID_MS, HoldGrowth, HoldRequest, KeySpending, RejectedWhy
from sightline.storage.postgres.money.holds import STALE_MS_MAX
from sightline.system.keccak import session_id_hash
from simulation.memory.journal import MemoryJournal
from simulation.memory.ledger_outbox import MemoryOutbox
from simulation.memory.payments import MemoryPayments
from simulation.memory.statements import MemoryStatements


@dataclass(slots=True)
class _Hold:
    session_id: str
    payer: str
    amount: int
    state: HoldState
    released_block: int | None = None
    key: tuple[str, int] | None = None
    """The limited API key that it counts against, and the UTC day."""


@dataclass(slots=True)
class _Event:
    sequence: int
    event: ChainEvent
    created_at_ms: int
    confirmed_at_ms: int | None = None
    removed: bool = False


@final
class MemoryLedger(MemoryOutbox):
    """Implements `Ledger` in memory: outbox, wallets and holds."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        """Create an empty ledger. Webhooks are due by `now_ms`, which is constant by default."""
        super().__init__(now_ms)
        self.session_of: Callable[[str], Session | None] = lambda _: None
        """Finds the session for `proofs`; the store that uses this ledger sets it."""
        self._given: dict[tuple[str, int], int] = {}
        """Test money by lower-case address and UTC day."""
        self._identity: ChainIdentity | None = None
        self._tracked: dict[str, tuple[str, int]] = {}
        self._readings: dict[str, tuple[WalletReading, bool, int]] = {}
        self._events: dict[tuple[str, int, str], _Event] = {}
        self._holds: dict[str, _Hold] = {}
        self._hold_by_hash: dict[str, _Hold] = {}
        self._headers: dict[int, BlockRef] = {}
        self._final = -1
        self._head: BlockRef | None = None
        self._checked_at_ms = 0
        self.payments = MemoryPayments(self._has_settlement_or_will, self._sum_settled)
        self.journal = MemoryJournal(self._session_of_hash)
        self.statements = MemoryStatements(self.journal)

    async def identify(self, identity: ChainIdentity) -> ChainIdentity:
        """Record the chain's identity if there is none, and return the recorded one."""
        if self._identity is None:
            self._identity = ChainIdentity(
                chain_id=identity.chain_id,
                genesis_hash=identity.genesis_hash.lower(),
                usdc_address=identity.usdc_address.lower(),
                settlement_address=identity.settlement_address.lower(),
            )
        return self._identity

    async def track(self, workspace_id: str, address: str, *, now_ms: int) -> None:
        """Track the wallet of a workspace."""
        self.track_now(workspace_id, address, now_ms=now_ms)

    def track_now(self, workspace_id: str, address: str, *, now_ms: int) -> None:
        """Track the wallet of a workspace, as part of another store's step."""
        self._tracked.setdefault(workspace_id, (address.lower(), now_ms))

    async def tracked_among(self, addresses: Sequence[str]) -> dict[str, ReadingState]:
        """Return which of these addresses are tracked, with the state of each reading."""
        followed = {address for address, _ in self._tracked.values()}
        return {address: self._known(address) for address in addresses if address in followed}

    async def wallets_to_read(self, *, limit: int) -> dict[str, ReadingState]:
        """Return the addresses whose reading is NEW or OUTDATED."""
        followed = sorted({address for address, _ in self._tracked.values()})
        found = {address: known for address in followed if (known := self._known(address)) is not ReadingState.CURRENT}
        return dict(list(found.items())[:limit])

    def _known(self, address: str) -> ReadingState:
        known = self._readings.get(address)
        if known is None:
            return ReadingState.NEW
        return ReadingState.OUTDATED if known[1] else ReadingState.CURRENT

    async def oldest_readings(self, *, before_ms: int, limit: int) -> list[str]:
        """Return the addresses whose reading is older than this, oldest first."""
        old = [(known[2], address) for address, known in self._readings.items() if known[2] < before_ms]
        return [address for _, address in sorted(old)[:limit]]

    async def chain_head(self) -> BlockRef | None:
        """Return the last applied block."""
        return self._head

    async def recent_headers(self) -> list[BlockRef]:
        """Return the last applied blocks, newest first."""
        return [self._headers[number] for number in sorted(self._headers, reverse=True)]

    async def to_recheck(self) -> list[SettlementRecord]:
        """Return mined settlements whose block is not the one that the watcher applied."""
        mined = (SettlementState.MINED, SettlementState.CONFIRMED, SettlementState.MISMATCHED)
        hashes = {header.number: header.block_hash for header in self._headers.values()}
        if not hashes:
            return []
        found = [
            (row.block_number, row)
            for row in self._ordered()
            if row.state in mined and row.block_number is not None and row.block_number >= min(hashes)
            and hashes.get(row.block_number) != row.block_hash
        ]  # fmt: skip
        return [row for _, row in sorted(found, key=lambda each: each[0])]

    async def without_settlement(self, hashes: Sequence[str]) -> frozenset[str]:
        """Return which of these sessionIdHashes have neither a settlement that counts nor an adopted payment."""
        return frozenset(
            each for each in hashes if not self._has_settlement(each) and not self.payments.is_adopted(each)
        )

    async def written_off(self, hashes: Sequence[str]) -> frozenset[str]:
        """Return which of these sessionIdHashes have a settlement that was written off, and no adopted payment."""
        given_up = {
            row.session_id_hash for row in self._settlements.values() if row.state is SettlementState.WRITTEN_OFF
        }
        return frozenset(each for each in hashes if each in given_up and not self.payments.is_adopted(each))

    async def relayers(self) -> frozenset[str]:
        """Return the addresses of all keys that have signed settlements of this ledger."""
        return frozenset(self._keys)

    async def books_read_through(self) -> int | None:
        """Return the last block whose events are in the journal or wait for finality."""
        return self.journal.read_through

    async def own_transactions(self, tx_hashes: Sequence[str]) -> dict[str, OwnTransaction]:
        """Return which of these transactions our keys have signed."""
        found: dict[str, OwnTransaction] = {}
        for tx_hash in tx_hashes:
            sessions = self._sessions_of_tx.get(tx_hash)
            if sessions:
                found[tx_hash] = OwnTransaction(tx_hash=tx_hash, session_id=sessions[0] if len(sessions) == 1 else None)
        return found

    async def without_entry(self, *, after: str = "", limit: int) -> list[str]:
        """Return transactions that our keys have signed and whose gas is not in the journal."""
        known = {each.entry.tx_hash for each in await self.journal.entries(limit=10**9) if each.entry.log_index < 0}
        return sorted(tx_hash for tx_hash in self._sessions_of_tx if tx_hash not in known and tx_hash > after)[:limit]

    def _session_of_hash(self, hashed: str) -> str | None:
        hold = self._hold_by_hash.get(hashed)
        return None if hold is None else hold.session_id

    def _has_settlement(self, hashed: str) -> bool:
        return any(
            row.session_id_hash == hashed and row.state is not SettlementState.WRITTEN_OFF
            for row in self._settlements.values()
        )

    def _has_settlement_or_will(self, hashed: str) -> bool:
        if self._has_settlement(hashed):
            return True
        hold = self._hold_by_hash.get(hashed)
        session = None if hold is None else self.session_of(hold.session_id)
        return session is not None and not session.is_terminal

    def _sum_settled(self) -> UnknownPayments:
        on_chain = (SettlementState.MINED, SettlementState.CONFIRMED, SettlementState.MISMATCHED)
        paid = [row.on_chain or row.payload for row in self._settlements.values() if row.state in on_chain]
        return UnknownPayments(count=len(paid), amount_micro=sum(each.to_amount + each.fee_amount for each in paid))

    async def mark_checked(self, *, now_ms: int) -> None:
        """Record that every block up to the endpoint's head is applied."""
        self._checked_at_ms = now_ms
        self.payments.is_read = True

    async def apply_blocks(self, application: BlockApplication, *, now_ms: int) -> None:
        """Write events, readings, released holds and the cursor."""
        if self._head != application.previous:
            raise CursorMovedError(f"the cursor is {self._head}, not {application.previous}")
        recorded = {payment.session_id_hash for payment in application.unknown}
        given_up = await self.written_off([hashed for hashed, _ in application.settled])
        if any(hashed not in recorded and not self.payments.is_found(hashed) for hashed in given_up):
            raise WrittenOffMeanwhileError("a settlement was written off after its payment was read")
        for event in application.events:
            self._add_event(event, now_ms)
        for reading in application.readings:
            known = self._readings.get(reading.address)
            if known is None or known[1] or known[0].block_number <= reading.block_number:
                self._readings[reading.address] = (reading, False, now_ms)
                if known is None or _funds(known[0]) != _funds(reading):
                    self._wake(reading.address, partial(reading.covers, now_ms=now_ms), WOKEN_MAX, now_ms)
        for hashed, number in application.settled:
            hold = self._hold_by_hash.get(hashed)
            if hold is not None and (hold.state is not HoldState.RELEASED or hold.released_block is not None):
                hold.state, hold.released_block = HoldState.RELEASED, number
        for header in application.headers:
            self._headers[header.number] = header
        for number in [old for old in self._headers if old < application.first_header]:
            del self._headers[number]
        self._final = min(application.head.number, max(self._final, application.final))
        self._head, self._checked_at_ms = application.head, now_ms
        for row in self._events.values():
            is_deep = row.event.block_number <= application.confirmed_block
            if row.confirmed_at_ms is None and not row.removed and is_deep:
                row.confirmed_at_ms = now_ms
                if row.event.kind is LedgerEventKind.DEPOSIT:
                    self._note_deposit(row)
        self.payments.apply(application.unknown, application.confirmed_block)
        self.journal.apply(application, self._final, now_ms)

    def _note_deposit(self, row: _Event) -> None:
        for workspace_id, (address, _) in self._tracked.items():
            if address == row.event.address:
                self.webhooks.note_deposit(self._ledger_row(workspace_id, row))

    def _add_event(self, event: ChainEvent, now_ms: int) -> None:
        key = (event.tx_hash, event.log_index, event.address)
        row = self._events.get(key)
        if row is None:
            self._events[key] = _Event(len(self._events) + 1, event, now_ms)
            return
        if row.removed or row.event.block_hash != event.block_hash:
            row.confirmed_at_ms = None
        row.event, row.removed = event, False

    async def roll_back(self, ancestor: BlockRef, *, cursor: BlockRef, now_ms: int) -> None:
        """Remove everything that was applied above the common ancestor."""
        if self._head != cursor:
            raise CursorMovedError(f"the cursor is {self._head}, not {cursor}")
        for row in self._events.values():
            if row.event.block_number > ancestor.number and not row.removed:
                row.removed, row.confirmed_at_ms = True, None
        for hold in self._holds.values():
            if hold.released_block is not None and hold.released_block > ancestor.number:
                hold.state, hold.released_block = HoldState.CHARGE, None
        for address, (reading, _, updated_at_ms) in self._readings.items():
            if reading.block_number > ancestor.number:
                self._readings[address] = (reading, True, updated_at_ms)
        self._headers = {number: item for number, item in self._headers.items() if number <= ancestor.number}
        self.payments.roll_back(ancestor.number)
        self.journal.roll_back(ancestor.number, now_ms)
        self._head, self._checked_at_ms = ancestor, now_ms
        self._final = min(self._final, ancestor.number)

    async def spent_by_key(self, key_id: str, *, now_ms: int) -> MicroUsdc:
        """Return what counts against the limit of an API key on this UTC day."""
        return MicroUsdc(self._spent_by_key(key_id, now_ms))

    async def wallet(self, workspace_id: str) -> WalletView | None:
        """Return the wallet of a workspace."""
        if workspace_id not in self._tracked:
            return None
        address, tracked_at_ms = self._tracked[workspace_id]
        held = self._held(address)
        known = self._readings.get(address)
        if known is None:
            return WalletView(
                workspace_id=workspace_id, address=address, balance_micro=0, allowance_micro=0, held_micro=held,
                last_sync_block=0, updated_at_ms=tracked_at_ms,
            )  # fmt: skip
        reading, is_outdated, updated_at_ms = known
        head = reading.block_number if is_outdated or self._head is None else self._head.number
        return WalletView(
            workspace_id=workspace_id, address=address, balance_micro=reading.balance_micro,
            allowance_micro=reading.allowance_micro, held_micro=held, last_sync_block=head,
            updated_at_ms=updated_at_ms, limits=reading.limits,
        )  # fmt: skip

    def _held(self, payer: str) -> int:
        return sum(
            hold.amount for hold in self._holds.values() if hold.payer == payer and hold.state is not HoldState.RELEASED
        )

    async def ledger(self, workspace_id: str, query: LedgerQuery) -> list[LedgerRow]:
        """Return the workspace's ledger rows, newest first."""
        if workspace_id not in self._tracked:
            return []
        address = self._tracked[workspace_id][0]
        rows = [row for row in self._events.values() if row.event.address == address and _is_asked(row, query)]
        rows.sort(key=lambda row: row.sequence, reverse=True)
        found = [self._ledger_row(workspace_id, row) for row in rows]
        return [row for row in found if query.session_id in (None, row.session_id)][: query.limit]

    def _ledger_row(self, workspace_id: str, row: _Event) -> LedgerRow:
        event = row.event
        assert self._head is not None, "rows are added with a block"
        hold = None if event.session_id_hash is None else self._hold_by_hash.get(event.session_id_hash)
        return LedgerRow(
            sequence=row.sequence, workspace_id=workspace_id, kind=event.kind, tx_hash=event.tx_hash,
            log_index=event.log_index, block_number=event.block_number, block_hash=event.block_hash,
            from_address=event.from_address, to_address=event.to_address, amount_micro=event.amount_micro,
            session_id=None if hold is None else hold.session_id, confirmed_at_ms=row.confirmed_at_ms,
            removed=row.removed,
            confirmations=0 if row.removed else max(0, self._head.number - event.block_number + 1),
            created_at_ms=row.created_at_ms,
        )  # fmt: skip

    async def usage(self, workspace_id: str, side: UsageSide, *, first_day: int, last_day: int) -> list[UsageDay]:
        """Return a workspace's ended sessions by day."""
        days: dict[int, UsageDay] = {}
        for row in self._settlements.values():
            payload, day = row.payload, row.composed_at_ms // DAY_MS
            party = payload.consumer_workspace_id if side is UsageSide.CONSUMER else payload.operator_workspace_id
            if party != workspace_id or not first_day <= day <= last_day or row.state is SettlementState.WRITTEN_OFF:
                continue
            before = days.get(day, UsageDay(day, 0, 0, 0, 0))
            days[day] = UsageDay(
                day,
                before.sessions + 1,
                before.clean_seconds + payload.chargeable_seconds,
                before.to_amount + payload.to_amount,
                before.fee_amount + payload.fee_amount,
            )
        return [days[day] for day in sorted(days)]

    async def statement(self, workspace_id: str, month: Month) -> WorkspaceStatement:
        """Return what the journal says of a workspace's sessions in a month."""
        head = None if self._head is None else self._head.number
        return self.statements.read(workspace_id, month, list(self._settlements.values()), self._checked_at_ms, head)

    async def invoice(self, statement: WorkspaceStatement, *, now_ms: int) -> Invoice:
        """Return the invoice of a closed month."""
        return self.statements.invoice(statement, now_ms)

    async def take_from_faucet(self, address: str, amount_micro: int, *, daily_max: int, now_ms: int) -> int | None:
        """Count test money for a wallet."""
        left = await self.left_of_faucet(address, daily_max=daily_max, now_ms=now_ms) - amount_micro
        if left < 0:
            return None
        self._given[address.lower(), now_ms // DAY_MS] = daily_max - left
        return left

    async def left_of_faucet(self, address: str, *, daily_max: int, now_ms: int) -> int:
        """Return what the faucet may still give to a wallet."""
        return max(0, daily_max - self._given.get((address.lower(), now_ms // DAY_MS), 0))

    async def take_hold(
        self, session_id: str, payer: str, amount_micro: int, policy: FundsPolicy, *, now_ms: int
    ) -> bool:
        """Reserve an amount for a session."""
        return self.take_hold_now(session_id, payer, amount_micro, policy, is_authorized=False, now_ms=now_ms)

    def take_hold_now(
        self,
        session_id: str,
        payer: str,
        amount_micro: int,
        policy: FundsPolicy,
        *,
        is_authorized: bool,
        now_ms: int,
    ) -> bool:
        """Reserve an amount for a session, as part of another store's step. An authorization needs no allowance."""
        if session_id in self._holds:
            return True
        wallet = payer.lower()
        if policy is FundsPolicy.ENFORCED and not self._may_hold(wallet, amount_micro, is_authorized, now_ms):
            return False
        hold = _Hold(session_id, wallet, amount_micro, HoldState.OPEN)
        self._holds[session_id] = self._hold_by_hash[session_id_hash(session_id)] = hold
        return True

    def is_funded(self, session_id: str, *, is_authorized: bool, now_ms: int) -> bool:
        """Return whether the payer's wallet covers the hold of a session, and all its holds together."""
        hold = self._holds.get(session_id)
        known = None if hold is None else self._readings.get(hold.payer)
        if hold is None or known is None or known[1]:
            return False
        return _payable(known[0], hold.amount, is_authorized, now_ms) >= max(hold.amount, self._held(hold.payer))

    def is_unpaid(self, payer: str) -> bool:
        """Return whether the charge of an earlier session of the payer could not be collected."""
        refused = (SettlementState.REVERTED, SettlementState.FAILED)
        return any(
            row.state in refused and row.lane is SettlementLane.RETRY and row.total > 0
            for row in self._settlements.values()
            if row.payload.from_address.lower() == payer.lower()
        )

    def has_paid(self, payer: str, now_ms: int) -> bool:
        """Return whether a charge of the payer was confirmed within `DEMAND_PAID_MS`."""
        return any(
            row.state is SettlementState.CONFIRMED
            and row.total > 0
            and row.confirmed_at_ms is not None
            and row.confirmed_at_ms >= now_ms - DEMAND_PAID_MS
            for row in self._settlements.values()
            if row.payload.from_address.lower() == payer.lower()
        )

    def has_unfunded(self, payer: str, amount: int, most: int, now_ms: int) -> bool:
        """Return whether the payer has `most` open sessions and its wallet covers no further hold; False if 0."""
        wallet = payer.lower()
        opened = sum(hold.payer == wallet and hold.state is HoldState.OPEN for hold in self._holds.values())
        if not most or opened < most:
            return False
        known = self._readings.get(wallet)
        if known is None or known[1]:
            return True
        reading = known[0]
        return not reading.covers(amount, now_ms) or reading.spendable(now_ms) < amount + self._held(wallet)

    def why_not_grown(self, session_id: str, growth: HoldGrowth, *, now_ms: int) -> RejectedWhy | None:
        """Return why a session's hold may not grow by the payer's funds; None if it may."""
        hold = self._holds[session_id]
        if growth.is_taken:
            return None
        if self.is_unpaid(hold.payer):
            return RejectedWhy.UNPAID
        known = self._readings.get(hold.payer)
        reading = None if known is None or known[1] else known[0]
        is_covered = (
            reading is not None
            and reading.covers(hold.amount + growth.amount, now_ms)
            and reading.spendable(now_ms) >= self._held(hold.payer) + growth.amount
        )
        others = sum(
            other.payer == hold.payer and other.state is HoldState.OPEN
            for other in self._holds.values()
            if other is not hold
        )
        if growth.unfunded_max and others >= growth.unfunded_max and not is_covered:
            return RejectedWhy.UNFUNDED
        is_stale = self._checked_at_ms < now_ms - STALE_MS_MAX
        return RejectedWhy.FUNDS if growth.is_enforced and (is_stale or not is_covered) else None

    def left_by_payer(self, session_id: str, request: HoldRequest | HoldGrowth, *, now_ms: int) -> MicroUsdc | None:
        """Return what the payer's limits on the settlement contract leave for a session, if a request exceeds it."""
        payer = request.payer_address.lower()
        limits, hold = self._limits(payer), self._holds.get(session_id)
        if limits is None:
            return None
        own = 0 if hold is None else hold.amount
        left = limits.left_for_session(self._held(payer) - own, now_ms)
        return MicroUsdc(left) if own + request.amount > left else None

    def free_beside_holds(self, session_id: str, payer: str, *, is_authorized: bool, now_ms: int) -> MicroUsdc | None:
        """Return what a payer's last reading leaves for a session beside its other holds; None if it is unknown."""
        known, hold = self._readings.get(payer.lower()), self._holds.get(session_id)
        if known is None or known[1] or self._checked_at_ms < now_ms - STALE_MS_MAX:
            return None
        funds = known[0].balance_micro if is_authorized else known[0].spendable(now_ms)
        own = 0 if hold is None else hold.amount
        return MicroUsdc(max(0, funds - self._held(payer.lower()) + own))

    def _limits(self, wallet: str) -> SpendingLimits | None:
        known = self._readings.get(wallet)
        return None if known is None or known[1] else known[0].limits

    def grow_hold_now(self, session_id: str, amount: int) -> None:
        """Add to the hold of a session, as part of another store's step."""
        self._holds[session_id].amount += amount

    def left_for_key(self, spending: KeySpending, amount: int, *, now_ms: int, session_id: str) -> int | None:
        """Return what is left of the limits of an API key if a session's hold would exceed them; None if it fits.

        Args:
            amount: What is added to the session's hold.
        """
        per_session, per_day = spending.limits.per_session, spending.limits.per_day
        held = self._holds.get(session_id)
        amount += 0 if held is None else held.amount
        spent = self._spent_by_key(spending.key_id, now_ms, beside=held)
        left = [limit for limit in (per_session, None if per_day is None else per_day - spent) if limit is not None]
        return max(0, min(left)) if left and amount > min(left) else None

    def _spent_by_key(self, key_id: str, now_ms: int, *, beside: object = None) -> int:
        return sum(
            hold.amount
            for hold in self._holds.values()
            if hold is not beside
            and hold.key == (key_id, now_ms // DAY_MS)
            and (hold.state is not HoldState.RELEASED or hold.released_block is not None)
        )

    def count_for_key(self, session_id: str, spending: KeySpending, *, now_ms: int) -> None:
        """Count a session's hold against the limits of an API key."""
        self._holds[session_id].key = (spending.key_id, now_ms // DAY_MS)

    def _may_hold(self, wallet: str, amount: int, is_authorized: bool, now_ms: int) -> bool:
        known = self._readings.get(wallet)
        if known is None or known[1] or self._checked_at_ms < now_ms - STALE_MS_MAX:
            return False
        return _payable(known[0], amount, is_authorized, now_ms) - self._held(wallet) >= amount

    def _covers(self, wallet: str, amount: int, now_ms: int) -> bool | None:
        known = self._readings.get(wallet)
        return None if known is None or known[1] else known[0].covers(amount, now_ms)

    async def spendable(self, payers: Sequence[str], *, now_ms: int) -> dict[str, int]:
        """Return the amount that could be charged to each wallet now, by its last reading."""
        known = {payer: self._readings.get(payer.lower()) for payer in payers}
        return {payer: found[0].spendable(now_ms) for payer, found in known.items() if found and not found[1]}

    async def funds_beside_charges(self, payers: Sequence[str], *, now_ms: int) -> dict[str, int]:
        """Return what each payer could pay besides its charges that are not settled yet."""
        charges: dict[str, int] = {}
        for hold in self._holds.values():
            if hold.state is HoldState.CHARGE:
                charges[hold.payer] = charges.get(hold.payer, 0) + hold.amount
        spendable = await self.spendable(payers, now_ms=now_ms)
        return {payer: amount - charges.get(payer.lower(), 0) for payer, amount in spendable.items()}

    async def proofs(self, session_ids: Sequence[str]) -> dict[str, SessionProof]:
        """Return the recorded ends and holds of sessions."""
        found: dict[str, SessionProof] = {}
        for session_id in session_ids:
            session, hold = self.session_of(session_id), self._holds.get(session_id)
            if session is not None and hold is not None and hold.state is HoldState.CHARGE:
                proof = SessionProof.of(session, held_of=hold.payer, held_micro=hold.amount)
                if proof is not None:
                    found[session_id] = proof
        return found

    async def live_holds(self, payer: str | None = None) -> list[LiveHold]:
        """Return the holds of LIVE sessions, of one payer or of all."""
        found: list[LiveHold] = []
        for hold in self._holds.values():
            session = self.session_of(hold.session_id)
            is_wanted = hold.state is HoldState.OPEN and payer in (None, hold.payer)
            if is_wanted and session is not None and session.state is SessionState.LIVE:
                limits = self._limits(hold.payer)
                limit = None if limits is None else limits.per_session
                found.append(LiveHold(hold.session_id, hold.payer, hold.amount, limit))
        return found

    async def charge_hold(self, session_id: str, charged_micro: int) -> None:
        """Lower the hold to the charge."""
        self.charge_hold_now(session_id, charged_micro)

    def charge_hold_now(self, session_id: str, charged_micro: int) -> None:
        """Lower the hold to the charge, as part of another store's step."""
        hold = self._holds.get(session_id)
        if hold is not None and hold.state is HoldState.OPEN:
            hold.amount, hold.state = charged_micro, HoldState.CHARGE

    async def release_hold(self, session_id: str) -> None:
        """Release the hold."""
        self.release_hold_now(session_id)

    def release_hold_now(self, session_id: str) -> None:
        """Release the hold, as part of another store's step."""
        hold = self._holds.get(session_id)
        if hold is not None and hold.state is not HoldState.CHARGE:
            hold.state = HoldState.RELEASED

    def _is_paid(self, row: SettlementRecord) -> bool:
        hold, hashed = self._holds.get(row.session_id), row.session_id_hash
        was_released = hold is not None and hold.released_block is not None
        return was_released or self.payments.is_adopted(hashed) or self.payments.is_found(hashed)

    def _give_up_hold(self, row: SettlementRecord) -> None:
        hold = self._holds.get(row.session_id)
        if hold is not None:
            hold.state = HoldState.RELEASED
        self.journal.write_off(row.payload, self._head, row.updated_at_ms)


def _funds(reading: WalletReading) -> tuple[object, ...]:
    """Return the numbers that decide whether a charge is covered."""
    return reading.balance_micro, reading.allowance_micro, reading.limits


def _is_asked(row: _Event, query: LedgerQuery) -> bool:
    if query.before_sequence is not None and row.sequence >= query.before_sequence:
        return False
    if query.kinds and row.event.kind not in query.kinds:
        return False
    if query.from_block is not None and row.event.block_number < query.from_block:
        return False
    return query.to_block is None or row.event.block_number <= query.to_block


def _payable(reading: WalletReading, amount: int, is_authorized: bool, now_ms: int) -> int:
    """Return what a wallet can pay for a session of this amount. An authorization needs no allowance."""
    if reading.limits is not None and amount > reading.limits.per_session:
        return 0
    return reading.balance_micro if is_authorized else reading.spendable(now_ms)
