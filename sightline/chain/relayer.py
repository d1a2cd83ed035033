"""The relayer: takes settlements from the outbox onto the chain, each once, whatever the chain's endpoint does.

What makes it safe:
- A transaction is stored, with its nonce, before it is broadcast. After a crash the same bytes are sent again.
- No answer is not "no": such a transaction is looked for and sent again, and never signed under another nonce while
  it may still mine.
- Every hash is kept; any of them may mine. A replacement has the same nonce.
- Before signing, the contract is asked whether the session is settled already: then that transaction is adopted.
- The contract itself settles a session once. Should all else fail, a second transaction reverts.

A settlement that the contract refuses waits as FAILED or REVERTED with the reason, and is tried again with back-off.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, final

import structlog
import trio

from sightline.chain.broadcast import FEES_TOO_LOW, broadcast
from sightline.chain.fees import Fees, bumped, suggested
from sightline.chain.inclusion import Included, Sighting, look
from sightline.chain.preflight import Verdict, examine, find_settled, settle_call, why_reverted
from sightline.chain.relayer_options import RelayerOptions
from sightline.chain.rpc import JsonRpc, backoff_ms
from sightline.chain.signer import Signer
from sightline.domain.errors import ChainUnavailableError, OutcomeUnknownError, StoreUnavailableError
from sightline.ports.chain import ChainChangedError, OnSettlement, SettlementUpdate
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.ledger import (
    Attempt,
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
REORGANISED: Final = "reorganised"
STUCK_ATTEMPTS: Final = 3
"""A settlement is called STUCK from this many transactions on."""


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
        self._holder = options.holder or ids.uuid()
        self._wake = trio.Event()
        self._recheck_above: int | None = None
        self._applied: dict[int, str] = {}
        self._failures = 0
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
            await self._pursue(missing, sighting)

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
            await self._wait(record, SettlementState.REVERTED, reason)

    async def _pursue(self, records: Sequence[SettlementRecord], sighting: Sighting) -> None:
        now_ms = self._clock.now_ms()
        resend: list[Attempt] = []
        for record in records:
            if record.state is SettlementState.MINED:
                log.warning("settlement_left_its_block", session_id=record.session_id, tx_hash=record.tx_hash)
                await self._outbox.mark_unmined(record.session_id, reason=REORGANISED, now_ms=now_ms)
            if not record.attempts:
                await self._wait(record, SettlementState.FAILED, "the adopted transaction left the chain")
                continue
            newest = record.attempts[-1]
            if newest.nonce < sighting.mined_nonce:
                await self._nonce_went_elsewhere(record, now_ms)
            elif now_ms >= record.retry_at_ms:
                resend += await self._next_sending(record, sighting, now_ms)
        await self._send(resend)
        await self._close_gap(sighting, {record.session_id for record in records})

    async def _nonce_went_elsewhere(self, record: SettlementRecord, now_ms: int) -> None:
        """The nonce is used and no receipt of ours is there: another writer, or an endpoint with two opinions.

        Only after it has stayed so for a while is the settlement examined anew; the contract keeps it from settling
        twice even if the endpoint had lied.
        """
        first_seen = record.tries == 0 or record.state is not SettlementState.STUCK
        if first_seen:
            wait_ms = self._options.resend_ms
            await self._outbox.mark_waiting(
                record.session_id, SettlementState.STUCK, reason="its nonce was used by another transaction",
                retry_at_ms=now_ms + wait_ms, now_ms=now_ms,
            )  # fmt: skip
        elif now_ms >= record.retry_at_ms:
            await self._wait(record, SettlementState.FAILED, "its nonce was used by another transaction")

    async def _next_sending(self, record: SettlementRecord, sighting: Sighting, now_ms: int) -> list[Attempt]:
        """The transaction to broadcast now: the newest again, or a replacement, or none yet."""
        newest = record.attempts[-1]
        patience_ms = self._options.replace_ms << (len(record.attempts) - 1)
        is_overdue = newest.sent_at_ms is not None and now_ms - newest.signed_at_ms >= patience_ms
        if is_overdue and not await self._is_ours(newest):
            await self._wait(record, SettlementState.FAILED, "signed with another key, and it does not mine")
            return []
        if is_overdue or (record.reason == FEES_TOO_LOW and await self._is_ours(newest)):
            replacement = await self._replace(record, sighting, now_ms)
            if replacement is not None:
                return [replacement]
        was_sent = newest.sent_at_ms is not None and record.state is not SettlementState.SIGNED
        if was_sent and record.reason != REORGANISED and now_ms - record.updated_at_ms < self._options.resend_ms:
            return []
        return [newest]

    async def _is_ours(self, attempt: Attempt) -> bool:
        """Whether this key signed it. Another key's nonce is not ours to use again."""
        ours = await self._outbox.attempts_at(self._signer.address, attempt.nonce)
        return attempt.tx_hash in {item.tx_hash for item in ours}

    async def _replace(self, record: SettlementRecord, sighting: Sighting, now_ms: int) -> Attempt | None:
        """Sign a replacement with the same nonce and higher fees; None when they would pass the cap."""
        newest = record.attempts[-1]
        (tip,) = await self._rpc.batch([("eth_maxPriorityFeePerGas", [])])
        fees = bumped(Fees(max_fee_wei=newest.max_fee_wei, tip_wei=newest.tip_wei), suggested(sighting.head, tip))
        if fees.max_fee_wei > self._options.fee_cap_wei:
            await self._outbox.mark_waiting(
                record.session_id, SettlementState.STUCK, reason="a replacement would pass the fee cap",
                retry_at_ms=now_ms + self._options.resend_ms, now_ms=now_ms,
            )  # fmt: skip
            return None
        replacement = self._signed(record, newest.nonce, fees, now_ms)
        await self._outbox.store_signed(self._signer.address, [replacement], now_ms=now_ms)
        log.warning(
            "settlement_replaced", session_id=record.session_id, tx_hash=replacement.tx_hash, nonce=newest.nonce,
            max_fee_wei=fees.max_fee_wei,
        )  # fmt: skip
        if len(record.attempts) + 1 >= STUCK_ATTEMPTS:
            reason = f"no receipt after {len(record.attempts)} transactions"
            await self._outbox.mark_waiting(
                record.session_id, SettlementState.STUCK, reason=reason, retry_at_ms=0, now_ms=now_ms
            )
        return replacement

    async def _close_gap(self, sighting: Sighting, pursued: AbstractSet[str]) -> None:
        """Send again what the next nonce was used for, when nobody else does.

        After a reorganisation the transaction of a settlement that has moved on (reverted, or settled by another
        transaction) may be needed again for its nonce alone: it does no harm, the contract settles once. And of many
        settlements that lost their block, the one that all others wait for may be beyond one round's batch.
        """
        nonce = sighting.mined_nonce
        if nonce >= await self._outbox.next_nonce(self._signer.address):
            return
        attempts = await self._outbox.attempts_at(self._signer.address, nonce)
        if not attempts:
            log.error("relayer_nonce_unknown", nonce=nonce)
            return
        if attempts[-1].session_id not in pursued:
            log.warning("relayer_fills_nonce", nonce=nonce, tx_hash=attempts[-1].tx_hash)
            await self._rpc.send_once([("eth_sendRawTransaction", ["0x" + attempts[-1].raw.hex()])])

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
                await self._wait(record, SettlementState.FAILED, finding.reason)
            else:
                await self._adopt(record)
        if seen.base_fee_wei + seen.fees.tip_wei > self._options.fee_cap_wei:
            for record in to_sign:
                await self._wait(record, SettlementState.COMPOSED, "the chain's fees are over the cap")
            return False
        fees = Fees(max_fee_wei=min(seen.fees.max_fee_wei, self._options.fee_cap_wei), tip_wei=seen.fees.tip_wei)
        return await self._sign_and_send(to_sign, fees, seen.mined_nonce)

    async def _adopt(self, record: SettlementRecord) -> None:
        found = await self._adopted(record)
        if found is None:
            await self._wait(record, SettlementState.FAILED, "settled on the chain, and the event is not found")
        else:
            log.info("settlement_adopted", session_id=record.session_id, tx_hash=found.inclusion.tx_hash)
            await self._outbox.mark_confirmed(record.session_id, found.inclusion, now_ms=self._clock.now_ms())

    async def _sign_and_send(self, records: Sequence[SettlementRecord], fees: Fees, mined_nonce: int) -> bool:
        if not records:
            return False
        now_ms = self._clock.now_ms()
        first = max(await self._outbox.next_nonce(self._signer.address), mined_nonce)
        attempts = [self._signed(record, first + number, fees, now_ms) for number, record in enumerate(records)]
        await self._outbox.store_signed(self._signer.address, attempts, now_ms=now_ms)
        await self._send(attempts)
        return True

    def _signed(self, record: SettlementRecord, nonce: int, fees: Fees, now_ms: int) -> Attempt:
        tx_hash, raw = self._signer.sign(
            chain_id=self._identity.chain_id, nonce=nonce, to=self._identity.settlement_address,
            data=settle_call(record), gas=self._options.settle_gas, fees=fees,
        )  # fmt: skip
        return Attempt(
            session_id=record.session_id, nonce=nonce, tx_hash=tx_hash, raw=raw, max_fee_wei=fees.max_fee_wei,
            tip_wei=fees.tip_wei, signed_at_ms=now_ms,
        )  # fmt: skip

    async def _send(self, attempts: Sequence[Attempt]) -> None:
        """Broadcast, once each. Without an answer the rows stay as they are, and are looked for first next time."""
        if not attempts:
            return
        answers = await broadcast(self._rpc, attempts)
        now_ms = self._clock.now_ms()
        for attempt, refusal in answers.refused:
            retry_at_ms = now_ms + (0 if refusal == FEES_TOO_LOW else self._options.retry_ms_min)
            log.warning("broadcast_refused", session_id=attempt.session_id, reason=refusal)
            await self._outbox.mark_waiting(
                attempt.session_id, SettlementState.SIGNED, reason=refusal, retry_at_ms=retry_at_ms, now_ms=now_ms
            )
        if answers.taken:
            await self._outbox.mark_sent(answers.taken, now_ms=now_ms)

    async def _wait(self, record: SettlementRecord, state: SettlementState, reason: str) -> None:
        now_ms = self._clock.now_ms()
        options = self._options
        least = min(options.retry_ms_max, options.retry_ms_min << min(record.tries, 16))
        jitter = backoff_ms(self._ids, 0, least_ms=least, most_ms=options.retry_ms_max)
        log.warning(
            "settlement_waits", session_id=record.session_id, state=state.value, reason=reason, tries=record.tries + 1
        )
        await self._outbox.mark_waiting(
            record.session_id, state, reason=reason, retry_at_ms=now_ms + least // 2 + jitter // 2, now_ms=now_ms
        )
