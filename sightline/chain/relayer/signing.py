"""Selects the rows that are due, checks them against the chain and the database, and signs them."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Generic, final

import structlog
from typing_extensions import override

from sightline.chain.relayer.allowance import SettlementWork
from sightline.chain.relayer.confirmation import Confirmation
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.sender import Sender
from sightline.chain.relayer.work import ChainView, OutboxWork, PreflightVerdict
from sightline.ports.clock import Clock
from sightline.ports.ledger import (
    Attempt,
    RecordT,
    SettlementLane,
    SettlementOutbox,
    SettlementRecord,
    SettlementState,
)

log = structlog.get_logger()

WAITS_FOR_FUNDS = "the payer's other settlements take what the wallet has"


class Signing(ABC, Generic[RecordT]):
    """Signs the rows of one outbox that are due."""

    def __init__(
        self, work: OutboxWork[RecordT], sender: Sender[RecordT], confirmation: Confirmation[RecordT], relayer: str,
        options: RelayerOptions, *, clock: Clock,
    ) -> None:  # fmt: skip
        self._work = work
        self._outbox = work.outbox
        self._sender = sender
        self._confirmation = confirmation
        self._relayer = relayer
        self._options = options
        self._clock = clock

    @abstractmethod
    async def sign_due(self) -> tuple[bool, bool]:
        """Sign the rows that are due.

        Returns:
            Whether any was signed; whether rows may remain that did not fit in this round.
        """

    async def _due(self, lane: SettlementLane, limit: int) -> list[RecordT]:
        return await self._outbox.due(lane, now_ms=self._clock.now_ms(), limit=limit)

    async def _approved(self, records: Sequence[RecordT]) -> tuple[ChainView | None, list[RecordT]]:
        """Return the rows that the contract would accept and the database proves; schedule, adopt or drop the rest."""
        if not records:
            return None, []
        seen = await self._work.examine(self._relayer, records)
        approved: list[RecordT] = []
        for record, finding in zip(records, seen.findings, strict=True):
            match finding.verdict:
                case PreflightVerdict.SIGN:
                    approved.append(record)
                case PreflightVerdict.WAIT:
                    state = SettlementState.FAILED if finding.is_refused else SettlementState.COMPOSED
                    await self._sender.put_aside(record, state, finding.reason)
                case PreflightVerdict.ADOPT:
                    await self._confirmation.adopt(record)
                case PreflightVerdict.DROP:
                    await self._work.drop(record, now_ms=self._clock.now_ms())
        if seen.view.base_fee_wei + seen.view.fees.tip_wei > self._options.fee_cap_wei:
            for record in approved:
                await self._sender.put_aside(record, SettlementState.COMPOSED, "the chain's fees are over the cap")
            return None, []
        return seen.view, await self._proved(approved)

    async def _proved(self, records: Sequence[RecordT]) -> list[RecordT]:
        if not records:
            return []
        faults = await self._work.why_unproved(records)
        for record in records:
            fault = faults.get(record.session_id)
            if fault is not None:
                log.error("settlement_not_proved", session_id=record.session_id, reason=fault)
                await self._sender.put_aside(record, SettlementState.FAILED, fault)
        return [record for record in records if record.session_id not in faults]

    async def _sign_and_send(
        self, batches: Sequence[Sequence[RecordT]], view: ChainView, *, is_free_batch: bool = False
    ) -> bool:
        """Sign one transaction for each batch, store them together, and send them.

        A batch that the contract refuses at the estimate of its gas is scheduled for later.
        """
        calls = await self._sender.calls(batches)
        for batch, call in zip(batches, calls, strict=True):
            for record in batch if call.refusal is not None else ():
                await self._sender.put_aside(record, SettlementState.FAILED, call.refusal or "")
        sized = [(batch, call) for batch, call in zip(batches, calls, strict=True) if call.refusal is None]
        if not sized:
            return False
        fees = view.fees.at_most(self._options.fee_cap_wei)
        now_ms = self._clock.now_ms()
        nonce = max(await self._outbox.next_nonce(self._relayer), view.mined_nonce)
        attempts: list[Attempt] = []
        for position, (batch, call) in enumerate(sized):
            attempts += await self._sender.sign(batch, call, nonce + position, fees, now_ms)
        await self._outbox.store_signed(self._relayer, attempts, now_ms=now_ms, is_free_batch=is_free_batch)
        await self._sender.send(attempts)
        return True


@final
class AllowanceSigning(Signing[SettlementRecord]):
    """Signs settlements lane by lane: payable ones, then some retries, then free sessions in a batch."""

    def __init__(
        self, work: SettlementWork, outbox: SettlementOutbox, sender: Sender[SettlementRecord],
        confirmation: Confirmation[SettlementRecord], relayer: str, options: RelayerOptions, *, clock: Clock,
    ) -> None:  # fmt: skip
        super().__init__(work, sender, confirmation, relayer, options, clock=clock)
        self._settlements = outbox
        self._retried_at_ms: int | None = None

    @override
    async def sign_due(self) -> tuple[bool, bool]:
        options = self._options
        in_flight = await self._outbox.in_flight(limit=options.in_flight_max)
        charged = [record for record in in_flight if record.lane is not SettlementLane.FREE]
        room = options.batch_max - len(charged)
        payable_max = room - options.retry_batch_max
        signed = is_full = False
        if payable_max > 0:
            records = await self._due(SettlementLane.PAYABLE, payable_max)
            is_full = len(records) == payable_max
            signed = await self._sign(records, charged)
        now_ms = self._clock.now_ms()
        if room > 0 and (self._retried_at_ms is None or now_ms - self._retried_at_ms >= options.retry_every_ms):
            self._retried_at_ms = now_ms
            signed |= await self._sign(
                await self._due(SettlementLane.RETRY, min(room, options.retry_batch_max)), charged
            )
        if len(charged) == len(in_flight):
            signed |= await self._sign_free(now_ms)
        return signed, is_full

    async def _sign(self, records: Sequence[SettlementRecord], in_flight: Sequence[SettlementRecord]) -> bool:
        view, approved = await self._approved(records)
        if view is None:
            return False
        covered = await self._covered(approved, in_flight)
        return await self._sign_and_send([[record] for record in covered], view)

    async def _sign_free(self, now_ms: int) -> bool:
        """Settle free sessions in one batch: they move no token, so a transaction for each would waste gas."""
        if now_ms - await self._settlements.free_batch_at_ms(self._relayer) < self._options.free_every_ms:
            return False
        view, approved = await self._approved(await self._due(SettlementLane.FREE, self._options.free_batch_max))
        if view is None or not approved:
            return False
        batches = [approved] if self._options.settles_many else [[record] for record in approved]
        return await self._sign_and_send(batches, view, is_free_batch=True)

    async def _covered(
        self, records: Sequence[SettlementRecord], in_flight: Sequence[SettlementRecord]
    ) -> list[SettlementRecord]:
        """Return the settlements that the payers' wallets cover together with those in flight.

        Each settlement alone may be covered, but for a wallet with one dollar and a thousand charges of one dollar the
        relayer would pay for 999 reverting transactions. The first settlement of a payer is always returned, because
        `examine` has already simulated it. A wallet that was not read yet sets no limit.
        """
        payers = {record.payload.from_address for record in records}
        spendable = await self._settlements.spendable(sorted(payers), now_ms=self._clock.now_ms()) if payers else {}
        planned: Counter[str] = Counter()
        for record in in_flight:
            if record.state is not SettlementState.MINED:
                planned[record.payload.from_address] += record.total
        covered: list[SettlementRecord] = []
        for record in records:
            payer = record.payload.from_address
            is_first = planned[payer] == 0
            if is_first or payer not in spendable or planned[payer] + record.total <= spendable[payer]:
                planned[payer] += record.total
                covered.append(record)
            else:
                now_ms = self._clock.now_ms()
                await self._outbox.mark_waiting(
                    record.session_id, SettlementState.COMPOSED, reason=WAITS_FOR_FUNDS, lane=SettlementLane.RETRY,
                    retry_at_ms=now_ms + self._options.retry_ms_max_ours, now_ms=now_ms,
                )  # fmt: skip
        return covered


@final
class EscrowSigning(Signing[RecordT]):
    """Signs rows whose money is secured: holds one by one, captures in batches of up to `batch_max`."""

    def __init__(
        self, work: OutboxWork[RecordT], sender: Sender[RecordT], confirmation: Confirmation[RecordT], relayer: str,
        options: RelayerOptions, *, clock: Clock, batch_max: int, window_ms: int,
    ) -> None:  # fmt: skip
        """Args: window_ms: how long the first row of a batch waits for others, unless the batch is full."""
        super().__init__(work, sender, confirmation, relayer, options, clock=clock)
        self._batch_max = batch_max
        self._window_ms = window_ms

    @override
    async def sign_due(self) -> tuple[bool, bool]:
        records: list[RecordT] = []
        room = self._options.batch_max
        for lane in SettlementLane:
            records += await self._due(lane, room - len(records))
        if not records:
            return False, False
        oldest_ms = min(record.composed_at_ms for record in records)
        if len(records) < self._batch_max and self._clock.now_ms() - oldest_ms < self._window_ms:
            return False, False
        view, approved = await self._approved(records)
        if view is None:
            return False, False
        batches = [approved[at : at + self._batch_max] for at in range(0, len(approved), self._batch_max)]
        return await self._sign_and_send(batches, view), len(records) == room
