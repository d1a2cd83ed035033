"""Resubmits signed transactions that are in no block: broadcasts them again or replaces them.

A transaction that may still be mined keeps its nonce, and its replacement has the same nonce.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Generic, final

import rlp
import structlog

from sightline.chain.fees import ABOUT_FEES, bumped, suggested
from sightline.chain.relayer.broadcast import FEES_TOO_LOW
from sightline.chain.relayer.inclusion import Sighting
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.sender import Sender
from sightline.chain.relayer.work import ContractCall, HoldMissingError, OutboxWork
from sightline.chain.rpc.client import JsonRpc
from sightline.chain.signer import Fees
from sightline.chain.signing_process import SignerUnavailableError
from sightline.ports.clock import Clock
from sightline.ports.ledger import Attempt, RecordT, SettlementState, TransactionOutbox

log = structlog.get_logger()

REORGANISED: Final = "reorganised"
NONCE_USED: Final = "its nonce was used by another transaction"
STUCK_ATTEMPTS: Final = 3
"""Number of signed transactions from which a settlement is marked STUCK."""


@final
class Resubmission(Generic[RecordT]):
    """Resubmits the transactions of one relayer key."""

    def __init__(
        self, work: OutboxWork[RecordT], sender: Sender[RecordT], relayer: str, options: RelayerOptions, *, clock: Clock
    ) -> None:
        self._rpc = work.rpc
        self._outbox = work.outbox
        self._sender = sender
        self._relayer = relayer
        self._options = options
        self._clock = clock

    async def resubmit(self, records: Sequence[RecordT], sighting: Sighting) -> None:
        """Broadcast again, replace, or schedule for signing each settlement that is due.

        Settlements of one batch share a transaction, which is handled once.
        """
        now_ms = self._clock.now_ms()
        resend: list[Attempt] = []
        handled: set[str] = set()
        for record in records:
            if record.state is SettlementState.MINED:
                log.warning("settlement_left_its_block", session_id=record.session_id, tx_hash=record.tx_hash)
                await self._outbox.mark_unmined(record.session_id, reason=REORGANISED, now_ms=now_ms)
            if not record.attempts:
                await self._sender.put_aside(record, SettlementState.FAILED, "the adopted transaction left the chain")
                continue
            newest = record.attempts[-1]
            if newest.nonce < sighting.mined_nonce:
                await self._nonce_went_elsewhere(record, now_ms)
            elif now_ms >= record.retry_at_ms and newest.tx_hash not in handled:
                handled.add(newest.tx_hash)
                resend += await self._next_sending(record, sighting, now_ms)
        await self._sender.send(resend)

    async def _nonce_went_elsewhere(self, record: RecordT, now_ms: int) -> None:
        """Handle a nonce that is used on the chain while none of our transactions has a receipt.

        Another program used the key, or the endpoint's answers contradict each other. The settlement is examined again
        only if this is still so after a wait. Even if the endpoint's answers were wrong, the contract does not settle
        twice.
        """
        # A row can be STUCK for another reason, such as its fees.
        if (record.state, record.reason) != (SettlementState.STUCK, NONCE_USED):
            wait_ms = self._options.resend_ms
            await self._outbox.mark_waiting(
                record.session_id, SettlementState.STUCK, reason=NONCE_USED,
                retry_at_ms=now_ms + wait_ms, now_ms=now_ms,
            )  # fmt: skip
        elif now_ms >= record.retry_at_ms:
            await self._sender.put_aside(record, SettlementState.FAILED, NONCE_USED)

    async def _next_sending(self, record: RecordT, sighting: Sighting, now_ms: int) -> list[Attempt]:
        """Return what to broadcast now: the newest transaction again, a replacement, or nothing."""
        newest = record.attempts[-1]
        patience_ms = self._options.replace_ms << (len(record.attempts) - 1)
        is_overdue = newest.sent_at_ms is not None and now_ms - newest.signed_at_ms >= patience_ms
        if is_overdue and not await self._is_ours(newest):
            await self._sender.put_aside(
                record, SettlementState.FAILED, "signed with another key, and it does not mine"
            )
            return []
        if is_overdue or (record.reason == FEES_TOO_LOW and await self._is_ours(newest)):
            try:
                replacement = await self._replace(record, sighting, now_ms)
            except SignerUnavailableError as error:
                # What is signed is sent again meanwhile.
                log.warning("settlement_not_replaced", session_id=record.session_id, reason=str(error))
                replacement = None
            if replacement is not None:
                return [replacement]
        was_sent = newest.sent_at_ms is not None and record.state is not SettlementState.SIGNED
        if was_sent and record.reason != REORGANISED and now_ms - record.updated_at_ms < self._options.resend_ms:
            return []
        return [newest]

    async def _is_ours(self, attempt: Attempt) -> bool:
        """Return whether this key signed the attempt. A nonce of another key cannot be replaced with this key."""
        ours = await self._outbox.attempts_at(self._relayer, attempt.nonce)
        return attempt.tx_hash in {item.tx_hash for item in ours}

    async def _replace(self, record: RecordT, sighting: Sighting, now_ms: int) -> Attempt | None:
        """Sign a replacement with the same nonce and higher fees; None when the fees would exceed the cap."""
        newest = record.attempts[-1]
        history, tip = await self._rpc.batch(ABOUT_FEES)
        current = suggested(sighting.head, history, tip).at_most(self._options.fee_cap_wei)
        fees = bumped(Fees(max_fee_wei=newest.max_fee_wei, tip_wei=newest.tip_wei), current)
        if fees.max_fee_wei > self._options.fee_cap_wei:
            await self._outbox.mark_waiting(
                record.session_id, SettlementState.STUCK, reason="a replacement would pass the fee cap",
                retry_at_ms=now_ms + self._options.resend_ms, now_ms=now_ms,
            )  # fmt: skip
            return None
        sharing = await self._outbox.of_transaction(newest.tx_hash)
        # Even a call that the contract refuses now is sent, because the nonce must be used up.
        try:
            (call,) = await self._sender.calls([sharing])
        except HoldMissingError:
            call = _call_of(newest)
        replacements = await self._sender.sign(sharing, call, newest.nonce, fees, now_ms)
        replacement = replacements[0]
        await self._outbox.store_signed(self._relayer, replacements, now_ms=now_ms)
        log.warning(
            "settlement_replaced", session_id=record.session_id, tx_hash=replacement.tx_hash, nonce=newest.nonce,
            max_fee_wei=fees.max_fee_wei,
        )  # fmt: skip
        if len(record.attempts) + 1 >= STUCK_ATTEMPTS:
            reason = f"no receipt after {len(record.attempts)} transactions"
            for each in sharing:
                await self._outbox.mark_waiting(
                    each.session_id, SettlementState.STUCK, reason=reason, retry_at_ms=0, now_ms=now_ms
                )
        return replacement


def _call_of(attempt: Attempt) -> ContractCall:
    """Return the call of a signed transaction. Source: EIP-1559, section "Specification"."""
    fields = rlp.decode(attempt.raw[1:])
    return ContractCall(data=fields[7], gas=int.from_bytes(fields[4], "big"))


async def close_gap(
    rpc: JsonRpc, outbox: TransactionOutbox[Any], relayer: str, mined_nonce: int, pursued: AbstractSet[str]
) -> None:
    """Broadcast the transaction with the chain's next nonce again, unless a row of this round pursues it.

    After a reorganisation a session may already be reverted or done by another transaction, but its old transaction
    must be mined to use up the nonce. This is safe, because the contract does a session once. And when many rows lost
    their block, the one with the next nonce may not be among those of this round. A session that was signed again
    with another nonce waits for its own earlier transaction.

    Args:
        pursued: The newest transactions of the rows of this round that are in no block.
    """
    if mined_nonce >= await outbox.next_nonce(relayer):
        return
    attempts = await outbox.attempts_at(relayer, mined_nonce)
    if not attempts:
        log.error("relayer_nonce_unknown", nonce=mined_nonce)
        return
    if pursued.isdisjoint(attempt.tx_hash for attempt in attempts):
        log.warning("relayer_fills_nonce", nonce=mined_nonce, tx_hash=attempts[-1].tx_hash)
        await rpc.send_once([("eth_sendRawTransaction", ["0x" + attempts[-1].raw.hex()])])
