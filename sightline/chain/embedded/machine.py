"""Runs the EVM chain: genesis, mining, calls. `methods` calls every method under one lock."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

from eth import constants
from eth.abc import VirtualMachineAPI
from eth.chains.base import MiningChain
from eth.constants import POST_MERGE_DIFFICULTY, POST_MERGE_MIX_HASH, POST_MERGE_NONCE
from eth.db.atomic import AtomicDB
from eth.exceptions import OutOfGas, Revert, VMError
from eth.vm.forks.prague.constants import STANDARD_TOKEN_COST, TOTAL_COST_FLOOR_PER_TOKEN
from eth.vm.message import Message
from eth_typing import Address, BlockNumber
from eth_utils.address import to_canonical_address
from eth_utils.exceptions import ValidationError
from eth_utils.hexadecimal import decode_hex

from sightline.chain.embedded import views
from sightline.chain.embedded.store import ChainStore, Json
from sightline.chain.embedded.vm import EmbeddedVM, OutOfTimeError
from sightline.domain.settlement import MAIN_NETWORKS
from sightline.domain.value import Value, replace
from sightline.ports.clock import Clock
from sightline.system.keccak import keccak256

BLOCK_GAS_MAX: Final = 16_000_000
# py-evm runs about 3 million gas of plain opcodes per second, and one call at a time.
CALL_GAS_MAX: Final = 6_000_000
CALL_CPU_S: Final = 0.25
"""CPU time limit of one eth_call or eth_estimateGas in seconds; a settlement takes about 0.02 s."""
TRANSACTION_CPU_S: Final = 2.0
"""CPU time limit in seconds of a transaction of the service itself; above its limit one fails and uses all its gas."""
GUEST_TRANSACTION_CPU_S: Final = 0.25
"""CPU time limit of one transaction of anybody else."""
GUESTS_CPU_S: Final = 0.5
"""CPU time in seconds after which a block takes no further transaction of guests."""
NO_ADDRESS: Final = Address(b"")
BLOB_TRANSACTION: Final = 3


class RejectedError(Exception):
    """The transaction cannot be included in a block."""


class ExecutionError(Exception):
    """A call failed. `output` is the revert data; None for another failure, such as out of gas."""

    def __init__(self, message: str, output: bytes | None) -> None:
        super().__init__(message)
        self.output = output


class UnknownBlockError(Exception):
    """The block does not exist."""


@final
class Mined(Value):
    """The CPU time in seconds of each transaction that one block mined or rejected, and why it was rejected."""

    cpu_s: dict[bytes, float]
    rejected: dict[bytes, RejectedError]


class EvmCall(Value, kw_only=True):
    """A message call without a transaction. With `to` empty, `data` runs as creation code."""

    sender: Address
    to: Address
    data: bytes
    value: int
    gas: int


def _chain_class(chain_id_value: int) -> type[Any]:
    class Chain(MiningChain):
        vm_configuration: tuple[tuple[BlockNumber, type[VirtualMachineAPI]], ...] = ((BlockNumber(0), EmbeddedVM),)
        chain_id = chain_id_value

    return Chain


@final
class _OpenBlock:
    """A block that is being filled."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.header = machine.get_header()
        self.mined: list[Any] = []
        self.receipts: list[Any] = []
        self.created: list[Any] = []

    def apply(self, transaction: Any) -> None:
        """Run a transaction and append it. Raises ValidationError if it is invalid; the block is unchanged then."""
        receipt, computation = self.machine.apply_transaction(self.header, transaction)
        self.header = self.machine.add_receipt_to_header(self.header, receipt)
        self.mined.append(transaction)
        self.receipts.append(receipt)
        self.created.append(None if transaction.to else computation.msg.storage_address)


