"""Reads contracts and accounts over JSON-RPC, for signature checks and for the watcher."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import structlog
from eth_utils.address import to_checksum_address

from sightline.chain.contracts.abi import call_data, revert_reason
from sightline.chain.rpc.client import JsonRpc, RpcResponseError
from sightline.chain.rpc.multicall import MULTICALL3, aggregate3, results_of
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.chain import CALL_GAS_DEFAULT, CallRevertedError
from sightline.ports.ledger import BlockRef, SpendingLimits

log = structlog.get_logger()

ContractCall: TypeAlias = tuple[str, bytes]
"""A contract's address and the call data."""

CALLS_MAX: Final = 300
"""Maximum number of calls in one of Multicall3: about 3 million gas, where nodes allow 50 million and more."""

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
    """Implements ChainReader over one endpoint, and reads balances, allowances and limits.

    Where the chain has Multicall3, many of these are one request, because providers count and charge requests.
    """

    def __init__(self, rpc: JsonRpc, *, token: str, settlement: str, has_limits: bool = True) -> None:
        """Args: has_limits: whether payers can set limits on the contract; SessionEscrow has none but mandates."""
        self._has_limits = has_limits
        self._rpc = rpc
        self._token = token
        self._settlement = settlement
        self._has_multicall: bool | None = None
        """None: not asked yet."""

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
        calls: list[ContractCall] = []
        for address in addresses:
            account = to_checksum_address(address)
            calls.append((self._token, call_data("balanceOf(address)", [account])))
            calls.append((self._token, call_data("allowance(address,address)", [account, self._settlement])))
        # The block may be older than Multicall3, too.
        answers = await (self._read_each if may_lack_code else self._read)(calls, block_hash)
        numbers = [0 if may_lack_code and not answer else _number(answer) for answer in answers]
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
        accounts = [to_checksum_address(address) for address in addresses]
        words = await self._read(
            [(self._settlement, call_data("limits(address)", [account])) for account in accounts], block_hash
        )
        limited = [
            (address, account, word)
            for address, account, word in zip(addresses, accounts, words, strict=True)
            if int.from_bytes(word[64:96], "big") == 1
        ]
        spent = await self._read(
            [
                (self._settlement, call_data("spentOnDay(address,uint256)", [account, day]))
                for _, account, _ in limited
            ],
            block_hash,
        )  # fmt: skip
        found: dict[str, SpendingLimits | None] = dict.fromkeys(addresses)
        for (address, _, word), taken in zip(limited, spent, strict=True):
            found[address] = SpendingLimits(
                per_session=int.from_bytes(word[:32], "big"), per_day=int.from_bytes(word[32:64], "big"),
                spent=_number(taken), day=day,
            )  # fmt: skip
        return found

    async def _read(self, calls: Sequence[ContractCall], block_hash: str) -> list[bytes]:
        if len(calls) <= 1 or not await self._may_gather():
            return await self._read_each(calls, block_hash)
        answers: list[bytes] = []
        for start in range(0, len(calls), CALLS_MAX):
            some = calls[start : start + CALLS_MAX]
            try:
                answers += await self._read_gathered(some, block_hash)
            except (RpcResponseError, ValueError) as error:
                answers += await self._read_each(calls[start:], block_hash)
                # Neither the block nor a call is at fault, so it is Multicall3: leave it until the next start.
                log.warning("multicall_refused", reason=str(error))
                self._has_multicall = False
                break
        return answers

    async def _may_gather(self) -> bool:
        if self._has_multicall is None:
            self._has_multicall = bool(await self.code(MULTICALL3))
        return self._has_multicall

    async def _read_gathered(self, calls: Sequence[ContractCall], block_hash: str) -> list[bytes]:
        (answer,) = await self._rpc.batch([_pinned(MULTICALL3, aggregate3(calls), block_hash)])
        if isinstance(answer, RpcResponseError):
            raise answer
        results = results_of(hex_bytes(answer), len(calls))
        for has_succeeded, output in results:
            if not has_succeeded:
                raise RpcResponseError(_REVERTED, revert_reason(output) or "execution reverted", output)
        return [output for _, output in results]

    async def _read_each(self, calls: Sequence[ContractCall], block_hash: str) -> list[bytes]:
        results = await self._rpc.batch([_pinned(to, data, block_hash) for to, data in calls])
        for result in results:
            if isinstance(result, RpcResponseError):
                raise ChainUnavailableError(f"a pinned read failed: {result.message}") from result
        return [hex_bytes(result) for result in results]


def _pinned(to: str, data: bytes, block_hash: str) -> tuple[str, list[Any]]:
    return "eth_call", [{"to": to, "data": "0x" + data.hex()}, {"blockHash": block_hash}]


def _number(output: bytes) -> int:
    if not output:
        raise ChainUnavailableError("the endpoint's answer is not a number")
    return int.from_bytes(output, "big")
