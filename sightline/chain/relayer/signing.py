"""Selects the settlements that are due, checks them against the chain and the database, and signs them."""

from collections import Counter
from collections.abc import Sequence
from typing import final

import structlog

from sightline.chain.fees import Fees
from sightline.chain.relayer.confirmation import Confirmation
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.preflight import Examination, PreflightVerdict, examine
from sightline.chain.relayer.proof import why_unproved
from sightline.chain.relayer.sender import Sender
from sightline.chain.rpc.client import JsonRpc
from sightline.ports.clock import Clock
from sightline.ports.ledger import (
    Attempt,
    ChainIdentity,
    SettlementLane,
    SettlementOutbox,
    SettlementRecord,
    SettlementState,
)

log = structlog.get_logger()

WAITS_FOR_FUNDS = "the payer's other settlements take what the wallet has"


@final
class Signing:
    """Signs for one key, lane by lane: payable settlements, then some retries, then free sessions in a batch."""

    def __init__(
        self, rpc: JsonRpc, outbox: SettlementOutbox, sender: Sender, confirmation: Confirmation, relayer: str,
        identity: ChainIdentity, options: RelayerOptions, *, clock: Clock,
    ) -> None:  # fmt: skip
        self._rpc = rpc
        self._outbox = outbox
        self._sender = sender
        self._confirmation = confirmation
        self._relayer = relayer
        self._identity = identity
        self._options = options
        self._clock = clock
        self._retried_at_ms: int | None = None

    async def sign_due(self) -> tuple[bool, bool]:
        """Sign the settlements that are due.

        Returns:
            Whether any was signed; whether payable settlements may remain that did not fit in this round.
        """
        options = self._options
        in_flight = await self._outbox.settlements_in_flight(limit=options.in_flight_max)
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

    async def _due(self, lane: SettlementLane, limit: int) -> list[SettlementRecord]:
        return await self._outbox.settlements_due(lane, now_ms=self._clock.now_ms(), limit=limit)

    async def _sign(self, records: Sequence[SettlementRecord], in_flight: Sequence[SettlementRecord]) -> bool:
        seen, approved = await self._approved(records)
        if seen is None:
            return False
        return await self._sign_and_send(await self._covered(approved, in_flight), seen)

    async def _sign_free(self, now_ms: int) -> bool:
        """Settle free sessions in one batch: they move no token, so a transaction for each would waste gas."""
        if now_ms - await self._outbox.free_batch_at_ms(self._relayer) < self._options.free_every_ms:
            return False
        seen, approved = await self._approved(await self._due(SettlementLane.FREE, self._options.free_batch_max))
        return seen is not None and await self._sign_and_send(approved, seen, is_free_batch=True)

    async def _approved(self, records: Sequence[SettlementRecord]) -> tuple[Examination | None, list[SettlementRecord]]:
        """Return the settlements that the contract would accept and the database proves; schedule or adopt the rest."""
        if not records:
            return None, []
        seen = await examine(self._rpc, self._identity, self._relayer, records)
        approved: list[SettlementRecord] = []
        for record, finding in zip(records, seen.findings, strict=True):
            if finding.verdict is PreflightVerdict.SIGN:
                approved.append(record)
            elif finding.verdict is PreflightVerdict.WAIT:
                await self._sender.put_aside(record, SettlementState.FAILED, finding.reason)
            else:
                await self._confirmation.adopt(record)
        if seen.base_fee_wei + seen.fees.tip_wei > self._options.fee_cap_wei:
            for record in approved:
                await self._sender.put_aside(record, SettlementState.COMPOSED, "the chain's fees are over the cap")
            return None, []
        return seen, await self._proved(approved)

    async def _proved(self, records: Sequence[SettlementRecord]) -> list[SettlementRecord]:
        if not records:
            return []
        proofs = await self._outbox.proofs([record.session_id for record in records])
        proved: list[SettlementRecord] = []
        for record in records:
            fault = why_unproved(record, proofs.get(record.session_id))
            if fault is None:
                proved.append(record)
            else:
                log.error("settlement_not_proved", session_id=record.session_id, reason=fault)
                await self._sender.put_aside(record, SettlementState.FAILED, fault)
        return proved

    async def _covered(
        self, records: Sequence[SettlementRecord], in_flight: Sequence[SettlementRecord]
    ) -> list[SettlementRecord]:
        """Return the settlements that the payers' wallets cover together with those in flight.

        Each settlement alone may be covered, but for a wallet with one dollar and a thousand charges of one dollar the
        relayer would pay for 999 reverting transactions. The first settlement of a payer is always returned, because
        `examine` has already simulated it. A wallet that was not read yet sets no limit.
        """
        payers = {record.payload.from_address for record in records}
        spendable = await self._outbox.spendable(sorted(payers), now_ms=self._clock.now_ms()) if payers else {}
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

    async def _sign_and_send(
        self, records: Sequence[SettlementRecord], seen: Examination, *, is_free_batch: bool = False
    ) -> bool:
        if not records:
            return False
        fees = Fees(max_fee_wei=min(seen.fees.max_fee_wei, self._options.fee_cap_wei), tip_wei=seen.fees.tip_wei)
        now_ms = self._clock.now_ms()
        nonce = max(await self._outbox.next_nonce(self._relayer), seen.mined_nonce)
        attempts: list[Attempt]
        if is_free_batch and self._options.settles_many:
            attempts = self._sender.sign_many(records, nonce, fees, now_ms)
        else:
            attempts = [self._sender.sign(record, nonce + at, fees, now_ms) for at, record in enumerate(records)]
        await self._outbox.store_signed(self._relayer, attempts, now_ms=now_ms, is_free_batch=is_free_batch)
        await self._sender.send(attempts)
        return True
