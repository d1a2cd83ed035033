"""Computes the gas fees of a transaction, and of its replacement."""

from dataclasses import dataclass
from typing import Any, Final, final

from sightline.chain.rpc.client import RpcResponseError
from sightline.chain.rpc.reader import hex_int

TIP_WEI_DEFAULT: Final = 1_000_000_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fees:
    """The maximum fee and the tip per gas of a transaction, in wei (EIP-1559)."""

    max_fee_wei: int
    tip_wei: int


def suggested(head: dict[str, Any], tip: Any) -> Fees:
    """Return fees that stay valid for six full blocks: twice the base fee, plus the tip that the node proposes.

    Args:
        head: The latest block.
        tip: The response to eth_maxPriorityFeePerGas. On an error (some nodes lack the method) the tip is one gwei.
    """
    base = hex_int(head.get("baseFeePerGas") or "0x0")
    tip_wei = TIP_WEI_DEFAULT if isinstance(tip, RpcResponseError) else hex_int(tip)
    return Fees(max_fee_wei=2 * base + tip_wei, tip_wei=tip_wei)


def bumped(old: Fees, current: Fees) -> Fees:
    """Return replacement fees: each at least 12.5 % above the old one and not below the current one.

    Nodes require 10 %.
    """
    tip = max(current.tip_wei, _raised(old.tip_wei))
    return Fees(max_fee_wei=max(current.max_fee_wei, _raised(old.max_fee_wei), tip), tip_wei=tip)


def _raised(wei: int) -> int:
    return wei + wei // 8 + 1
