"""Finds payments on the chain that the database does not know, because it is older than the chain.

Several services may share one settlement contract, each with a database and a relayer key of its own: two services
cannot share a key, because each counts its nonces. So the sender of the transaction says whose payment it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

import structlog

from sightline.chain.rpc.client import JsonRpc
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.watcher.events import Log, Watched, payments_in
from sightline.chain.watcher.logs import NEAR_BLOCKS, LogSource
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.settlement import ChainPayment
from sightline.ports.ledger import BlockRef, WalletLedger

TELLING: Final = 2
"""Where there are several endpoints, so many must have answered for all old blocks."""

log = structlog.get_logger()


@final
class EarlierPayments:
    """Reads the unknown payments of all blocks up to a head, for a database that is empty (ADR 0265).

    An endpoint that does not keep old logs may answer with none. So of several each is asked for the old blocks by
    itself, and what one of them tells counts. The answer of a single one cannot be verified: direct payments leave no
    trace in a balance of the contract.
    """

    def __init__(
        self, rpc: JsonRpc, reader: RpcReader, ledger: WalletLedger, watched: Watched, relayer: str, source: LogSource,
        *, start_block: int, span_max: int,
    ) -> None:  # fmt: skip
        self._rpc = rpc
        self._ledger = ledger
        self._watched = watched
        self._relayer = relayer
        self._source = source
        self._start_block = start_block
        clients = rpc.each_alone() if rpc.has_several else {rpc.endpoints[0]: rpc}
        self._witnesses = [
            _Witness(
                endpoint.health.name,
                alone,
                LogSource(alone, reader, start_block=start_block, span_max=span_max),
                start_block - 1,
            )
            for endpoint, alone in clients.items()
        ]

    async def up_to(self, head: BlockRef) -> tuple[ChainPayment, ...]:
        """Return the payments in the order of the chain.

        Raises:
            ChainUnavailableError: An endpoint did not answer, or too few told the old blocks. The next call goes on
                where this one failed.
        """
        near = max(self._start_block, head.number - NEAR_BLOCKS + 1)
        old = await self._old(near - 1) if near > self._start_block else ()
        if near > head.number:
            return old
        logs = await self._source.logs_of(await self._source.blocks(near, head), self._watched)
        return (*old, *await self._unknown(self._rpc, logs))

    async def _old(self, last: int) -> tuple[ChainPayment, ...]:
        found: dict[tuple[str, int], ChainPayment] = {}
        failures: list[ChainUnavailableError] = []
        for witness in self._witnesses:
            try:
                await self._ask(witness, last)
            except ChainUnavailableError as error:
                log.warning("earlier_payments_not_read", endpoint=witness.name, reason=str(error))
                failures.append(error)
            else:
                found |= {(each.tx_hash, each.log_index): each for each in witness.unknown}
        if len(self._witnesses) - len(failures) < min(TELLING, len(self._witnesses)):
            raise failures[0]
        return tuple(sorted(found.values(), key=lambda each: (each.block_number, each.log_index)))

    async def _ask(self, witness: "_Witness", last: int) -> None:
        while witness.read_through < last:
            through, logs = await witness.source.contract_logs(self._watched, witness.read_through + 1, last)
            witness.unknown += await self._unknown(witness.rpc, logs)
            witness.read_through = through  # an error later does not read these blocks again

    async def _unknown(self, rpc: JsonRpc, logs: Iterable[Log]) -> tuple[ChainPayment, ...]:
        return await unknown_payments(rpc, self._ledger, self._relayer, payments_in(logs, self._watched))


@dataclass
class _Witness:
    """One endpoint, the last old block that was read from it, and the unknown payments it gave."""

    name: str
    rpc: JsonRpc
    source: LogSource
    read_through: int
    unknown: tuple[ChainPayment, ...] = ()


async def unknown_payments(
    rpc: JsonRpc, ledger: WalletLedger, relayer: str, payments: Sequence[ChainPayment]
) -> tuple[ChainPayment, ...]:
    """Return the payments for which this database has no settlement, or one that was written off.

    A settlement is stored before its transaction is sent, so a settlement that is missing now was never there. Without
    one only payments of this database's relayers count; one that was written off says itself whose it is.

    Args:
        relayer: The present key's address, lower-case; keys that the database has seen sign count too.

    Raises:
        ChainUnavailableError: The endpoint did not answer.
    """
    hashes = sorted({payment.session_id_hash for payment in payments})
    missing = await ledger.without_settlement(hashes) if hashes else frozenset()
    found = [payment for payment in payments if payment.session_id_hash in missing]
    if not found:
        return ()
    relayers = await ledger.relayers() | {relayer}
    given_up = await ledger.written_off(sorted(missing))
    senders = await _senders(rpc, {payment.tx_hash: payment.block_hash for payment in found})
    foreign = {sender for sender in senders.values() if sender not in relayers}
    if foreign:
        log.info("payments_of_other_relayers", relayers=sorted(foreign))
    return tuple(
        payment for payment in found
        if senders[payment.tx_hash] in relayers or payment.session_id_hash in given_up
    )  # fmt: skip


async def _senders(rpc: JsonRpc, block_of: dict[str, str]) -> dict[str, str]:
    """Read who sent each of these transactions; each is in the block with this hash."""
    hashes = sorted(block_of)
    receipts = await rpc.batch([("eth_getTransactionReceipt", [tx_hash]) for tx_hash in hashes])
    # A node may keep no index of old transactions (by default geth does for 2,350,000 blocks); it has their blocks.
    unindexed = sorted({block_of[each] for each, receipt in zip(hashes, receipts, strict=True) if receipt is None})
    senders: dict[str, str] = {}
    for block in await rpc.batch([("eth_getBlockByHash", [block_hash, True]) for block_hash in unindexed]):
        if isinstance(block, dict):
            senders |= {
                str(each["hash"]).lower(): str(each["from"]).lower()
                for each in block["transactions"]
                if block_of.get(str(each["hash"]).lower()) == str(block["hash"]).lower()
            }
    for tx_hash, receipt in zip(hashes, receipts, strict=True):
        if isinstance(receipt, dict) and str(receipt.get("blockHash")).lower() == block_of[tx_hash]:
            senders[tx_hash] = str(receipt.get("from")).lower()
        elif tx_hash not in senders:
            raise ChainUnavailableError(f"the receipt of transaction {tx_hash} is not there")
    return senders
