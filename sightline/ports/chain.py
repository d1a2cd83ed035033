"""What the rest of the server needs of a chain: its config, pinned reads, the relayer's and the watcher's news."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, final

from sightline.domain.errors import ChainUnavailableError, SightlineError
from sightline.ports.ledger import SettlementState

__all__ = [
    "CALL_GAS_DEFAULT",
    "CallRevertedError",
    "ChainChangedError",
    "ChainConfig",
    "ChainReader",
    "ChainUnavailableError",
    "Faucet",
    "FaucetPayment",
    "FundsUpdate",
    "OnFunds",
    "OnSettlement",
    "SettlementUpdate",
]

CALL_GAS_DEFAULT: Final = 2_000_000


class CallRevertedError(SightlineError):
    """The contract answered no. `data` is the revert data, as bytes."""

    def __init__(self, reason: str, data: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.data = data


class ChainChangedError(SightlineError):
    """The chain behind the endpoint is not the one this database was written against."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChainConfig:
    """What a client needs to drive a wallet; addresses are EIP-55. `rpc_url` is the address of the node itself;
    the HTTP layer shows the address of its own guarded endpoint when `rpc_is_private`."""

    environment: str
    chain_id: int
    chain_name: str
    rpc_url: str
    rpc_is_private: bool
    explorer_url: str
    usdc_address: str
    settlement_address: str


class ChainReader(Protocol):
    """Reads of contracts and accounts, with a limit on the work they may cause."""

    async def call(
        self, to: str | None, data: bytes, *, gas_cap: int = CALL_GAS_DEFAULT, block: str = "latest"
    ) -> bytes:
        """What the call returns. `to` None runs `data` as creation code (ERC-6492). Never follows OffchainLookup.

        Raises:
            CallRevertedError: The call reverted, ran out of `gas_cap`, or is invalid.
            ChainUnavailableError: No answer; neither yes nor no.
        """
        ...

    async def code(self, address: str, *, block: str = "latest") -> bytes:
        """The account's code, empty for a plain account.

        Raises:
            ChainUnavailableError: No answer.
        """
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementUpdate:
    """A settlement reached CONFIRMED. Told at least once, again after a restart until the callback returned."""

    session_id: str
    state: SettlementState
    tx_hash: str
    confirmed_at_ms: int


OnSettlement: TypeAlias = Callable[[SettlementUpdate], Awaitable[None]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FundsUpdate:
    """A tracked wallet as just read from the chain, after something touched it.

    Reported while the server runs, newest per wallet; what changed while it was down is read from the ledger
    (`WalletLedger.wallet`) when sessions are recovered.
    """

    address: str
    """Lower-case."""
    spendable_micro: int
    """The most that could be taken now: the least of balance, allowance and what is left of the payer's day."""
    block_number: int


OnFunds: TypeAlias = Callable[[FundsUpdate], Awaitable[None]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FaucetPayment:
    """What the faucet gave. `tx_hash` is the mint's transaction, mined."""

    tx_hash: str
    address: str
    amount_micro: int


class Faucet(Protocol):
    """Test money; on the embedded chain only."""

    async def fund(self, address: str, amount_micro: int) -> FaucetPayment:
        """Mint test USDC to the address and top up the native coin that an approval costs.

        Raises:
            ChainUnavailableError: Not done, or its outcome is not known.
        """
        ...
