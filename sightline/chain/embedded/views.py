"""Converts py-evm's blocks, transactions and receipts to the form of Ethereum's JSON-RPC."""

from typing import Any

from eth_utils.address import to_checksum_address

from sightline.chain.embedded.store import Json


def quantity(value: int) -> str:
    """Format a number for JSON-RPC: 0x and no leading zeros."""
    return hex(value)


def data(value: bytes) -> str:
    """Format bytes for JSON-RPC."""
    return "0x" + bytes(value).hex()


def word(value: int) -> str:
    """Format a number as 32 bytes."""
    return "0x" + value.to_bytes(32, "big").hex()


def address(value: bytes) -> str | None:
    """Format an address in EIP-55 form; None for the empty address of a contract creation."""
    return to_checksum_address(value) if value else None


def block_view(block: Any) -> Json:
    """Format a block with the hashes of its transactions."""
    header = block.header
    return {
        "number": quantity(header.block_number),
        "hash": data(header.hash),
        "parentHash": data(header.parent_hash),
        "nonce": data(header.nonce),
        "sha3Uncles": data(header.uncles_hash),
        "logsBloom": "0x" + int(header.bloom).to_bytes(256, "big").hex(),
        "transactionsRoot": data(header.transaction_root),
        "stateRoot": data(header.state_root),
        "receiptsRoot": data(header.receipt_root),
        "miner": address(header.coinbase),
        "difficulty": quantity(header.difficulty),
        "totalDifficulty": "0x0",
        "extraData": data(header.extra_data),
        "size": quantity(1024),
        "gasLimit": quantity(header.gas_limit),
        "gasUsed": quantity(header.gas_used),
        "timestamp": quantity(header.timestamp),
        "baseFeePerGas": quantity(header.base_fee_per_gas),
        "mixHash": data(header.mix_hash),
        "withdrawalsRoot": data(header.withdrawals_root),
        "withdrawals": [],
        "blobGasUsed": quantity(header.blob_gas_used),
        "excessBlobGas": quantity(header.excess_blob_gas),
        "parentBeaconBlockRoot": data(header.parent_beacon_block_root),
        "requestsHash": data(header.requests_hash),
        "uncles": [],
        "transactions": [data(transaction.hash) for transaction in block.transactions],
    }


def effective_gas_price(transaction: Any, base_fee: int) -> int:
    """Return the price per gas that the sender pays in a block with this base fee (EIP-1559)."""
    if transaction_type(transaction) < 2:
        return int(transaction.gas_price)
    return min(int(transaction.max_fee_per_gas), base_fee + int(transaction.max_priority_fee_per_gas))


def transaction_type(transaction: Any) -> int:
    """Return the EIP-2718 transaction type; 0 for a legacy transaction."""
    return int(getattr(transaction, "type_id", None) or 0)


def transaction_view(transaction: Any, block: Any, position: int) -> Json:
    """Format a mined transaction."""
    kind = transaction_type(transaction)
    view: Json = {
        "hash": data(transaction.hash),
        "type": quantity(kind),
        "nonce": quantity(transaction.nonce),
        "blockHash": data(block.hash),
        "blockNumber": quantity(block.number),
        "transactionIndex": quantity(position),
        "from": address(transaction.sender),
        "to": address(transaction.to),
        "value": quantity(transaction.value),
        "gas": quantity(transaction.gas),
        "gasPrice": quantity(effective_gas_price(transaction, block.header.base_fee_per_gas)),
        "input": data(transaction.data),
        "r": quantity(transaction.r),
        "s": quantity(transaction.s),
        "v": quantity(transaction.y_parity if kind else transaction.v),
    }
    if transaction.chain_id is not None:
        view["chainId"] = quantity(transaction.chain_id)
    if kind:
        view["yParity"] = quantity(transaction.y_parity)
        view["accessList"] = [
            {"address": address(account), "storageKeys": [word(slot) for slot in slots]}
            for account, slots in transaction.access_list
        ]
    if kind >= 2:
        view["maxFeePerGas"] = quantity(transaction.max_fee_per_gas)
        view["maxPriorityFeePerGas"] = quantity(transaction.max_priority_fee_per_gas)
    return view


def receipt_views(block: Any, receipts: list[Any], created: list[bytes | None]) -> list[Json]:
    """Format the receipts of a block; `created` holds the address of each transaction's created contract, or None."""
    views: list[Json] = []
    gas_before = 0
    log_index = 0
    for position, (transaction, receipt) in enumerate(zip(block.transactions, receipts, strict=True)):
        place = {
            "blockHash": data(block.hash),
            "blockNumber": quantity(block.number),
            "transactionHash": data(transaction.hash),
            "transactionIndex": quantity(position),
        }
        logs: list[Json] = []
        for entry in receipt.logs:
            logs.append(
                place
                | {
                    "address": address(entry.address),
                    "topics": [word(topic) for topic in entry.topics],
                    "data": data(entry.data),
                    "logIndex": quantity(log_index),
                    "removed": False,
                }
            )
            log_index += 1
        contract = created[position]
        views.append(
            place
            | {
                "type": quantity(transaction_type(transaction)),
                "from": address(transaction.sender),
                "to": address(transaction.to),
                "status": "0x1" if bytes(receipt.state_root) == b"\x01" else "0x0",
                "cumulativeGasUsed": quantity(receipt.gas_used),
                "gasUsed": quantity(receipt.gas_used - gas_before),
                "effectiveGasPrice": quantity(effective_gas_price(transaction, block.header.base_fee_per_gas)),
                "contractAddress": None if contract is None else address(contract),
                "logsBloom": "0x" + int(receipt.bloom).to_bytes(256, "big").hex(),
                "logs": logs,
            }
        )
        gas_before = receipt.gas_used
    return views
