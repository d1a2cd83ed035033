"""Reads contracts and accounts over JSON-RPC, for signature checks and for the watcher."""

from collections.abc import Sequence
from typing import Any, Final, final

from eth_utils.address import to_checksum_address

from sightline.chain.contracts.abi import call_data, revert_reason
from sightline.chain.rpc.client import JsonRpc, RpcResponseError
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.chain import CALL_GAS_DEFAULT, CallRevertedError
from sightline.ports.ledger import BlockRef, SpendingLimits

# Error texts of nodes for a call that the contract made fail. Any other error is a failure of the node, and says
# nothing about the contract's answer.
_CALL_FAULTS: Final = (
    "revert", "out of gas", "outofgas", "gas required exceeds", "execution failed", "evm error", "invalid opcode",
    "invalid jump",
)  # fmt: skip
_REVERTED: Final = 3


def is_call_fault(error: RpcResponseError) -> bool:
    """Return whether the error means that the call itself failed, and not the node."""
    text = error.message.lower()
    return error.code == _REVERTED or any(fault in text for fault in _CALL_FAULTS)


def fault_text(error: RpcResponseError) -> str:
    """Return why a call failed, with the contract's revert reason if there is one."""
    return revert_reason(error.data or b"") or error.message


def hex_bytes(text: Any) -> bytes:
    """Decode bytes from a JSON-RPC result.

    Raises:
        ChainUnavailableError: The result is not hex bytes.
    """
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except (AttributeError, ValueError) as error:
        raise ChainUnavailableError("the endpoint's answer is not hex") from error


def hex_int(text: Any) -> int:
    """Decode a number from a JSON-RPC result.

    Raises:
        ChainUnavailableError: The result is not a hex number.
    """
    try:
        return int(text, 16)
    except (TypeError, ValueError) as error:
        raise ChainUnavailableError("the endpoint's answer is not a number") from error


def block_ref(block: dict[str, Any]) -> BlockRef:
    """Return the number, hash and parent hash of a JSON-RPC block."""
    try:
        return BlockRef(
            number=hex_int(block["number"]),
            block_hash=str(block["hash"]).lower(),
            parent_hash=str(block["parentHash"]).lower(),
        )
    except (KeyError, TypeError) as error:
        raise ChainUnavailableError("the endpoint's answer is not a block") from error


def block_time_ms(block: dict[str, Any]) -> int:
    """Return the time of a JSON-RPC block in milliseconds since the epoch."""
    return 1_000 * hex_int(block.get("timestamp"))


@final
class RpcReader:
    """Implements ChainReader over one endpoint, and reads balances, allowances and limits."""

    def __init__(self, rpc: JsonRpc, *, token: str, settlement: str, has_limits: bool = True) -> None:
        """Args: has_limits: whether payers can set limits on the contract; SessionEscrow has none but mandates."""
        self._has_limits = has_limits
        self._rpc = rpc
        self._token = token
        self._settlement = settlement

    async def call(
        self, to: str | None, data: bytes, *, gas_cap: int = CALL_GAS_DEFAULT, block: str = "latest"
    ) -> bytes:
        """Run eth_call and return its output."""
        request = {"data": "0x" + data.hex(), "gas": hex(gas_cap)}
        if to is not None:
            request["to"] = to_checksum_address(to)
        try:
            return hex_bytes(await self._rpc.call("eth_call", request, block))
        except RpcResponseError as error:
            if is_call_fault(error):
                raise CallRevertedError(fault_text(error), error.data or b"") from error
            raise ChainUnavailableError(error.message) from error

    async def code(self, address: str, *, block: str = "latest") -> bytes:
        """Return the account's code."""
        try:
            return hex_bytes(await self._rpc.call("eth_getCode", to_checksum_address(address), block))
        except RpcResponseError as error:
            raise ChainUnavailableError(error.message) from error

    async def balances_and_allowances(
        self, addresses: Sequence[str], block_hash: str, *, may_lack_code: bool = False
    ) -> list[tuple[int, int]]:
        """Read the balance and the settlement contract's allowance of each address, pinned to one block (EIP-1898).

        Args:
            may_lack_code: The block may be older than the token; then every number is zero.

        Raises:
            ChainUnavailableError: At least one number could not be read at that block.
        """
        pinned = {"blockHash": block_hash}
        requests: list[tuple[str, list[Any]]] = []
        for address in addresses:
            account = to_checksum_address(address)
            questions = (
                call_data("balanceOf(address)", [account]),
                call_data("allowance(address,address)", [account, self._settlement]),
            )
            requests += [("eth_call", [{"to": self._token, "data": "0x" + data.hex()}, pinned]) for data in questions]
        numbers = [
            0 if may_lack_code and result == "0x" else hex_int(result) for result in await self._pinned(requests)
        ]
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    async def spending_limits(
        self, addresses: Sequence[str], block_hash: str, *, day: int
    ) -> dict[str, SpendingLimits | None]:
        """Read the limits that each address set on the settlement contract, and the amount spent on a UTC day.

        Raises:
            ChainUnavailableError: At least one number could not be read at that block.
        """
        if not self._has_limits:
            return dict.fromkeys(addresses)
        pinned = {"blockHash": block_hash}
        accounts = [to_checksum_address(address) for address in addresses]
        answers = await self._pinned([self._asked("limits(address)", [each], pinned) for each in accounts])
        words = [hex_bytes(answer) for answer in answers]
        limited = [
            (address, account, word)
            for address, account, word in zip(addresses, accounts, words, strict=True)
            if int.from_bytes(word[64:96], "big") == 1
        ]
        spent = await self._pinned(
            [self._asked("spentOnDay(address,uint256)", [account, day], pinned) for _, account, _ in limited]
        )
        found: dict[str, SpendingLimits | None] = dict.fromkeys(addresses)
        for (address, _, word), taken in zip(limited, spent, strict=True):
            found[address] = SpendingLimits(
                per_session=int.from_bytes(word[:32], "big"), per_day=int.from_bytes(word[32:64], "big"),
                spent=hex_int(taken), day=day,
            )  # fmt: skip
        return found

    def _asked(self, signature: str, values: Sequence[Any], pinned: dict[str, str]) -> tuple[str, list[Any]]:
        data = call_data(signature, values)
        return "eth_call", [{"to": self._settlement, "data": "0x" + data.hex()}, pinned]

    async def _pinned(self, requests: Sequence[tuple[str, list[Any]]]) -> list[Any]:
        results = await self._rpc.batch(requests)
        for result in results:
            if isinstance(result, RpcResponseError):
                raise ChainUnavailableError(f"a pinned read failed: {result.message}") from result
        return results
