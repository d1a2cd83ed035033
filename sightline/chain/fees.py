"""What a transaction offers for its place in a block, and when that is too much."""

from dataclasses import dataclass
from typing import Any, Final, final

from sightline.chain.rpc.client import RpcResponseError
from sightline.chain.rpc.reader import hex_int

TIP_WEI_DEFAULT: Final = 1_000_000_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fees:
    """What a transaction offers per gas (EIP-1559)."""

    max_fee_wei: int
    tip_wei: int


def suggested(head: dict[str, Any], tip: Any) -> Fees:
    """Fees that outlast six full blocks: twice the base fee, and the tip the node proposes.

    Args:
        head: The latest block.
        tip: The answer to eth_maxPriorityFeePerGas; an error (not every node has it) means one gwei.
    """
    base = hex_int(head.get("baseFeePerGas") or "0x0")
    tip_wei = TIP_WEI_DEFAULT if isinstance(tip, RpcResponseError) else hex_int(tip)
    return Fees(max_fee_wei=2 * base + tip_wei, tip_wei=tip_wei)


def bumped(old: Fees, current: Fees) -> Fees:
    """Fees for a replacement: both at least 12.5 % over the old ones (nodes ask for 10 %), and no less than current."""
    tip = max(current.tip_wei, _raised(old.tip_wei))
    return Fees(max_fee_wei=max(current.max_fee_wei, _raised(old.max_fee_wei), tip), tip_wei=tip)


def _raised(wei: int) -> int:
    return wei + wei // 8 + 1
