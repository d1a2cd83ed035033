"""The settlement outbox in memory, with the same contract as on Postgres."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sightline.domain.settlement import SettlementPayload
from sightline.domain.value import replace
from sightline.ports.ledger import (
    SETTLEMENTS_IN_FLIGHT,
    SETTLEMENTS_WAITING,
    Attempt,
    Inclusion,
    NonceTakenError,
    SettlementLane,
    SettlementRecord,
    SettlementState,
)
from sightline.system.keccak import session_id_hash
from simulation.memory.webhooks import MemoryWebhooks

_FINAL = frozenset({SettlementState.CONFIRMED, SettlementState.MISMATCHED, SettlementState.WRITTEN_OFF})


@dataclass(slots=True)
class _Key:
    next_nonce: int = 0
    free_batch_at_ms: int = 0


class MemoryOutbox(ABC):
    """Implements `SettlementOutbox` with dictionaries."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Create an empty outbox. `now_ms` times the webhooks, as the database's clock does on Postgres."""
        self.webhooks = MemoryWebhooks(now_ms)
        """Gets confirmed settlements and deposits, and from the store that uses this ledger all other events."""
        self._settlements: dict[str, SettlementRecord] = {}
        self._keys: dict[str, _Key] = {}
        self._signers: dict[str, str] = {}
        self._sessions_of_tx: dict[str, list[str]] = {}
        self._nonces: set[tuple[str, int]] = set()

    @abstractmethod
    def _covers(self, wallet: str, amount: int, now_ms: int) -> bool | None:
        """Return whether a wallet covers one charge by its last reading; None when it was not read."""

    @abstractmethod
    def _is_paid(self, row: SettlementRecord) -> bool:
        """Return whether the watcher has seen a payment of the session on the chain."""

    @abstractmethod
    def _give_up_hold(self, row: SettlementRecord) -> None:
        """Release the hold of a settlement that is written off, in any state, and write it in the journal."""

    async def compose(self, payload: SettlementPayload, *, now_ms: int) -> None:
        """Add the settlement of an ended session."""
        self.compose_now(payload, now_ms=now_ms)

    def compose_now(self, payload: SettlementPayload, *, now_ms: int) -> None:
        """Add the settlement of an ended session, as part of another store's step."""
        total = payload.to_amount + payload.fee_amount
        is_covered = self._covers(payload.from_address.lower(), total, now_ms)
        self._settlements.setdefault(
            payload.session_id,
            SettlementRecord(
                session_id=payload.session_id, session_id_hash=session_id_hash(payload.session_id), payload=payload,
                state=SettlementState.COMPOSED, reason=None, tx_hash=None, block_number=None, block_hash=None,
                confirmed_at_ms=None, retry_at_ms=now_ms, tries=0, notified=False, composed_at_ms=now_ms,
                updated_at_ms=now_ms,
                lane=(
                    SettlementLane.FREE if total == 0
                    else SettlementLane.RETRY if is_covered is False
                    else SettlementLane.PAYABLE
                ),
            ),
        )  # fmt: skip

    async def settlement(self, session_id: str) -> SettlementRecord | None:
        """Return the settlement of one session."""
        return self._settlements.get(session_id)

    async def settlements(self, states: Sequence[SettlementState], *, limit: int) -> list[SettlementRecord]:
        """Return settlements in these states, oldest first."""
        return [record for record in self._ordered() if record.state in states][:limit]

    async def has_work(self, *, now_ms: int) -> bool:
        """Return whether a settlement is in flight, or due in any lane."""
        return any(
            row.state in SETTLEMENTS_IN_FLIGHT or (row.state in SETTLEMENTS_WAITING and row.retry_at_ms <= now_ms)
            for row in self._settlements.values()
        )

    async def in_flight(self, *, limit: int) -> list[SettlementRecord]:
        """Return settlements whose transaction may still be mined or is not deep enough, oldest first."""
        rows = (row for row in self._settlements.values() if row.state in SETTLEMENTS_IN_FLIGHT)
        return heapq.nsmallest(limit, rows, key=lambda row: (row.composed_at_ms, row.session_id))

    async def due(self, lane: SettlementLane, *, now_ms: int, limit: int) -> list[SettlementRecord]:
        """Return settlements of a lane whose retry time has passed, longest due first."""
        assert limit >= 0, "Postgres refuses a negative limit"
        rows = (row for row in self._waiting(lane) if row.retry_at_ms <= now_ms)
        return heapq.nsmallest(limit, rows, key=lambda row: (row.retry_at_ms, row.composed_at_ms, row.session_id))

    def _waiting(self, lane: SettlementLane) -> list[SettlementRecord]:
        return [row for row in self._settlements.values() if row.lane is lane and row.state in SETTLEMENTS_WAITING]

    def _wake(self, payer: str, covers: Callable[[int], bool], limit: int, now_ms: int) -> None:
        """Move settlements between lanes after the payer's wallet changed."""
        for row in self._waiting(SettlementLane.PAYABLE):
            if row.payload.from_address.lower() == payer and not covers(row.total):
                self._settlements[row.session_id] = replace(row, lane=SettlementLane.RETRY)
        waiting = [row for row in self._waiting(SettlementLane.RETRY) if row.payload.from_address.lower() == payer]
        woken = heapq.nsmallest(limit, (row for row in waiting if covers(row.total)), key=lambda row: row.total)
        for row in woken:
            self._settlements[row.session_id] = replace(row, lane=SettlementLane.PAYABLE, retry_at_ms=now_ms)

    async def of_transaction(self, tx_hash: str) -> list[SettlementRecord]:
        """Return the settlements of one transaction."""
        return [self._settlements[session_id] for session_id in self._sessions_of_tx.get(tx_hash, [])]

    async def unnotified(self) -> list[SettlementRecord]:
        """Return CONFIRMED settlements that were not reported yet."""
        return [
            record for record in self._ordered() if record.state is SettlementState.CONFIRMED and not record.notified
        ]

    async def above_block(self, block_number: int) -> list[SettlementRecord]:
        """Return MINED, CONFIRMED and MISMATCHED settlements in blocks above this one."""
        mined = (SettlementState.MINED, SettlementState.CONFIRMED, SettlementState.MISMATCHED)
        return [
            row
            for row in self._ordered()
            if row.state in mined and row.block_number is not None and row.block_number > block_number
        ]

    async def attempts_at(self, relayer: str, nonce: int) -> list[Attempt]:
        """Return every transaction signed with this nonce, oldest first."""
        rows = [self._settlements[session_id] for session_id, used in self._nonces if used == nonce]
        return [
            attempt
            for row in rows
            for attempt in row.attempts
            if (self._signers.get(attempt.tx_hash), attempt.nonce) == (relayer.lower(), nonce)
        ]

    def _ordered(self) -> list[SettlementRecord]:
        return sorted(self._settlements.values(), key=lambda record: (record.composed_at_ms, record.session_id))

    async def free_batch_at_ms(self, relayer: str) -> int:
        """Return when this key last signed a batch of free sessions."""
        return self._keys.setdefault(relayer.lower(), _Key()).free_batch_at_ms

    async def next_nonce(self, relayer: str) -> int:
        """Return the nonce after the last stored transaction of this key."""
        return self._keys.setdefault(relayer.lower(), _Key()).next_nonce

    async def store_signed(
        self, relayer: str, attempts: Sequence[Attempt], *, now_ms: int, is_free_batch: bool = False
    ) -> None:
        """Store signed transactions and use up their nonces."""
        key = self._keys.setdefault(relayer.lower(), _Key())
        fresh = [item for item in attempts if (item.session_id, item.nonce) not in self._nonces]
        if any(attempt.nonce < key.next_nonce for attempt in fresh):
            raise NonceTakenError(f"the next nonce is {key.next_nonce}")
        if any(self._settlements[item.session_id].state in SETTLEMENTS_IN_FLIGHT for item in fresh):
            raise NonceTakenError("a settlement is in flight under another nonce")
        if is_free_batch:
            key.free_batch_at_ms = now_ms
        for attempt in attempts:
            row = self._settlements[attempt.session_id]
            self._signers[attempt.tx_hash] = relayer.lower()
            self._nonces.add((attempt.session_id, attempt.nonce))
            if attempt.tx_hash not in {old.tx_hash for old in row.attempts}:
                row = replace(row, attempts=(*row.attempts, attempt))
                self._sessions_of_tx.setdefault(attempt.tx_hash, []).append(attempt.session_id)
            if row.state is not SettlementState.MINED and row.state not in _FINAL:
                row = replace(
                    row, state=SettlementState.SIGNED, reason=None, tx_hash=attempt.tx_hash, retry_at_ms=0,
                    block_number=None, block_hash=None, updated_at_ms=now_ms,
                )  # fmt: skip
            self._settlements[attempt.session_id] = row
            key.next_nonce = max(key.next_nonce, attempt.nonce + 1)

    async def mark_sent(self, tx_hashes: Sequence[str], *, now_ms: int) -> None:
        """Mark these transactions as accepted by the node."""
        for session_id in {each for tx_hash in tx_hashes for each in self._sessions_of_tx.get(tx_hash, [])}:
            row = self._settlements[session_id]
            attempts = tuple(
                replace(old, sent_at_ms=now_ms) if old.tx_hash in tx_hashes and old.sent_at_ms is None else old
                for old in row.attempts
            )
            row = replace(row, attempts=attempts)
            if row.state in (SettlementState.SIGNED, SettlementState.SENT):
                row = replace(row, state=SettlementState.SENT, reason=None, updated_at_ms=now_ms)
            elif row.state is SettlementState.STUCK:
                row = replace(row, updated_at_ms=now_ms)
            self._settlements[session_id] = row

    async def mark_mined(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Mark the settlement as included in a block that is not deep enough yet."""
        row = self._settlements[session_id]
        if row.state not in _FINAL:
            self._settlements[session_id] = replace(
                row, state=SettlementState.MINED, reason=None, tx_hash=inclusion.tx_hash,
                block_number=inclusion.block_number, block_hash=inclusion.block_hash, log_index=inclusion.log_index,
                updated_at_ms=now_ms,
            )  # fmt: skip

    async def mark_confirmed(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Mark the settlement as included at the configured depth."""
        row = self._settlements[session_id]
        place = (SettlementState.CONFIRMED, inclusion.tx_hash, inclusion.block_hash)
        if (row.state, row.tx_hash, row.block_hash) == place:
            return
        self._settlements[session_id] = replace(
            row, state=SettlementState.CONFIRMED, reason=None, tx_hash=inclusion.tx_hash, tries=0,
            block_number=inclusion.block_number, block_hash=inclusion.block_hash, log_index=inclusion.log_index,
            updated_at_ms=now_ms,
            confirmed_at_ms=now_ms if row.confirmed_at_ms is None else row.confirmed_at_ms,
            notified=row.notified and row.tx_hash == inclusion.tx_hash,
        )  # fmt: skip
        if (row.state, row.tx_hash) != place[:2]:
            self.webhooks.note_settlement(self._settlements[session_id])

    async def mark_unmined(self, session_id: str, *, reason: str, now_ms: int) -> None:
        """Mark the settlement as in no block after a reorganisation."""
        row = self._settlements[session_id]
        if row.state in (SettlementState.MINED, SettlementState.CONFIRMED, SettlementState.MISMATCHED):
            self._settlements[session_id] = replace(
                row, state=SettlementState.SENT, reason=reason, block_number=None, block_hash=None, log_index=None,
                on_chain=None, updated_at_ms=now_ms,
            )  # fmt: skip

    async def mark_waiting(
        self, session_id: str, state: SettlementState, *, reason: str, retry_at_ms: int, now_ms: int,
        lane: SettlementLane | None = None,
    ) -> None:  # fmt: skip
        """Put the settlement into a waiting state with the reason."""
        row = self._settlements[session_id]
        if row.state not in _FINAL:
            self._settlements[session_id] = replace(
                row, state=state, reason=reason, retry_at_ms=retry_at_ms, tries=row.tries + 1, updated_at_ms=now_ms,
                lane=lane or row.lane,
            )  # fmt: skip

    async def mark_mismatched(
        self, session_id: str, inclusion: Inclusion, on_chain: SettlementPayload, *, now_ms: int
    ) -> None:
        """Mark the settlement as settled on the chain with other parties or numbers."""
        before = self._settlements[session_id]
        self._settlements[session_id] = replace(
            before, state=SettlementState.MISMATCHED, tx_hash=inclusion.tx_hash, tries=0,
            reason="the contract settled other amounts", block_number=inclusion.block_number,
            block_hash=inclusion.block_hash, log_index=inclusion.log_index, on_chain=on_chain, updated_at_ms=now_ms,
            confirmed_at_ms=now_ms,
        )  # fmt: skip
        if (before.state, before.tx_hash) != (SettlementState.MISMATCHED, inclusion.tx_hash):
            self.webhooks.note_settlement(self._settlements[session_id])

    async def write_off(self, session_id: str, *, reason: str, now_ms: int) -> SettlementRecord | None:
        """Write off a waiting settlement permanently and release its hold."""
        row = self._settlements.get(session_id)
        if row is not None and row.state in SETTLEMENTS_WAITING and not self._is_paid(row):
            row = replace(row, state=SettlementState.WRITTEN_OFF, reason=reason, updated_at_ms=now_ms)
            self._settlements[session_id] = row
            self._give_up_hold(row)
        return row

    async def mark_notified(self, session_id: str) -> None:
        """Mark the settlement as reported."""
        self._settlements[session_id] = replace(self._settlements[session_id], notified=True)
