"""Follows broadcast transactions: confirms them at the configured depth and re-checks them after a reorganisation.

With several endpoints an outcome is final only when two of them report it.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, final

import structlog

from sightline.chain.relayer.inclusion import Included, agreed, look, look_for_all
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.resubmission import REORGANISED, Resubmission
from sightline.chain.relayer.sender import Sender
from sightline.chain.relayer.work import EventLog, OutboxWork
from sightline.chain.rpc.reader import hex_int
from sightline.domain.value import replace
from sightline.ports.clock import Clock
from sightline.ports.ledger import HEADERS_MAX, BlockRef, Inclusion, RecordT, SettlementState

log = structlog.get_logger()


class Unmined(NamedTuple):
    """The newest transactions that are in no block, and the relayer's next nonce on the chain."""

    mined_nonce: int
    tx_hashes: frozenset[str]


@final
class Confirmation(Generic[RecordT]):
    """Updates the state of rows from receipts and events. Used by one relayer, one call at a time."""

    def __init__(
        self, work: OutboxWork[RecordT], sender: Sender[RecordT], relayer: str, options: RelayerOptions, *, clock: Clock
    ) -> None:
        self._work = work
        self._rpc = work.rpc
        self._outbox = work.outbox
        self._sender = sender
        self._relayer = relayer
        self._options = options
        self._clock = clock
        self._resubmission = Resubmission(work, sender, relayer, options, clock=clock)
        self._is_first = True
        self._compared_head: BlockRef | None = None
        """The watcher's last block when settlements were last compared with its blocks."""

    # Reorganisations.

    async def recheck(self, head: BlockRef | None) -> None:
        """Re-check the settlements whose block was replaced, when the watcher has applied or rolled back blocks.

        `head` is the last block that it has applied.

        The first call looks at all settlements of the last `HEADERS_MAX` blocks: a chain restored from an older copy
        has fewer blocks than the watcher knows, so the watcher has nothing to compare.
        """
        if self._is_first:
            newest = hex_int(await self._rpc.call("eth_blockNumber"))
            records = await self._outbox.above_block(max(0, newest - HEADERS_MAX))
        elif head == self._compared_head:
            return
        else:
            records = await self._outbox.to_recheck()
        if records:
            sighting = await look(self._work, self._relayer, records)
            for record in records:
                await self._reconsider(record, sighting.found.get(record.session_id))
        self._compared_head, self._is_first = head, False

    async def _reconsider(self, record: RecordT, found: Included | None) -> None:
        """Correct a settlement that is now in another block, in no block, or whose transaction now fails."""
        now_ms = self._clock.now_ms()
        if found is None:
            log.error("settlement_reorganised", session_id=record.session_id, tx_hash=record.tx_hash)
            await self._outbox.mark_unmined(record.session_id, reason=REORGANISED, now_ms=now_ms)
            return
        place = (found.inclusion.block_hash, found.inclusion.tx_hash)
        if found.succeeded and place == (record.block_hash, record.tx_hash):
            return
        log.warning(
            "settlement_moved", session_id=record.session_id, tx_hash=found.inclusion.tx_hash,
            block_number=found.inclusion.block_number, succeeded=found.succeeded,
        )  # fmt: skip
        await self._outbox.mark_unmined(record.session_id, reason=REORGANISED, now_ms=now_ms)
        record = replace(record, state=SettlementState.SENT, block_hash=None)
        if await self._in_block([record], {record.session_id: found}):
            await self._record_inclusion(record, found, is_final=self._is_final(found))

    # In flight.

    async def follow(self) -> Unmined | None:
        """Confirm the rows in flight, or resubmit their transactions; returns those that are in no block, if any."""
        records = await self._outbox.in_flight(limit=self._options.in_flight_max)
        if not records:
            return None
        sighting = await look_for_all(self._work, self._relayer, records)
        final = await agreed(self._work, self._relayer, records, sighting.found, depth=self._options.depth)
        in_block = final | await self._in_block(records, sighting.found)
        missing: list[RecordT] = []
        for record in records:
            found = sighting.found.get(record.session_id)
            if found is None:
                missing.append(record)
            elif record.session_id in in_block:
                await self._record_inclusion(record, found, is_final=record.session_id in final)
        if not missing:
            return None
        await self._resubmission.resubmit(missing, sighting)
        newest = frozenset(record.attempts[-1].tx_hash for record in missing if record.attempts)
        return Unmined(sighting.mined_nonce, newest)

    async def _in_block(self, records: Sequence[RecordT], found: Mapping[str, Included]) -> frozenset[str]:
        """Return the sessions whose transaction counts as being in a block.

        What somebody acts on at once needs two endpoints, or the only one that answers.
        """
        if not self._work.counts_in_block:
            return frozenset(found)
        known = frozenset(
            record.session_id
            for record in records
            if record.session_id in found
            and (record.state, record.block_hash)
            == (SettlementState.MINED, found[record.session_id].inclusion.block_hash)
        )
        fresh = [record for record in records if record.session_id not in known]
        return known | await agreed(self._work, self._relayer, fresh, found, depth=0, may_be_alone=True)

    def _is_final(self, found: Included) -> bool:
        """Return whether what one endpoint reports is final. With several, `follow` asks the others later."""
        return found.depth >= self._options.depth and not self._rpc.has_several

    async def _record_inclusion(self, record: RecordT, found: Included, *, is_final: bool) -> None:
        """Record the block of a transaction, and its success or failure if that is final."""
        inclusion = found.inclusion
        if not is_final:
            if found.succeeded and (record.state, record.block_hash) != (SettlementState.MINED, inclusion.block_hash):
                await self._outbox.mark_mined(record.session_id, inclusion, now_ms=self._clock.now_ms())
        elif found.event is not None:
            await self._confirm(record, inclusion, found.event)
        else:
            reason = await self._work.why_failed(self._relayer, record, inclusion.block_number)
            await self._sender.put_aside(record, SettlementState.REVERTED, reason)

    async def _confirm(self, record: RecordT, inclusion: Inclusion, event: EventLog) -> None:
        now_ms = self._clock.now_ms()
        # A transaction of ours may have other numbers too: a capture takes no more than its hold still has.
        if await self._work.record_difference(record, inclusion, event, now_ms=now_ms):
            log.error("settlement_amounts_differ", session_id=record.session_id, tx_hash=inclusion.tx_hash)
            return
        await self._outbox.mark_confirmed(record.session_id, inclusion, now_ms=now_ms)
        log.info("settlement_confirmed", session_id=record.session_id, tx_hash=inclusion.tx_hash)

    # Settlements by a transaction that the database does not know.

    async def adopt(self, record: RecordT) -> None:
        """Adopt the transaction that settled this session, as found in the contract's event."""
        found = await self._work.find(record.session_id_hash)
        if found is None:
            reason = "settled on the chain, and the event is not found"
            await self._sender.put_aside(record, SettlementState.FAILED, reason)
            return
        log.info("settlement_adopted", session_id=record.session_id, tx_hash=found.inclusion.tx_hash)
        included = Included(inclusion=found.inclusion, event=found.event, depth=found.depth)
        adopted = replace(record, tx_hash=found.inclusion.tx_hash, attempts=())
        if await self._in_block([adopted], {record.session_id: included}):
            await self._record_inclusion(record, included, is_final=self._is_final(included))
