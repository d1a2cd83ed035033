"""Reads what the reconciliation needs from the endpoint: logs by range, receipts, blocks, and the contract's sums."""

from collections.abc import Sequence
from typing import Any, Final, final

from sightline.chain.reconcile.facts import TRANSFER, RawLog
from sightline.chain.rpc.client import JsonRpc, RpcResponseError
from sightline.domain.errors import ChainUnavailableError
from sightline.system.keccak import keccak256

SPAN_MAX: Final = 2_000
"""Blocks of one query of logs; halved when the endpoint refuses the range."""


@final
class ChainSource:
    """Reads one contract over JSON-RPC."""

    def __init__(self, rpc: JsonRpc, *, token: str, contract: str, is_escrow: bool) -> None:
        self._rpc = rpc
        self.token = token.lower()
        self.contract = contract.lower()
        self.is_escrow = is_escrow
        self._span = SPAN_MAX

    async def logs(self, first: int, last: int) -> tuple[int, list[RawLog]]:
        """Read the contract's logs and its transfers in a range; returns the last block that was read.

        Raises:
            ChainUnavailableError: The endpoint does not answer.
        """
        word = "0x" + self.contract[2:].rjust(64, "0")
        while True:
            through = min(last, first + self._span - 1)
            asked: tuple[dict[str, Any], ...] = (
                {"address": self.contract},
                {"address": self.token, "topics": [TRANSFER, word]},
                {"address": self.token, "topics": [TRANSFER, None, word]},
            )
            span = {"fromBlock": hex(first), "toBlock": hex(through)}
            answers = await self._rpc.batch([("eth_getLogs", [query | span]) for query in asked])
            failed = [answer for answer in answers if not isinstance(answer, list)]
            if not failed:
                found = {(log.block, log.index): log for answer in answers for log in map(RawLog.of, answer)}
                return through, list(found.values())
            if self._span == 1 or not isinstance(failed[0], RpcResponseError):
                raise ChainUnavailableError(f"no logs of blocks {first} to {through}: {failed[0]}")
            self._span = max(1, self._span // 2)

    async def receipts(self, tx_hashes: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Read the receipts of those of these transactions that are in a block."""
        answers = await self._rpc.batch([("eth_getTransactionReceipt", [tx_hash]) for tx_hash in tx_hashes])
        found = {}
        for tx_hash, answer in zip(tx_hashes, answers, strict=True):
            if isinstance(answer, RpcResponseError):
                raise ChainUnavailableError(f"no receipt of {tx_hash}: {answer.message}") from answer
            if answer is not None:
                found[tx_hash] = answer
        return found

    async def block_hashes(self, numbers: Sequence[int]) -> dict[int, str]:
        """Read the hashes of blocks; blocks that are not there are left out."""
        answers = await self._rpc.batch([("eth_getBlockByNumber", [hex(number), False]) for number in numbers])
        return {
            number: str(answer["hash"]).lower()
            for number, answer in zip(numbers, answers, strict=True)
            if isinstance(answer, dict)
        }

    async def sums(self, block_hash: str) -> dict[str, int]:
        """Read what the contract has at a block: its balance, and with escrow what it holds and owes.

        Raises:
            ChainUnavailableError: The endpoint does not answer, or does not keep that block's state.
        """
        asked = {"escrow": (self.token, "balanceOf(address)" + self.contract)}
        if self.is_escrow:
            asked |= {"held": (self.contract, "totalHeld()"), "credit": (self.contract, "totalCredit()")}
        answers = await self._rpc.batch(
            [("eth_call", [{"to": to, "data": _data(call)}, {"blockHash": block_hash}]) for to, call in asked.values()]
        )
        for answer in answers:
            if not isinstance(answer, str) or len(answer) != 66:
                raise ChainUnavailableError(f"the contract's sums at block {block_hash} cannot be read: {answer}")
        return {name: int(answer, 16) for name, answer in zip(asked, answers, strict=True)}


def _data(call: str) -> str:
    """Encode a call of a function with at most one address, which follows its signature."""
    signature, end, address = call.partition(")")
    selector = keccak256((signature + end).encode())[:4].hex()
    return "0x" + selector + (address[2:].rjust(64, "0") if address else "")
