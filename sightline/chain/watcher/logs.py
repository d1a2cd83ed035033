"""Reads the logs of new blocks and of wallet histories, and verifies the endpoint's answers.

Logs of new blocks are queried one block at a time, by hash, and compared with the block's bloom filter. Older logs are
queried by range. A lagging endpoint answers such a query with an empty list instead of an error, so the sum of the
transfers must equal the change of the balance.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, final

import structlog

from sightline.chain.contracts.abi import APPROVAL_TOPIC, SETTLED_TOPIC, TRANSFER_TOPIC, address_topic
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import RpcReader, block_ref
from sightline.chain.watcher.events import Log, Watched, bloom_promises, log_of, transfer_sums
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ledger import BlockRef

log = structlog.get_logger()

WALLETS_PER_QUERY: Final = 200
NEAR_BLOCKS: Final = 128
"""Number of latest blocks that are read by header, for the history of a new wallet too."""


@final
class LogSource:
    """Reads logs from one endpoint."""

    def __init__(self, rpc: JsonRpc, reader: RpcReader, *, start_block: int, span_max: int) -> None:
        self._rpc = rpc
        self._reader = reader
        self._start_block = start_block
        self._span = span_max

    async def logs_of(self, blocks: Sequence[dict[str, Any]], watched: Watched) -> list[Log]:
        """Read the logs of these blocks, with one query by hash for each block."""
        # One query per block covers both contracts and all wallets. The ledger selects the tracked wallets afterwards,
        # so the cost of a round does not depend on their number.
        asked = [block for block in blocks if bloom_promises(str(block["logsBloom"]), watched)]
        requests: list[Request] = [
            (
                "eth_getLogs",
                [{"blockHash": block["hash"], "address": [watched.token, watched.settlement]}],
            )
            for block in asked
        ]
        logs: list[Log] = []
        for block, answer in zip(asked, await self._rpc.batch(requests), strict=True):
            logs += await self._checked_logs(block, answer)
        return logs

    async def _checked_logs(self, block: dict[str, Any], answer: Any) -> list[Log]:
        if isinstance(answer, RpcResponseError) or not isinstance(answer, list):
            raise ChainUnavailableError(f"no logs of block {block['number']}: {answer}")
        logs = [log_of(entry) for entry in answer]
        block_hash = str(block["hash"]).lower()
        if any(item.block_hash != block_hash for item in logs):
            raise ChainUnavailableError("the endpoint gave logs of another block")
        # The bloom filter matches but the answer is empty. This is rarely a false positive; mostly the endpoint's index
        # lags.
        return logs or await self._logs_from_receipts(block)

    async def _logs_from_receipts(self, block: dict[str, Any]) -> list[Log]:
        """Read the logs from the block's receipts, from which the bloom filter of its header is computed."""
        hashes = [item if isinstance(item, str) else item["hash"] for item in block.get("transactions") or []]
        logs: list[Log] = []
        for receipt in await self._rpc.batch([("eth_getTransactionReceipt", [tx_hash]) for tx_hash in hashes]):
            if not isinstance(receipt, dict) or str(receipt.get("blockHash")).lower() != str(block["hash"]).lower():
                raise ChainUnavailableError(f"the receipts of block {block['number']} are not there")
            logs += [log_of(entry) for entry in receipt["logs"]]
        return logs

    async def history(self, watched: Watched, cursor: BlockRef) -> list[Log]:
        """Read all logs of new wallets up to the cursor: recent blocks verified like new ones, older ones by range."""
        start = self._start_block
        near = max(start, cursor.number - NEAR_BLOCKS + 1)
        blocks = await self.blocks(near, cursor)
        logs = await self.logs_of(blocks, watched)
        if near > start:
            old = await self._old_logs(watched, near - 1)
            await self._require_sum(watched, old, start, str(blocks[0]["parentHash"]))
            logs += old
        return logs

    async def blocks(self, first: int, last: BlockRef) -> list[dict[str, Any]]:
        """Read the blocks up to a known one, and check that each links to the next.

        Raises:
            ChainUnavailableError: The endpoint does not have exactly these blocks.
        """
        numbers = range(first, last.number + 1)
        answers = await self._rpc.batch([("eth_getBlockByNumber", [hex(number), False]) for number in numbers])
        blocks = [answer for answer in answers if isinstance(answer, dict)]
        refs = [block_ref(block) for block in blocks]
        is_linked = all(child.parent_hash == parent.block_hash for parent, child in itertools.pairwise(refs))
        if len(refs) != len(numbers) or refs[-1].block_hash != last.block_hash or not is_linked:
            raise ChainUnavailableError("the endpoint's latest blocks do not link to each other")
        return blocks

    async def _old_logs(self, watched: Watched, last_block: int) -> list[Log]:
        logs: dict[tuple[str, int], Log] = {}
        first = self._start_block
        while first <= last_block:
            last = min(last_block, first + self._span - 1)
            try:
                for entry in await self._span_logs(watched, first, last):
                    logs[entry.block_hash, entry.log_index] = entry
            except RpcResponseError as error:
                if self._span == 1:
                    raise ChainUnavailableError(error.message) from error
                self._span = max(1, self._span // 2)
                continue
            first = last + 1
        return list(logs.values())

    async def contract_logs(self, watched: Watched, first: int, last: int) -> tuple[int, list[Log]]:
        """Read the logs of the contract, and of transfers to and from it, in one range of blocks.

        Returns:
            The last block that was read, which is before `last` if the endpoint answers only for fewer blocks.
        """
        contract = address_topic(watched.settlement)
        while True:
            through = min(last, first + self._span - 1)
            span = {"fromBlock": hex(first), "toBlock": hex(through)}
            queries: list[dict[str, Any]] = [
                {"address": watched.settlement},
                {"address": watched.token, "topics": [TRANSFER_TOPIC, None, contract]},
                {"address": watched.token, "topics": [TRANSFER_TOPIC, contract]},
            ]
            answers = await self._rpc.batch([("eth_getLogs", [query | span]) for query in queries])
            refused = next((answer for answer in answers if isinstance(answer, RpcResponseError)), None)
            if refused is None:
                logs = [log_of(entry) for answer in answers for entry in answer]
                return through, list({(each.block_hash, each.log_index): each for each in logs}.values())
            if self._span == 1:
                raise ChainUnavailableError(refused.message) from refused
            self._span = max(1, self._span // 2)

    async def blocks_of(self, logs: Sequence[Log]) -> dict[int, dict[str, Any]]:
        """Read the blocks of these logs, by number."""
        return await self.blocks_at({each.block_number: each.block_hash for each in logs})

    async def blocks_at(self, hashes: Mapping[int, str]) -> dict[int, dict[str, Any]]:
        """Read blocks by number.

        Raises:
            ChainUnavailableError: The endpoint has another block of a number than this hash now.
        """
        numbers = sorted(hashes)
        answers = await self._rpc.batch([("eth_getBlockByNumber", [hex(number), False]) for number in numbers])
        for number, block in zip(numbers, answers, strict=True):
            if not isinstance(block, dict) or str(block.get("hash")).lower() != hashes[number]:
                raise ChainUnavailableError(f"block {number} is not the one that was read before")
        return dict(zip(numbers, answers, strict=True))

    async def receipts(self, tx_hashes: Sequence[str], block_hashes: Collection[str]) -> dict[str, dict[str, Any]]:
        """Read the receipts of transactions in these blocks.

        Raises:
            ChainUnavailableError: A receipt is missing, or of another block.
        """
        found = {str(each["transactionHash"]).lower(): each for each in await self.receipts_if_mined(tx_hashes)}
        for tx_hash in tx_hashes:
            if tx_hash not in found or str(found[tx_hash].get("blockHash")).lower() not in block_hashes:
                raise ChainUnavailableError(f"the receipt of transaction {tx_hash} is not there")
        return found

    async def receipts_if_mined(self, tx_hashes: Sequence[str]) -> list[dict[str, Any]]:
        """Read the receipts of those of these transactions that are in a block."""
        answers = await self._rpc.batch([("eth_getTransactionReceipt", [tx_hash]) for tx_hash in tx_hashes])
        return [answer for answer in answers if isinstance(answer, dict)]

    async def _require_sum(self, watched: Watched, logs: Sequence[Log], start: int, last_hash: str) -> None:
        """Require that old transfers sum up to the change of each balance: a lagging endpoint returns an empty range.

        If the endpoint does not keep old states, the check is impossible and the logs are accepted unchecked.

        Raises:
            ChainUnavailableError: The sums differ.
        """
        before = await self._rpc.call("eth_getBlockByNumber", hex(max(0, start - 1)), False)
        if not isinstance(before, dict):
            raise ChainUnavailableError("the endpoint does not know the first block of the history")
        wallets = sorted(watched.wallets)
        try:
            # The newest blocks are read apart: the token can be younger than the last one of these, too.
            old, new = [
                await self._reader.balances_and_allowances(wallets, at, may_lack_code=True)
                for at in (str(before["hash"]), last_hash)
            ]
        except ChainUnavailableError as error:
            if not isinstance(error.__cause__, RpcResponseError):
                raise
            log.info("history_not_summed", reason=str(error))
            return
        sums = transfer_sums(logs, watched.token, wallets)
        for wallet, was, now in zip(wallets, old, new, strict=True):
            if now[0] - was[0] != sums[wallet]:
                raise ChainUnavailableError(f"the endpoint's old logs of {wallet} do not sum up to its balance")

    async def _span_logs(self, watched: Watched, first: int, last: int) -> list[Log]:
        """Read the logs of a range that touch these wallets.

        Raises:
            RpcResponseError: The endpoint refuses the range.
        """
        span = {"fromBlock": hex(first), "toBlock": hex(last)}
        token, settlement, wallets = watched.token, watched.settlement, sorted(watched.wallets)
        requests: list[Request] = []
        for start in range(0, len(wallets), WALLETS_PER_QUERY):
            group = [address_topic(wallet) for wallet in wallets[start : start + WALLETS_PER_QUERY]]
            for address, topics in (
                (token, [TRANSFER_TOPIC, group]),
                (token, [TRANSFER_TOPIC, None, group]),
                (token, [APPROVAL_TOPIC, group, address_topic(settlement)]),
                (settlement, [SETTLED_TOPIC, None, group]),
                (settlement, [SETTLED_TOPIC, None, None, group]),
            ):
                requests.append(("eth_getLogs", [{"address": address, "topics": topics} | span]))
        logs: list[Log] = []
        for answer in await self._rpc.batch(requests):
            if isinstance(answer, RpcResponseError):
                raise answer
            logs += [log_of(entry) for entry in answer]
        return logs
