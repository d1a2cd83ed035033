"""Finds payments on the chain that the database does not know, because it is older than the chain.

Several services may share one settlement contract, each with a database and a relayer key of its own: two services
cannot share a key, because each counts its nonces. So the sender of the transaction says whose payment it is.
"""

from collections.abc import Sequence

import structlog

from sightline.chain.rpc.client import JsonRpc
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.settlement import ChainPayment
from sightline.ports.ledger import WalletLedger

log = structlog.get_logger()


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
    senders: dict[str, str] = {}
    for tx_hash, receipt in zip(hashes, receipts, strict=True):
        if not isinstance(receipt, dict) or str(receipt.get("blockHash")).lower() != block_of[tx_hash]:
            raise ChainUnavailableError(f"the receipt of transaction {tx_hash} is not there")
        senders[tx_hash] = str(receipt.get("from")).lower()
    return senders