@final
class Machine:
    """An EVM chain stored in a ChainStore."""

    def __init__(self, path: Path, *, chain_id: int, rich: dict[str, int], clock: Clock) -> None:
        """Open the chain, or create it with genesis accounts `rich` (address to wei). `clock` sets block timestamps.

        Raises:
            ValueError: The stored chain has another chain id, or the id is that of a main network.
        """
        self.store = ChainStore(path)
        self._clock = clock
        self.chain_id = chain_id
        self._chain_class = _chain_class(chain_id)
        recorded = self.store.meta("chainId")
        own = chain_id if recorded is None else int(recorded)
        if own in MAIN_NETWORKS:
            msg = f"The test chain of this data directory has the id of a main network, {own}. Use a new data directory"
            raise ValueError(msg)
        if recorded is None:
            self._found(rich)
        elif int(recorded) != chain_id:
            msg = f"The data directory holds chain {recorded}, not {chain_id}. Set SIGHTLINE_CHAIN_ID={recorded}"
            raise ValueError(msg)
        self._chain: Any = self._stored_chain()
        self.head = self._block(int(self._chain.get_canonical_head().block_number))
        self.genesis_hash: str = self._block(0)["hash"]

    def _stored_chain(self) -> Any:
        """Open py-evm's chain over the committed data, with empty caches."""
        return self._chain_class(AtomicDB(self.store.key_values))

    def _found(self, rich: dict[str, int]) -> None:
        genesis = {
            "coinbase": constants.ZERO_ADDRESS,
            "difficulty": POST_MERGE_DIFFICULTY,
            "extra_data": b"sightline",
            "gas_limit": BLOCK_GAS_MAX,
            "mix_hash": POST_MERGE_MIX_HASH,
            "nonce": POST_MERGE_NONCE,
            "receipt_root": constants.BLANK_ROOT_HASH,
            "transaction_root": constants.BLANK_ROOT_HASH,
            "timestamp": self._now_s(),
        }
        state = {
            to_canonical_address(account): {"balance": wei, "nonce": 0, "code": b"", "storage": {}}
            for account, wei in rich.items()
        }
        chain = self._chain_class.from_genesis(AtomicDB(self.store.key_values), genesis, state)
        block = chain.get_canonical_block_by_number(0)
        self.store.commit_genesis(views.block_view(block), {"chainId": str(self.chain_id)})

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000

    def _block(self, number: int) -> Json:
        block = self.store.block_by_number(number)
        if block is None:
            raise UnknownBlockError(f"block {number} is not known")
        return block

    def resolve(self, tag: str | None) -> Json:
        """Resolve a block tag or a hex number. State is that of the head for every tag; there are no reorganisations.

        Raises:
            UnknownBlockError: The number is above the head.
        """
        if tag in (None, "latest", "pending", "safe", "finalized"):
            return self.head
        if tag == "earliest":
            return self._block(0)
        return self._block(int(str(tag), 16))

    def next_block(self) -> Json:
        """The block that would be mined now, without transactions: it says what time a transaction would see."""
        return self.head | {
            "number": hex(int(self.head["number"], 16) + 1),
            "hash": None,
            "nonce": None,
            "logsBloom": None,
            "parentHash": self.head["hash"],
            "timestamp": hex(max(int(self.head["timestamp"], 16), self._now_s())),
            "gasUsed": "0x0",
            "transactions": [],
        }

    # Mining.

    def decode(self, raw: bytes) -> Any:
        """Decode a signed transaction.

        Raises:
            RejectedError: The bytes are not a valid transaction for this chain.
        """
        if raw[:1] == bytes([BLOB_TRANSACTION]):
            raise RejectedError("transaction type not supported")
        try:
            transaction = EmbeddedVM.get_transaction_builder().decode(raw)
            transaction.validate()
            transaction.check_signature_validity()
            _ = transaction.sender
        except Exception as error:  # decoding untrusted bytes can raise any exception
            raise RejectedError(f"invalid transaction: {error}") from error
        if transaction.chain_id not in (None, self.chain_id):
            raise RejectedError("invalid chain id for signer")
        if transaction.gas > BLOCK_GAS_MAX:
            raise RejectedError("exceeds block gas limit")
        return transaction

    def mine(self, own: list[Any], guests: Sequence[Any] = ()) -> Mined:
        """Mine as many of these transactions as fit into one block, `own` before `guests`.

        Those of guests have less CPU time each, and none is started after GUESTS_CPU_S. What is left over is neither
        mined nor rejected.

        Raises:
            sqlite3.Error: The block could not be written. The chain is unchanged.
        """
        try:
            return self._mine(own, guests)
        except BaseException:
            self._chain = self._stored_chain()
            raise
        finally:
            self.store.key_values.discard()

    def _mine(self, own: list[Any], guests: Sequence[Any]) -> Mined:
        outcome = Mined({}, {})
        parent = self._chain.get_canonical_head()
        header = self._chain.create_header_from_parent(
            parent, mix_hash=keccak256(parent.hash), gas_limit=BLOCK_GAS_MAX
        ).copy(timestamp=max(parent.timestamp, self._now_s()))
        block = _OpenBlock(self._chain.get_vm(header))
        for transaction in own:
            self._include(block, transaction, TRANSACTION_CPU_S, outcome)
        guests_end_s = time.thread_time() + GUESTS_CPU_S
        for transaction in guests:
            if time.thread_time() > guests_end_s:
                break
            self._include(block, transaction, GUEST_TRANSACTION_CPU_S, outcome)
        if block.mined:
            self._seal(block)
        return outcome

    def _include(self, block: "_OpenBlock", transaction: Any, cpu_s_max: float, outcome: Mined) -> None:
        """Run a transaction in the block, unless it does not fit or is rejected."""
        if block.header.gas_used + transaction.gas > BLOCK_GAS_MAX:
            return
        started_s = time.thread_time()
        refusal = self._refusal(block.machine.state, transaction, block.header.base_fee_per_gas)
        if refusal is None:
            block.machine.state.deadline_s = started_s + cpu_s_max
            try:
                block.apply(transaction)
            except ValidationError as error:
                refusal = str(error)
        if refusal is not None:
            outcome.rejected[transaction.hash] = RejectedError(refusal)
        outcome.cpu_s[transaction.hash] = time.thread_time() - started_s

    def _refusal(self, state: Any, transaction: Any, base_fee: int) -> str | None:
        """Return why a node would reject this transaction, with the texts that other nodes use."""
        nonce = state.get_nonce(transaction.sender)
        if self.store.transaction(views.data(transaction.hash)) is not None:
            return "already known"
        if transaction.nonce < nonce:
            return f"nonce too low: next nonce {nonce}, tx nonce {transaction.nonce}"
        if transaction.nonce > nonce:
            return f"nonce too high: next nonce {nonce}, tx nonce {transaction.nonce}"
        fee = transaction.max_fee_per_gas if views.transaction_type(transaction) >= 2 else transaction.gas_price
        if fee < base_fee:
            return f"max fee per gas less than block base fee: {fee} < {base_fee}"
        if state.get_balance(transaction.sender) < transaction.value + fee * transaction.gas:
            return "insufficient funds for gas * price + value"
        if transaction.gas < transaction.intrinsic_gas:
            return f"intrinsic gas too low: have {transaction.gas}, want {transaction.intrinsic_gas}"
        return None

    def _seal(self, block: "_OpenBlock") -> None:
        machine = block.machine
        filled = machine.set_block_transactions_and_withdrawals(
            machine.get_block(), block.header, block.mined, block.receipts
        )
        sealed = machine.mine_block(filled).block
        self._chain.persist_block(sealed)
        view = views.block_view(sealed)
        bodies = [views.transaction_view(item, sealed, position) for position, item in enumerate(block.mined)]
        answers = views.receipt_views(sealed, block.receipts, block.created)
        self.store.commit_block(view, zip(bodies, answers, strict=True))
        self.head = view

    # Reads.

    def _machine_at(self, block: Json) -> Any:
        return self._chain.get_vm(self._chain.get_block_header_by_hash(decode_hex(block["hash"])))

    def nonce(self, account: bytes, block: Json) -> int:
        """Return the number of transactions that the account has sent up to a block."""
        return int(self._machine_at(block).state.get_nonce(account))

    def balance(self, account: bytes, block: Json) -> int:
        """Return the account's balance in wei after a block."""
        return int(self._machine_at(block).state.get_balance(account))

    def code(self, account: bytes, block: Json) -> bytes:
        """Return the account's code after a block."""
        return bytes(self._machine_at(block).state.get_code(account))

    def slot(self, account: bytes, position: int, block: Json) -> int:
        """Return one storage word after a block."""
        return int(self._machine_at(block).state.get_storage(account, position))

    def run(self, call: EvmCall, block: Json, *, deadline_s: float | None = None) -> tuple[bytes, int]:
        """Run a call on the state after a block and discard its effects.

        Returns:
            The output and the gas used, without the intrinsic gas of a transaction.

        Raises:
            ExecutionError: The call reverts, fails, or uses more than CALL_CPU_S of CPU time.
        """
        state = self._machine_at(block).state
        state.deadline_s = time.thread_time() + CALL_CPU_S if deadline_s is None else deadline_s
        context = state.get_transaction_context_class()(gas_price=0, origin=call.sender)
        try:
            computation = self._computation(state, call, context)
            # A contract can catch the time-out of an inner call and return; that output must not be used as the result.
            state.require_time()
        except OutOfTimeError as error:
            raise ExecutionError(str(error), None) from error
        except VMError as error:
            raise ExecutionError(f"execution failed: {error}", None) from error
        if computation.is_error:
            fault = computation.error
            if isinstance(fault, Revert):
                raise ExecutionError("execution reverted", bytes(computation.output))
            raise ExecutionError("out of gas" if isinstance(fault, OutOfGas) else f"execution failed: {fault}", None)
        return bytes(computation.output), int(computation.get_gas_used())

    def _computation(self, state: Any, call: EvmCall, context: Any) -> Any:
        kind = state.computation_class
        if call.to == NO_ADDRESS:
            # Creation code may run at any address without code, because the call's effects are discarded.
            created = Address(keccak256(b"sightline call" + call.sender)[12:])
            message = Message(
                gas=call.gas, to=NO_ADDRESS, sender=call.sender, value=call.value, data=b"", code=call.data,
                create_address=created,
            )  # fmt: skip
            return kind.apply_create_message(state, message, context)
        code = state.get_code(call.to)
        # EIP-7702: an externally owned account that delegates to another account's code
        if code[:3] == b"\xef\x01\x00":
            code = state.get_code(bytes(code[3:23]))
        message = Message(gas=call.gas, to=call.to, sender=call.sender, value=call.value, data=call.data, code=code)
        return kind.apply_message(state, message, context)

    def estimate(self, call: EvmCall, block: Json) -> int:
        """Estimate the gas limit of a transaction with this call.

        Raises:
            ExecutionError: The call fails even with the maximum gas.
        """
        zeros = call.data.count(0)
        tokens = zeros + (len(call.data) - zeros) * STANDARD_TOKEN_COST
        floor = 21_000 + TOTAL_COST_FLOOR_PER_TOKEN * tokens
        intrinsic = 21_000 + 4 * tokens
        if call.to == NO_ADDRESS:
            intrinsic += 32_000 + 2 * ((len(call.data) + 31) // 32)
        deadline_s = time.thread_time() + CALL_CPU_S
        _, used = self.run(call, block, deadline_s=deadline_s)
        low, high = used, max(call.gas, used)
        guess = used
        # An inner call receives at most 63/64 of the remaining gas (EIP-150), so a limit equal to the gas used may be
        # too low.
        while True:
            try:
                self.run(replace(call, gas=guess), block, deadline_s=deadline_s)
            except ExecutionError:
                low = guess
                guess = min(high, guess + max(guess // 32, 2_300))
                if low >= high:
                    raise
            else:
                break
        return max(floor, intrinsic + guess)
