"""Computes the gas fees and the gas limit of a transaction, and the fees of its replacement."""

from collections.abc import Iterator, Sequence
from statistics import median_low
from typing import Any, Final

from sightline.chain.rpc.client import Request, RpcResponseError
from sightline.chain.rpc.reader import hex_int
from sightline.chain.signer import Fees
from sightline.domain.errors import ChainUnavailableError

TIP_WEI_DEFAULT: Final = 1_000_000_000
HISTORY_BLOCKS: Final = 20
ABOUT_FEES: Final[Sequence[Request]] = (
    ("eth_feeHistory", [hex(HISTORY_BLOCKS), "latest", [50]]),
    ("eth_maxPriorityFeePerGas", []),
)
"""Requests whose answers `suggested` takes after the latest block."""
GAS_MAX: Final = 16_000_000
"""Maximum gas limit of a transaction. Networks refuse more than 16,777,216 (EIP-7825)."""


def suggested(head: dict[str, Any], history: Any, tip: Any) -> Fees:
    """Return fees that stay valid for six full blocks: twice the base fee of the next block, plus a tip.

    The tip is what the median transaction of the last 20 blocks paid: the median block's 50th percentile. Blocks in
    which it is 0 do not count; they are empty, or hold the chain's own transactions only. If none counts, it is what
    the node proposes, else one gwei.

    Args:
        head: The latest block.
        history: The response to eth_feeHistory. On an error (some nodes lack the method) base fee and tip come from the
            other two.
        tip: The response to eth_maxPriorityFeePerGas, or its error.
    """
    base = hex_int(head.get("baseFeePerGas") or "0x0")
    tip_wei = TIP_WEI_DEFAULT if isinstance(tip, RpcResponseError) else hex_int(tip)
    if isinstance(history, dict):
        base_fees = history.get("baseFeePerGas") or ()
        base = hex_int(base_fees[-1]) if base_fees else base
        paid = [each for each in _rewards(history) if each]
        tip_wei = median_low(paid) if paid else tip_wei
    return Fees(max_fee_wei=2 * base + tip_wei, tip_wei=tip_wei)


def _rewards(history: dict[str, Any]) -> Iterator[int]:
    for row in history.get("reward") or ():
        if not isinstance(row, list) or not row:
            raise ChainUnavailableError("the endpoint's fee history has no rewards")
        yield hex_int(row[0])


def bumped(old: Fees, current: Fees) -> Fees:
    """Return replacement fees: each at least 12.5 % above the old one and not below the current one.

    Nodes require 10 %.
    """
    tip = max(current.tip_wei, _raised(old.tip_wei))
    return Fees(max_fee_wei=max(current.max_fee_wei, _raised(old.max_fee_wei), tip), tip_wei=tip)


def _raised(wei: int) -> int:
    return wei + wei // 8 + 1


def gas_with_margin(estimate: Any) -> int:
    """Return a gas limit a quarter above the response to eth_estimateGas."""
    return hex_int(estimate) * 5 // 4
