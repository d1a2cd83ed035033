"""Multicall3: many calls of contracts in one `eth_call` (https://github.com/mds1/multicall).

Its address is the same on every public chain that has it.
"""

from collections.abc import Sequence
from typing import Final

from eth_abi.abi import decode, encode

from sightline.chain.contracts.abi import selector

MULTICALL3: Final = "0xcA11bde05977b3631167028862bE2a173976CA11"
AGGREGATE3: Final = selector("aggregate3((address,bool,bytes)[])")
_CALLS: Final = ["(address,bool,bytes)[]"]
_RESULTS: Final = ["(bool,bytes)[]"]


def aggregate3(calls: Sequence[tuple[str, bytes]]) -> bytes:
    """Encode a call of `aggregate3` in which each call may fail by itself.

    Args:
        calls: Address and call data of each.
    """
    return AGGREGATE3 + encode(_CALLS, [[(to, True, data) for to, data in calls]])


def results_of(output: bytes, count: int) -> list[tuple[bool, bytes]]:
    """Decode what `aggregate3` returned: whether each call succeeded, and its output.

    Raises:
        ValueError: It is not an answer of Multicall3 to this number of calls.
    """
    try:
        (results,) = decode(_RESULTS, output)
    except Exception as error:  # hostile bytes raise more than DecodingError
        raise ValueError(f"it is no answer of Multicall3: {error}") from error
    if len(results) != count:
        raise ValueError(f"{len(results)} results for {count} calls")
    return list(results)
