"""Computes what the relayer pays: for a transaction by its receipt, for a session by present prices.

Chains of the OP stack charge two fees beside the gas: for the data that they write to Ethereum, and for their operator.
The maximum fee of a transaction does not bound them.
"""

from collections.abc import Mapping
from typing import Any, Final, final

from sightline.chain.contracts.abi import call_data
from sightline.chain.fees import ABOUT_FEES, suggested
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import hex_int
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import Value

GAS_PRICE_ORACLE: Final = "0x420000000000000000000000000000000000000F"
SESSION_GAS: Final = 220_000
"""Gas of a session with the test USDC, its open and its capture alone, for a payee who has never held USDC."""
OPEN_BYTES: Final = 1_200
"""Size of a transaction that opens a hold, by a mandate and with signatures of keys; the other ways take less."""
CAPTURE_BYTES: Final = 700
"""Size of a transaction that captures one hold."""
_ANSWER_HEX: Final = 66


@final
class SessionCost(Value, kw_only=True):
    """What a session costs the relayer at present prices, at most, in wei."""

    gas_wei: int
    beside_gas_wei: int
    """The L1 data fee and the operator fee; 0 on chains that have none."""

    @property
    def total_wei(self) -> int:
        """The sum, at least 1."""
        return max(1, self.gas_wei + self.beside_gas_wei)


def paid_wei(receipt: Mapping[str, Any]) -> int:
    """Return what the sender paid for a mined transaction.

    Source: OP stack specification, "L2 execution engine": `l1Fee`; "Jovian": gasUsed x operatorFeeScalar x 100 +
    operatorFeeConstant.
    """
    gas_used = hex_int(receipt["gasUsed"])
    beside = sum(hex_int(receipt.get(name) or "0x0") for name in ("l1Fee", "operatorFeeConstant"))
    operator = gas_used * hex_int(receipt.get("operatorFeeScalar") or "0x0") * 100
    return gas_used * hex_int(receipt["effectiveGasPrice"]) + beside + operator


async def session_cost(rpc: JsonRpc) -> SessionCost:
    """Ask for the present prices, and return the cost of a session.

    Raises:
        ChainUnavailableError: The endpoint did not answer.
    """
    head, history, tip, *beside = await rpc.batch(
        [
            ("eth_getBlockByNumber", ["latest", False]),
            *ABOUT_FEES,
            _asked("getL1FeeUpperBound(uint256)", OPEN_BYTES),
            _asked("getL1FeeUpperBound(uint256)", CAPTURE_BYTES),
            _asked("getOperatorFee(uint256)", SESSION_GAS),
        ]
    )
    if not isinstance(head, dict):
        raise ChainUnavailableError("the endpoint has no latest block")
    price_wei = suggested(head, history, tip).max_fee_wei
    return SessionCost(gas_wei=SESSION_GAS * price_wei, beside_gas_wei=sum(map(_fee, beside)))


def _asked(signature: str, number: int) -> Request:
    call = {"to": GAS_PRICE_ORACLE, "data": "0x" + call_data(signature, [number]).hex()}
    return "eth_call", [call, "latest"]


def _fee(answer: Any) -> int:
    """Return a fee; 0 where the contract or its method does not exist."""
    if isinstance(answer, RpcResponseError) or not isinstance(answer, str) or len(answer) != _ANSWER_HEX:
        return 0
    return hex_int(answer)
