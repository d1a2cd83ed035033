"""The relayer: takes settlements from the outbox onto the chain, each once, whatever the chain's endpoint does.

What makes it safe:
- A transaction is stored, with its nonce, before it is broadcast. After a crash the same bytes are sent again.
- No answer is not "no": such a transaction is looked for and sent again, and never signed under another nonce while
  it may still mine.
- Every hash is kept; any of them may mine. A replacement has the same nonce.
- Before signing, the contract is asked whether the session is settled already: then that transaction is adopted.
- The contract itself settles a session once. Should all else fail, a second transaction reverts.

A settlement that the contract refuses waits as FAILED or REVERTED with the reason, and is tried again with back-off.

This file holds the rounds. `resubmission` handles transactions that are in no block; `sender` signs and broadcasts.
"""

from collections.abc import Sequence
from typing import Final, final

import structlog
import trio

from sightline.chain.fees import Fees
from sightline.chain.relayer.inclusion import Included, look
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.preflight import Verdict, examine, find_settled, why_reverted
from sightline.chain.relayer.resubmission import REORGANISED, Resubmission
from sightline.chain.relayer.sender import Sender
from sightline.chain.rpc.client import JsonRpc, backoff_ms
from sightline.chain.signer import Signer
from sightline.domain.errors import ChainUnavailableError, OutcomeUnknownError, StoreUnavailableError
from sightline.ports.chain import ChainChangedError, OnSettlement, SettlementUpdate
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.ledger import (
    BlockRef,
    ChainIdentity,
    NonceTakenError,
    SettlementOutbox,
    SettlementRecord,
    SettlementState,
)

log = structlog.get_logger()

IN_FLIGHT: Final = (
    SettlementState.SIGNED,
    SettlementState.SENT,
    SettlementState.STUCK,
    SettlementState.MINED,
)


