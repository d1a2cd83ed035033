"""Follows broadcast transactions: confirms them at the configured depth and re-checks them after a reorganisation."""

from dataclasses import replace
from typing import Final, final

import structlog

from sightline.chain.relayer.inclusion import Included, look
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.preflight import FoundSettlement, find_settled, why_reverted
from sightline.chain.relayer.resubmission import REORGANISED, Resubmission
from sightline.chain.relayer.sender import Sender
from sightline.chain.rpc.client import JsonRpc
from sightline.chain.rpc.reader import hex_int
from sightline.ports.clock import Clock
from sightline.ports.ledger import (
    BlockRef,
    ChainIdentity,
    Inclusion,
    SettlementOutbox,
    SettlementRecord,
    SettlementState,
)

RECHECK_BLOCKS: Final = 256
"""Number of latest blocks whose settlements are re-checked at the start."""

log = structlog.get_logger()


@final
class Confirmation:
    """Updates the state of settlements from receipts and events. Used by one relayer, one call at a time."""

    def __init__(
        self, rpc: JsonRpc, outbox: SettlementOutbox, sender: Sender, relayer: str, identity: ChainIdentity,
        options: RelayerOptions, *, clock: Clock,
    ) -> None:  # fmt: skip
        self._rpc = rpc
        self._outbox = outbox
        self._sender = sender
        self._relayer = relayer
        self._identity = identity
        self._options = options
        self._clock = clock
        self._resubmission = Resubmission(rpc, outbox, sender, relayer, options, clock=clock)
        self._is_first = True
        self._compared_head: BlockRef | None = None
        """The watcher's last block when settlements were last compared with its blocks."""

    # Reorganisations.

    async def recheck(self) -> None:
        """Re-check the settlements whose block was replaced, when the watcher has applied or rolled back blocks.

        The first call looks at all settlements of the last `RECHECK_BLOCKS` blocks: a chain restored from an older copy
        has fewer blocks than the watcher knows, so the watcher has nothing to compare.
        """
        head = await self._outbox.chain_head()
        if self._is_first:
            newest = hex_int(await self._rpc.call("eth_blockNumber"))
            records = await self._outbox.settlements_above(max(0, newest - RECHECK_BLOCKS))
        elif head == self._compared_head:
            return
        else:
            records = await self._outbox.settlements_to_recheck()
        if records:
            sighting = await look(self._rpc, self._relayer, records)
            for record in records:
                await self._reconsider(record, sighting.found.get(record.session_id))
        self._compared_head, self._is_first = head, False

    async def _reconsider(self, record: SettlementRecord, found: Included | None) -> None:
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
        await self._record_inclusion(replace(record, state=SettlementState.SENT, block_hash=None), found)

    # In flight.

    async def follow(self) -> None:
        """Confirm the settlements in flight, or resubmit their transactions."""
        records = await self._outbox.settlements_in_flight(limit=self._options.in_flight_max)
        if not records:
            return
        sighting = await look(self._rpc, self._relayer, records)
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
        """Record the block of a transaction. Success and failure become final only at the configured depth."""
        inclusion = found.inclusion
        if found.depth < self._options.depth:
            if found.succeeded and (record.state, record.block_hash) != (SettlementState.MINED, inclusion.block_hash):
                await self._outbox.mark_mined(record.session_id, inclusion, now_ms=self._clock.now_ms())
        elif found.succeeded:
            await self._confirm(record, inclusion)
        else:
            reason = await why_reverted(self._rpc, self._identity, self._relayer, record, inclusion.block_number)
            await self._sender.put_aside(record, SettlementState.REVERTED, reason)

    async def _confirm(self, record: SettlementRecord, inclusion: Inclusion) -> None:
        is_ours = inclusion.tx_hash in {attempt.tx_hash for attempt in record.attempts}
        found = None if is_ours else await self._find(record)
        on_chain = None if found is None else found.difference(record)
        if on_chain is not None:
            log.error(
                "settlement_amounts_differ", session_id=record.session_id, tx_hash=inclusion.tx_hash,
                ours_micro=record.total, on_chain_micro=on_chain.to_amount + on_chain.fee_amount,
            )  # fmt: skip
            await self._outbox.mark_mismatched(record.session_id, inclusion, on_chain, now_ms=self._clock.now_ms())
        elif is_ours or found is not None:
            await self._outbox.mark_confirmed(record.session_id, inclusion, now_ms=self._clock.now_ms())
            log.info("settlement_confirmed", session_id=record.session_id, tx_hash=inclusion.tx_hash)

    # Settlements by a transaction that the database does not know.

    async def adopt(self, record: SettlementRecord) -> None:
        """Adopt the transaction that settled this session, as found in the contract's event."""
        found = await self._find(record)
        if found is None:
            reason = "settled on the chain, and the event is not found"
            await self._sender.put_aside(record, SettlementState.FAILED, reason)
            return
        log.info("settlement_adopted", session_id=record.session_id, tx_hash=found.inclusion.tx_hash)
        included = Included(inclusion=found.inclusion, succeeded=True, depth=found.depth)
        await self._record_inclusion(record, included)

    async def _find(self, record: SettlementRecord) -> FoundSettlement | None:
        return await find_settled(self._rpc, self._identity, record.session_id_hash, self._options.start_block)
