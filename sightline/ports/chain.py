"""The port of the chain: its configuration, pinned reads, the faucet, and news from relayer and watcher."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, final

from sightline.domain.errors import ChainUnavailableError, SightlineError
from sightline.domain.value import Value
from sightline.ports.ledger import SettlementState

__all__ = [
    "CALL_GAS_DEFAULT",
    "CallRevertedError",
    "ChainChangedError",
    "ChainConfig",
    "ChainReader",
    "ChainUnavailableError",
    "FaucetPayment",
    "OnFunds",
    "OnSettlement",
    "PayTestMoney",
    "RefundRequest",
    "SettlementUpdate",
]

CALL_GAS_DEFAULT: Final = 2_000_000


class CallRevertedError(SightlineError):
    """The contract call reverted. `data` holds the revert data as bytes."""

    def __init__(self, reason: str, data: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.data = data


class ChainChangedError(SightlineError):
    """The endpoint serves another chain than the one recorded in this database."""


@final
class ChainConfig(Value, kw_only=True):
    """The values with which a client configures its wallet; addresses are EIP-55.

    `rpc_url` is the address of the node. When `rpc_is_private`, the HTTP layer shows its own guarded endpoint instead.
    """

    environment: str
    chain_id: int
    chain_name: str
    rpc_url: str
    rpc_is_private: bool
    explorer_url: str
    usdc_address: str
    settlement_address: str
    is_escrow: bool
    """Whether `settlement_address` is a SessionEscrow, which needs the payer's signature for each session."""


class ChainReader(Protocol):
    """Reads contracts and accounts, with a limit on the work of each read."""

    async def call(
        self, to: str | None, data: bytes, *, gas_cap: int = CALL_GAS_DEFAULT, block: str = "latest"
    ) -> bytes:
        """Run a call and return its output. `to` None runs `data` as creation code (ERC-6492). Ignores OffchainLookup.

        Raises:
            CallRevertedError: The call reverted, ran out of `gas_cap`, or is invalid.
            ChainUnavailableError: No answer; whether the call would succeed is unknown.
        """
        ...

    async def code(self, address: str, *, block: str = "latest") -> bytes:
        """Return the account's code; empty for an externally owned account.

        Raises:
            ChainUnavailableError: No answer.
        """
        ...


@final
class RefundRequest(Value, kw_only=True):
    """A refund that an administrator asks for."""

    session_id: str
    key: str
    """Identifies the refund within its session."""
    to_address: str
    amount_micro: int
    charged_micro: int
    """What was paid for the session, which all its refunds together do not exceed."""
    actor: str
    reason: str


@final
class SettlementUpdate(Value, kw_only=True):
    """Reports that a settlement is CONFIRMED. Delivered at least once, until the callback has returned."""

    session_id: str
    state: SettlementState
    tx_hash: str
    confirmed_at_ms: int


OnSettlement: TypeAlias = Callable[[SettlementUpdate], Awaitable[None]]


OnFunds: TypeAlias = Callable[[str], Awaitable[None]]
"""Takes the lower-case address of a tracked wallet whose reading in the ledger is new."""


@final
class FaucetPayment(Value, kw_only=True):
    """A payment of the faucet. `tx_hash` is the mined mint transaction."""

    tx_hash: str
    address: str
    amount_micro: int


PayTestMoney: TypeAlias = Callable[[str, int], Awaitable[FaucetPayment]]
"""Mints micro-USDC to an address and tops up the native coin that an approval costs; the embedded chain has it.

Raises ChainUnavailableError: nothing was paid. OutcomeUnknownError: it may have been.
"""


class RpcGuest(Protocol):
    """Who sends a request to the public JSON-RPC endpoint, and its budget of CPU time."""

    @property
    def key(self) -> str:
        """Equal for requests that share a budget."""
        ...

    def admit(self) -> None:
        """Raise an error for the HTTP layer if the budget is used up."""
        ...

    def charge(self, cpu_ms: int) -> None:
        """Take CPU time from the budget, which may become negative."""
        ...