@final
class Relayer:
    """One key's writer. `run` it once; `notify` it when a settlement was composed."""

    def __init__(
        self, rpc: JsonRpc, outbox: SettlementOutbox, signer: Signer, identity: ChainIdentity,
        options: RelayerOptions, *, clock: Clock, ids: Ids,
    ) -> None:  # fmt: skip
        self._rpc = rpc
        self._outbox = outbox
        self._signer = signer
        self._identity = identity
        self._options = options
        self._clock = clock
        self._ids = ids
        self._sender = Sender(rpc, outbox, signer, identity, options, clock=clock, ids=ids)
        self._resubmission = Resubmission(rpc, outbox, self._sender, signer.address, options, clock=clock)
        self._holder = options.holder or ids.uuid()
        self._wake = trio.Event()
        self._recheck_above: int | None = None
        self._applied: dict[int, str] = {}
        self._failures = 0
        self.round_at_ms = 0
        self.halted_because: str | None = None

    def notify(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def recheck(self, ancestor_number: int) -> None:
        """A reorganisation left nothing above this block certain."""
        known = self._recheck_above
        self._recheck_above = ancestor_number if known is None else min(known, ancestor_number)
        self._wake.set()

    def compare(self, headers: Sequence[BlockRef]) -> None:
        """These blocks are the chain: a settlement said to be in another block of their numbers has lost it.

        The watcher tells of reorganisations of blocks that it had applied; we may have seen a receipt before it.
        """
        self._applied.update({header.number: header.block_hash for header in headers})

    async def run(
        self, on_settlement: OnSettlement, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Work until cancelled.

        Cancellation: harmless at any point; the next run goes on from the outbox.
        """
        self._recheck_above = 0
        task_status.started()
        try:
            while True:
                self._wake = trio.Event()
                wait_ms = await self._round_with_back_off(on_settlement)
                with trio.move_on_after(wait_ms / 1000):
                    await self._wake.wait()
        finally:
            with trio.move_on_after(1) as patience:
                patience.shield = True
                await self._give_up_lease()

    async def _give_up_lease(self) -> None:
        try:
            now_ms = self._clock.now_ms()
            await self._outbox.take_lease(self._signer.address, self._holder, now_ms=now_ms, lease_ms=0)
        except (StoreUnavailableError, OutcomeUnknownError) as error:
            log.info("relayer_lease_runs_out", reason=str(error))

    async def _round_with_back_off(self, on_settlement: OnSettlement) -> int:
        try:
            is_busy = await self.work_once(on_settlement)
        except (ChainUnavailableError, StoreUnavailableError, OutcomeUnknownError, NonceTakenError) as error:
            self._failures += 1
            log.warning("relayer_round_failed", reason=str(error), failures=self._failures)
        except ChainChangedError as error:
            self._failures += 1
            self.halted_because = str(error)
            log.critical("relayer_halted", reason=str(error))
        else:
            self._failures = 0
            self.round_at_ms = self._clock.now_ms()
            self.halted_because = None
            return self._options.poll_ms if is_busy else self._options.idle_ms
        wait = backoff_ms(self._ids, self._failures, least_ms=self._options.poll_ms, most_ms=10_000)
        return self._options.poll_ms + wait

    async def work_once(self, on_settlement: OnSettlement) -> bool:
        """One round: follow what is on its way, sign what is due, tell what is confirmed.

        Returns:
            Whether something is still on its way.
        """
        now_ms = self._clock.now_ms()
        lease_ms = self._options.lease_ms
        if not await self._outbox.take_lease(self._signer.address, self._holder, now_ms=now_ms, lease_ms=lease_ms):
            log.info("relayer_waits_for_lease", relayer=self._signer.address)
            return False
        await self._recheck()
        await self._follow()
        if await self._sign_due():
            await self._follow()
            self._wake.set()  # there may be more than fits one round
        await self._tell(on_settlement)
        return bool(await self._outbox.settlements(IN_FLIGHT, limit=1))

    async def _tell(self, on_settlement: OnSettlement) -> None:
        for record in await self._outbox.unnotified():
            assert record.tx_hash is not None
            assert record.confirmed_at_ms is not None
            await on_settlement(
                SettlementUpdate(
                    session_id=record.session_id,
                    state=record.state,
                    tx_hash=record.tx_hash,
                    confirmed_at_ms=record.confirmed_at_ms,
                )
            )
            await self._outbox.mark_notified(record.session_id)

    # What a reorganisation may have taken.

    async def _recheck(self) -> None:
        applied = dict(self._applied)
        if applied:
            for record in await self._outbox.settlements_above(min(applied) - 1):
                number = record.block_number
                if number is not None and record.block_hash != applied.get(number, record.block_hash):
                    self.recheck(number - 1)
        for number, block_hash in applied.items():
            if self._applied.get(number) == block_hash:
                del self._applied[number]
        above = self._recheck_above
        if above is None:
            return
        head = int(await self._rpc.call("eth_blockNumber"), 16)
        records = await self._outbox.settlements_above(max(above, head - self._options.recheck_blocks))
        if records:
            sighting = await look(self._rpc, self._signer.address, records)
            for record in records:
                await self._reconsider(record, sighting.found.get(record.session_id))
        if self._recheck_above == above:
            self._recheck_above = None

    async def _reconsider(self, record: SettlementRecord, found: Included | None) -> None:
        if found is None and not record.attempts:
            # Adopted from somebody else's transaction, of which we have no bytes to send again.
            found = await self._adopted(record)
        if found is None:
            now_ms = self._clock.now_ms()
            log.error("settlement_reorganised", session_id=record.session_id, tx_hash=record.tx_hash)
            await self._outbox.mark_unmined(record.session_id, reason=REORGANISED, now_ms=now_ms)
        elif (found.inclusion.block_hash, found.inclusion.tx_hash) != (record.block_hash, record.tx_hash):
            await self._outbox.mark_confirmed(record.session_id, found.inclusion, now_ms=self._clock.now_ms())

    async def _adopted(self, record: SettlementRecord) -> Included | None:
        inclusion = await find_settled(self._rpc, self._identity, record.session_id_hash, self._options.start_block)
        return None if inclusion is None else Included(inclusion=inclusion, succeeded=True, depth=0)

    # What is on its way.

    async def _follow(self) -> None:
        records = await self._outbox.settlements(IN_FLIGHT, limit=self._options.batch_max)
        if not records:
            return
        sighting = await look(self._rpc, self._signer.address, records)
        missing: list[SettlementRecord] = []
        for record in records:
            found = sighting.found.get(record.session_id)
            if found is None:
                missing.append(record)
            else:
                await self._record_inclusion(record, found)
        if missing:
            await self._resubmission.resubmit(missing, sighting)

    async def _record_inclusion(self, record: SettlementRecord, found: Included) -> None:
        now_ms = self._clock.now_ms()
        inclusion = found.inclusion
        if found.depth < self._options.depth:
            if found.succeeded and (record.state, record.block_hash) != (SettlementState.MINED, inclusion.block_hash):
                await self._outbox.mark_mined(record.session_id, inclusion, now_ms=now_ms)
        elif found.succeeded:
            await self._outbox.mark_confirmed(record.session_id, inclusion, now_ms=now_ms)
            log.info("settlement_confirmed", session_id=record.session_id, tx_hash=inclusion.tx_hash)
        else:
            reason = await why_reverted(self._rpc, self._identity, self._signer.address, record, inclusion.block_number)
            await self._sender.put_aside(record, SettlementState.REVERTED, reason)

    # What is due.

    async def _sign_due(self) -> bool:
        now_ms = self._clock.now_ms()
        in_flight = await self._outbox.settlements(IN_FLIGHT, limit=self._options.batch_max)
        room = self._options.batch_max - len(in_flight)
        if room <= 0:
            return False
        records = await self._outbox.settlements_due(now_ms=now_ms, limit=room)
        if not records:
            return False
        seen = await examine(self._rpc, self._identity, self._signer.address, records)
        to_sign: list[SettlementRecord] = []
        for record, finding in zip(records, seen.findings, strict=True):
            if finding.verdict is Verdict.SIGN:
                to_sign.append(record)
            elif finding.verdict is Verdict.WAIT:
                await self._sender.put_aside(record, SettlementState.FAILED, finding.reason)
            else:
                await self._adopt(record)
        if seen.base_fee_wei + seen.fees.tip_wei > self._options.fee_cap_wei:
            for record in to_sign:
                await self._sender.put_aside(record, SettlementState.COMPOSED, "the chain's fees are over the cap")
            return False
        fees = Fees(max_fee_wei=min(seen.fees.max_fee_wei, self._options.fee_cap_wei), tip_wei=seen.fees.tip_wei)
        return await self._sign_and_send(to_sign, fees, seen.mined_nonce)

    async def _adopt(self, record: SettlementRecord) -> None:
        found = await self._adopted(record)
        if found is None:
            await self._sender.put_aside(
                record, SettlementState.FAILED, "settled on the chain, and the event is not found"
            )
        else:
            log.info("settlement_adopted", session_id=record.session_id, tx_hash=found.inclusion.tx_hash)
            await self._outbox.mark_confirmed(record.session_id, found.inclusion, now_ms=self._clock.now_ms())

    async def _sign_and_send(self, records: Sequence[SettlementRecord], fees: Fees, mined_nonce: int) -> bool:
        if not records:
            return False
        now_ms = self._clock.now_ms()
        first = max(await self._outbox.next_nonce(self._signer.address), mined_nonce)
        attempts = [self._sender.sign(record, first + number, fees, now_ms) for number, record in enumerate(records)]
        await self._outbox.store_signed(self._signer.address, attempts, now_ms=now_ms)
        await self._sender.send(attempts)
        return True
