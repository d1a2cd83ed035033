"""The execution rules of the embedded chain: Prague, with a limit on the CPU time of one call.

Gas prices assume native code, but py-evm is Python. Measured with 6 million gas: an endless loop took 1.5 to 2 s; one
pairing (0x08) took 0.25 to 1.1 s for 34,000 gas; blake2 (0x09), at one gas a round, did not end within a limit of
100 s. The pure Python precompiles are therefore disabled. CPU time is checked at every jump target and every call,
which bounds loops of opcodes; a single precompile that is already running is not interrupted.
"""

import time
from typing import Any, Final

from eth.abc import ComputationAPI
from eth.exceptions import VMError
from eth.vm.forks.prague import PragueVM
from eth.vm.forks.prague.computation import PragueComputation
from eth.vm.forks.prague.state import PragueState
from eth.vm.logic import flow
from eth.vm.opcode import as_opcode

JUMPDEST: Final = 0x5B
JUMPDEST_GAS: Final = 1
# Elliptic curves (0x06 to 0x08 and 0x0b to 0x11) and blake2 (0x09), which py-evm computes in Python.
UNAVAILABLE: Final = frozenset({*range(0x06, 0x0A), *range(0x0B, 0x12)})


class OutOfTimeError(VMError):
    """The execution has used its CPU time."""


class PrecompileUnavailableError(VMError):
    """The embedded chain does not have this precompile."""


def _unavailable(computation: ComputationAPI) -> ComputationAPI:
    raise PrecompileUnavailableError(f"precompile {computation.msg.code_address.hex()} is not available here")


class EmbeddedState(PragueState):
    """A state whose executions stop at a limit of their thread's CPU time; infinite until it is set."""

    deadline_s: float = float("inf")

    def require_time(self) -> None:
        """Stop the execution when its CPU time is used up.

        Raises:
            OutOfTimeError: The CPU time is used up.
        """
        if time.thread_time() > self.deadline_s:
            raise OutOfTimeError("execution failed: it takes too much CPU time")


class EmbeddedComputation(PragueComputation):
    """Checks the CPU time at every jump target and every call. A loop of opcodes always passes one of them."""

    @classmethod
    def apply_computation(
        cls, state: Any, message: Any, transaction_context: Any, parent_computation: Any = None
    ) -> Any:
        """Run a message if CPU time is left."""
        state.require_time()
        return super().apply_computation(state, message, transaction_context, parent_computation)


def _jumpdest(computation: Any) -> None:
    computation.state.require_time()
    flow.jumpdest(computation)


EmbeddedComputation._precompiles = {  # noqa: SLF001  # py-evm has no public way to set them
    address: _unavailable if int.from_bytes(address, "big") in UNAVAILABLE else function
    for address, function in PragueComputation.get_precompiles().items()
}
EmbeddedComputation.opcodes = {
    **PragueComputation.opcodes,
    JUMPDEST: as_opcode(_jumpdest, "JUMPDEST", JUMPDEST_GAS),
}
EmbeddedState.computation_class = EmbeddedComputation


class EmbeddedVM(PragueVM):
    """Prague rules, except that a block may have its parent's timestamp, because blocks are mined on demand."""

    _state_class = EmbeddedState  # type: ignore[mutable-override]  # how py-evm's forks name their state

    @classmethod
    def validate_header(cls, header: Any, parent_header: Any) -> None:
        """Validate a header as if its parent's timestamp were one second earlier."""
        if parent_header is not None:
            parent_header = parent_header.copy(timestamp=parent_header.timestamp - 1)
        super().validate_header(header, parent_header)
