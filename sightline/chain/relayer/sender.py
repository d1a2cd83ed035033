"""Sending with the relayer's key: signs settlements, broadcasts them, and puts aside those that cannot go now."""

from collections.abc import Sequence
from typing import final

import structlog

from sightline.chain.fees import Fees
from sightline.chain.relayer.broadcast import FEES_TOO_LOW, broadcast
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.preflight import settle_call
from sightline.chain.rpc.client import JsonRpc, backoff_ms
from sightline.chain.signer import Signer
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.ledger import Attempt, ChainIdentity, SettlementOutbox, SettlementRecord, SettlementState

log = structlog.get_logger()


@final
class Sender:
    """Sends with one key."""

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

    def sign(self, record: SettlementRecord, nonce: int, fees: Fees, now_ms: int) -> Attempt:
        """A signed transaction; to be stored before it is sent."""
        tx_hash, raw = self._signer.sign(
            chain_id=self._identity.chain_id, nonce=nonce, to=self._identity.settlement_address,
            data=settle_call(record), gas=self._options.settle_gas, fees=fees,
        )  # fmt: skip
        return Attempt(
            session_id=record.session_id, nonce=nonce, tx_hash=tx_hash, raw=raw, max_fee_wei=fees.max_fee_wei,
            tip_wei=fees.tip_wei, signed_at_ms=now_ms,
        )  # fmt: skip

    async def send(self, attempts: Sequence[Attempt]) -> None:
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

    async def put_aside(self, record: SettlementRecord, state: SettlementState, reason: str) -> None:
        """Let a settlement wait in this state, longer each time."""
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
