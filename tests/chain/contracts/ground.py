"""Two ways to run contracts in a test: calls that take effect at once without blocks, and transactions in blocks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from eth.constants import CREATE_CONTRACT_ADDRESS
from eth.vm.message import Message
from eth_utils.address import to_canonical_address, to_checksum_address
from vyper.compiler import compile_code
from vyper.compiler.settings import OptimizationLevel, Settings

from contracts.build import EVM_VERSION
from sightline.chain.contracts.abi import call_data, revert_reason
from sightline.chain.embedded.machine import EvmCall, ExecutionError, Machine
from sightline.chain.signer import Fees, Signer
from sightline.domain.value import Value
from sightline.system.keccak import keccak256
from tests.chain.evm import RevertedError

CHAIN_ID = 84_532_001
START_S = 1_900_000_000
GAS = 30_000_000
SOURCES = Path(__file__).parent / "sources"


@dataclass
class SteppedClock:
    """A clock with which the test sets block timestamps."""

    ms: int = START_S * 1_000

    def now_ms(self) -> int:
        return self.ms


class Done(Value):
    """The logs of a call that succeeded, as (address, topics, data), and its gas."""

    logs: list[tuple[str, list[str], bytes]]
    gas: int

    def of(self, topic: str) -> list[tuple[list[str], bytes]]:
        return [(topics, data) for _, topics, data in self.logs if topics[0] == topic]


class Ground(Protocol):
    """Where contracts run."""

    @property
    def now_s(self) -> int: ...
    def wait(self, seconds: int) -> None: ...
    def create(self, code: bytes) -> str: ...
    def call(self, sender: Signer, to: str, data: bytes) -> Done: ...
    def view(self, to: str, data: bytes) -> bytes: ...


def signer_of(name: str) -> Signer:
    return Signer(keccak256(name.encode()))


def ask(ground: Ground, to: str, signature: str, *values: Any) -> int:
    return int.from_bytes(ground.view(to, call_data(signature, values))[:32], "big")


@cache
def compiled(source: str, optimize: OptimizationLevel = OptimizationLevel.GAS) -> bytes:
    """Compile a source text to its creation code."""
    settings = Settings(evm_version=EVM_VERSION, optimize=optimize)
    output = compile_code(source, output_formats=["bytecode"], settings=settings)
    return bytes.fromhex(output["bytecode"].removeprefix("0x"))


def test_source(name: str) -> bytes:
    """Compile a contract that only tests use."""
    return compiled((SOURCES / f"{name}.vy").read_text(encoding="ascii"))


test_source.__test__ = False  # type: ignore[attr-defined]  # a helper whose name pytest would collect


class DirectGround:
    """Runs each call on one state, without transactions, blocks or fees: fast. Gas is that of the call alone."""

    def __init__(self, directory: Path, *, chain_id: int = CHAIN_ID) -> None:
        self._machine = Machine(directory / "chain.sqlite", chain_id=chain_id, rich={}, clock=SteppedClock())
        self._state = self._machine._machine_at(self._machine.head).state
        self._context = self._state.execution_context
        self._created = 0
        self.creation = Done([], 0)
        """The logs of the last creation."""
        self.now_s = START_S

    @property
    def now_s(self) -> int:
        return int(self._context._timestamp)

    @now_s.setter
    def now_s(self, value: int) -> None:
        self._context._timestamp = value

    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    def close(self) -> None:
        self._machine.store.close()

    def fork(self, chain_id: int) -> None:
        """Go on as another chain with the same contracts."""
        self._context._chain_id = chain_id

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo at the end what was done inside."""
        started_s, state = self.now_s, self._state.snapshot()
        yield
        self._state.revert(state)
        self.now_s = started_s
        self._context._chain_id = self._machine.chain_id

    def create(self, code: bytes) -> str:
        self._created += 1
        address = keccak256(b"contract %d" % self._created)[12:]
        message = Message(
            gas=GAS, to=CREATE_CONTRACT_ADDRESS, sender=bytes(19) + b"\x01", value=0, data=b"", code=code,
            create_address=address,
        )  # fmt: skip
        self.creation = self._done(self._applied(message, is_creation=True))
        return to_checksum_address(address)

    def delegate(self, account: Signer, code_of: str) -> None:
        """Let an account delegate to a contract's code (EIP-7702)."""
        self._state.set_code(to_canonical_address(account.address), b"\xef\x01\x00" + to_canonical_address(code_of))

    def call(self, sender: Signer, to: str, data: bytes) -> Done:
        return self._done(self._applied(self._message(to_canonical_address(sender.address), to, data)))

    def _done(self, computation: Any) -> Done:
        logs = [
            (to_checksum_address(address), ["0x" + topic.to_bytes(32).hex() for topic in topics], bytes(data))
            for address, topics, data in computation.get_log_entries()
        ]
        return Done(logs, int(computation.get_gas_used()))

    def view(self, to: str, data: bytes) -> bytes:
        state = self._state.snapshot()
        try:
            return bytes(self._applied(self._message(bytes(20), to, data)).output)
        finally:
            self._state.revert(state)

    def _message(self, sender: bytes, to: str, data: bytes) -> Message:
        target = to_canonical_address(to)
        return Message(
            gas=GAS, to=target, sender=sender, value=0, data=data, code=self._state.get_code(target)
        )  # fmt: skip

    def _applied(self, message: Message, *, is_creation: bool = False) -> Any:
        kind = self._state.computation_class
        context = self._state.get_transaction_context_class()(gas_price=0, origin=message.sender)
        run = kind.apply_create_message if is_creation else kind.apply_message
        computation = run(self._state, message, context)
        self._state.clear_transient_storage()
        if computation.is_error:
            raise RevertedError(revert_reason(bytes(computation.output)) or repr(computation.error))
        return computation


