"""Signs transactions with the relayer's key, broadcasts them, and schedules the retry of refused ones."""

from collections.abc import Sequence
from typing import Generic, final

import structlog

from sightline.chain.gas_key import GasKey
from sightline.chain.relayer.broadcast import FEES_TOO_LOW, broadcast
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.retry import retry_in_ms
from sightline.chain.relayer.work import ContractCall, OutboxWork
from sightline.chain.signer import Fees
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.ledger import Attempt, RecordT, SettlementLane, SettlementState

log = structlog.get_logger()


@final
class Sender(Generic[RecordT]):
    """Signs and broadcasts with one relayer key."""

    def __init__(
        self, work: OutboxWork[RecordT], key: GasKey, options: RelayerOptions, *, clock: Clock, ids: Ids
    ) -> None:
        self._work = work
        self._outbox = work.outbox
        self._key = key
        self.address = key.address
        self._options = options
        self._clock = clock
        self._ids = ids

    async def calls(self, batches: Sequence[Sequence[RecordT]]) -> list[ContractCall]:
        """Build the call of each batch, with a gas limit by the node's estimate.

        Raises:
            ChainUnavailableError: The endpoint did not answer.
        """
        calls = [await self._work.call(batch) for batch in batches]
        if not self._options.estimates_gas:
            return calls
        answers = await self._work.rpc.batch(
            [
                ("eth_estimateGas", [{"from": self.address, "to": self._work.contract, "data": "0x" + call.data.hex()}])
                for call in calls
            ]
        )
        return [call.estimated(answer) for call, answer in zip(calls, answers, strict=True)]

    async def sign(
        self, records: Sequence[RecordT], call: ContractCall, nonce: int, fees: Fees, now_ms: int
    ) -> list[Attempt]:
        """Sign one transaction for these rows; return it as one attempt per session. Store it before you send it.

        Raises:
            SignerUnavailableError: The key is in another process, which does not sign now.
        """
        tx_hash, raw = await self._key.sign(
            chain_id=self._work.identity.chain_id, nonce=nonce, to=self._work.contract, data=call.data, gas=call.gas,
            fees=fees,
        )  # fmt: skip
        return [
            Attempt(
                session_id=record.session_id, nonce=nonce, tx_hash=tx_hash, raw=raw, max_fee_wei=fees.max_fee_wei,
                tip_wei=fees.tip_wei, signed_at_ms=now_ms,
            )
            for record in records
        ]  # fmt: skip

    async def send(self, attempts: Sequence[Attempt]) -> None:
        """Broadcast each transaction once. If the node does not answer, the rows stay unchanged for a later look-up."""
        attempts = list({attempt.tx_hash: attempt for attempt in attempts}.values())
        if not attempts:
            return
        answers = await broadcast(self._work.rpc, attempts)
        now_ms = self._clock.now_ms()
        for attempt, refusal in answers.refused:
            retry_at_ms = now_ms + (0 if refusal == FEES_TOO_LOW else self._options.retry_ms_min)
            log.warning("broadcast_refused", session_id=attempt.session_id, reason=refusal)
            await self._outbox.mark_waiting(
                attempt.session_id, SettlementState.SIGNED, reason=refusal, retry_at_ms=retry_at_ms, now_ms=now_ms
            )
        if answers.taken:
            await self._outbox.mark_sent(answers.taken, now_ms=now_ms)

    async def put_aside(self, record: RecordT, state: SettlementState, reason: str) -> None:
        """Put a row into this state with a retry delay that grows. A refused one moves to the RETRY lane."""
        now_ms = self._clock.now_ms()
        wait_ms = retry_in_ms(self._options, self._ids, reason=reason, tries=record.tries)
        is_refused = (
            state in (SettlementState.FAILED, SettlementState.REVERTED) and record.lane is SettlementLane.PAYABLE
        )
        log.warning(
            "settlement_waits", session_id=record.session_id, state=state.value, reason=reason, tries=record.tries + 1,
            retry_in_ms=wait_ms,
        )  # fmt: skip
        await self._outbox.mark_waiting(
            record.session_id, state, reason=reason, retry_at_ms=now_ms + wait_ms, now_ms=now_ms,
            lane=SettlementLane.RETRY if is_refused else None,
        )  # fmt: skip
