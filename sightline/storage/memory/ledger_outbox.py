"""The relayer's outbox in memory, with the promises of the Postgres one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sightline.domain.settlement import SettlementPayload
from sightline.ports.ledger import Attempt, Inclusion, NonceTakenError, SettlementRecord, SettlementState
from sightline.system.keccak import session_id_hash

_WAITING = (SettlementState.COMPOSED, SettlementState.REVERTED, SettlementState.FAILED)


@dataclass(slots=True)
class _Key:
    next_nonce: int = 0
    holder: str | None = None
    lease_until_ms: int = 0


class MemoryOutbox:
    """Settlements and their transactions in dictionaries."""

    def __init__(self) -> None:
        self._settlements: dict[str, SettlementRecord] = {}
        self._keys: dict[str, _Key] = {}
        self._signers: dict[str, str] = {}
        self._nonces: set[tuple[str, int]] = set()

    async def compose(self, payload: SettlementPayload, *, now_ms: int) -> None:
        """Record what is to be settled."""
        self.compose_now(payload, now_ms=now_ms)

    def compose_now(self, payload: SettlementPayload, *, now_ms: int) -> None:
        """Record what is to be settled, inside another store's step."""
        self._settlements.setdefault(
            payload.session_id,
            SettlementRecord(
                session_id=payload.session_id, session_id_hash=session_id_hash(payload.session_id), payload=payload,
                state=SettlementState.COMPOSED, reason=None, tx_hash=None, block_number=None, block_hash=None,
                confirmed_at_ms=None, retry_at_ms=0, tries=0, notified=False, composed_at_ms=now_ms,
                updated_at_ms=now_ms,
            ),
        )  # fmt: skip

    async def settlement(self, session_id: str) -> SettlementRecord | None:
        """The row of one session."""
        return self._settlements.get(session_id)

    async def settlements(self, states: Sequence[SettlementState], *, limit: int = 1000) -> list[SettlementRecord]:
        """Rows in these states, oldest first."""
        return [record for record in self._ordered() if record.state in states][:limit]

    async def settlements_due(self, *, now_ms: int, limit: int) -> list[SettlementRecord]:
        """Rows that wait for a (new) transaction and whose retry time has come."""
        rows = [item for item in self._ordered() if item.state in _WAITING and item.retry_at_ms <= now_ms]
        return rows[:limit]

    async def unnotified(self) -> list[SettlementRecord]:
        """CONFIRMED rows whose news has not been taken."""
        return [
            record for record in self._ordered() if record.state is SettlementState.CONFIRMED and not record.notified
        ]

    async def settlements_above(self, block_number: int) -> list[SettlementRecord]:
        """MINED and CONFIRMED rows in blocks above this one."""
        mined = (SettlementState.MINED, SettlementState.CONFIRMED)
        return [
            row
            for row in self._ordered()
            if row.state in mined and row.block_number is not None and row.block_number > block_number
        ]

    async def attempts_at(self, relayer: str, nonce: int) -> list[Attempt]:
        """The transactions ever signed with this nonce, oldest first."""
        rows = self._settlements.values()
        return [
            attempt
            for row in rows
            for attempt in row.attempts
            if (self._signers.get(attempt.tx_hash), attempt.nonce) == (relayer.lower(), nonce)
        ]

    def _ordered(self) -> list[SettlementRecord]:
        return sorted(self._settlements.values(), key=lambda record: (record.composed_at_ms, record.session_id))

    async def take_lease(self, relayer: str, holder: str, *, now_ms: int, lease_ms: int) -> bool:
        """Become or stay the one writer for this key."""
        key = self._keys.setdefault(relayer.lower(), _Key())
        if key.holder not in (None, holder) and key.lease_until_ms > now_ms:
            return False
        key.holder, key.lease_until_ms = holder, now_ms + lease_ms
        return True

    async def next_nonce(self, relayer: str) -> int:
        """The nonce after the last stored transaction of this key."""
        return self._keys.setdefault(relayer.lower(), _Key()).next_nonce

    async def store_signed(self, relayer: str, attempts: Sequence[Attempt], *, now_ms: int) -> None:
        """Keep signed transactions and use up their nonces."""
        key = self._keys.setdefault(relayer.lower(), _Key())
        fresh = [item for item in attempts if (item.session_id, item.nonce) not in self._nonces]
        if any(attempt.nonce < key.next_nonce for attempt in fresh):
            raise NonceTakenError(f"the next nonce is {key.next_nonce}")
        for attempt in attempts:
            row = self._settlements[attempt.session_id]
            self._signers[attempt.tx_hash] = relayer.lower()
            self._nonces.add((attempt.session_id, attempt.nonce))
            if attempt.tx_hash not in {old.tx_hash for old in row.attempts}:
                row = replace(row, attempts=(*row.attempts, attempt))
            if row.state not in (SettlementState.MINED, SettlementState.CONFIRMED):
                row = replace(
                    row, state=SettlementState.SIGNED, reason=None, tx_hash=attempt.tx_hash, retry_at_ms=0,
                    block_number=None, block_hash=None, updated_at_ms=now_ms,
                )  # fmt: skip
            self._settlements[attempt.session_id] = row
            key.next_nonce = max(key.next_nonce, attempt.nonce + 1)

    async def mark_sent(self, tx_hashes: Sequence[str], *, now_ms: int) -> None:
        """The node took these."""
        for session_id, row in self._settlements.items():
            if not {attempt.tx_hash for attempt in row.attempts} & set(tx_hashes):
                continue
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
        """In a block, not yet deep enough."""
        row = self._settlements[session_id]
        if row.state is not SettlementState.CONFIRMED:
            self._settlements[session_id] = replace(
                row, state=SettlementState.MINED, reason=None, tx_hash=inclusion.tx_hash,
                block_number=inclusion.block_number, block_hash=inclusion.block_hash, updated_at_ms=now_ms,
            )  # fmt: skip

    async def mark_confirmed(self, session_id: str, inclusion: Inclusion, *, now_ms: int) -> None:
        """Deep enough."""
        row = self._settlements[session_id]
        place = (SettlementState.CONFIRMED, inclusion.tx_hash, inclusion.block_hash)
        if (row.state, row.tx_hash, row.block_hash) == place:
            return
        self._settlements[session_id] = replace(
            row, state=SettlementState.CONFIRMED, reason=None, tx_hash=inclusion.tx_hash, tries=0,
            block_number=inclusion.block_number, block_hash=inclusion.block_hash, updated_at_ms=now_ms,
            confirmed_at_ms=now_ms if row.confirmed_at_ms is None else row.confirmed_at_ms,
            notified=row.notified and row.tx_hash == inclusion.tx_hash,
        )  # fmt: skip

    async def mark_unmined(self, session_id: str, *, reason: str, now_ms: int) -> None:
        """A reorganisation took the block away."""
        row = self._settlements[session_id]
        if row.state in (SettlementState.MINED, SettlementState.CONFIRMED):
            self._settlements[session_id] = replace(
                row, state=SettlementState.SENT, reason=reason, block_number=None, block_hash=None,
                updated_at_ms=now_ms,
            )  # fmt: skip

    async def mark_waiting(
        self, session_id: str, state: SettlementState, *, reason: str, retry_at_ms: int, now_ms: int
    ) -> None:
        """Into a side state with the reason."""
        row = self._settlements[session_id]
        if row.state is not SettlementState.CONFIRMED:
            self._settlements[session_id] = replace(
                row, state=state, reason=reason, retry_at_ms=retry_at_ms, tries=row.tries + 1, updated_at_ms=now_ms
            )

    async def mark_notified(self, session_id: str) -> None:
        """The news was taken."""
        self._settlements[session_id] = replace(self._settlements[session_id], notified=True)