class MinedGround:
    """Mines each call as a transaction of its own block. Gas is that of the transaction."""

    def __init__(self, directory: Path, rich: list[Signer]) -> None:
        self._deployer = signer_of("deployer of contracts")
        accounts = [self._deployer, *rich]
        self._clock = SteppedClock()
        self._machine = Machine(
            directory / "chain.sqlite", chain_id=CHAIN_ID, rich={each.address: 10**24 for each in accounts},
            clock=self._clock,
        )  # fmt: skip

    @property
    def now_s(self) -> int:
        return self._clock.ms // 1_000

    def wait(self, seconds: int) -> None:
        self._clock.ms += seconds * 1_000

    def close(self) -> None:
        self._machine.store.close()

    def create(self, code: bytes) -> str:
        return str(self._mined(self._deployer, None, code)["contractAddress"])

    def call(self, sender: Signer, to: str, data: bytes) -> Done:
        receipt = self._mined(sender, to, data)
        logs = [(log["address"], log["topics"], bytes.fromhex(log["data"][2:])) for log in receipt["logs"]]
        return Done(logs, int(receipt["gasUsed"], 16))

    def view(self, to: str, data: bytes) -> bytes:
        return self._ran(bytes(20), to, data)

    def _ran(self, sender: bytes, to: str, data: bytes) -> bytes:
        call = EvmCall(sender=sender, to=to_canonical_address(to), data=data, value=0, gas=GAS)
        try:
            return self._machine.run(call, self._machine.head, deadline_s=float("inf"))[0]
        except ExecutionError as error:
            raise RevertedError(revert_reason(error.output or b"") or str(error)) from error

    def _mined(self, sender: Signer, to: str | None, data: bytes) -> dict[str, Any]:
        account = to_canonical_address(sender.address)
        _, raw = sender.sign(
            chain_id=CHAIN_ID, nonce=self._machine.nonce(account, self._machine.head), to=to, data=data,
            gas=15_000_000, fees=Fees(max_fee_wei=10**10, tip_wei=10**9),
        )  # fmt: skip
        transaction = self._machine.decode(raw)
        mined = self._machine.mine([transaction])
        assert mined.rejected == {}
        receipt = self._machine.store.receipt("0x" + transaction.hash.hex())
        assert receipt is not None
        if receipt["status"] != "0x1":
            assert to is not None, "a creation reverted"
            self._ran(account, to, data)
            raise RevertedError("reverted when mined, not when called")
        return receipt
