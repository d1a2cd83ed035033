"""A process outside of the server that has one of its keys and signs over JSON-RPC: Web3Signer, clef, a node.

Requests are sent one by one: Web3Signer refuses batches. A process need not have every method: the first one that it
answers is used from then on.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, final

from eth_utils.address import is_address, to_checksum_address

from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.chain.signer import WELL_KNOWN_ADDRESSES, KeyRefusedError
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ids import Ids

ACCOUNT_METHODS: Final = ("eth_accounts", "account_list")
"""clef has the second one only."""
METHOD_NOT_FOUND: Final = -32601
TRIES: Final = 2
"""How often a request is sent that gets no answer. Whoever asks for a signature asks again later."""


@final
class SignerUnavailableError(ChainUnavailableError):
    """The process that has a key does not sign now; nothing was sent to the chain."""


@final
class SigningProcess:
    """One key of a process. `open_signing_process` creates it."""

    def __init__(self, rpc: JsonRpc, key: str) -> None:
        """Args: key: whose key it is, for messages: the meter's or the relayer's."""
        self._rpc = rpc
        self._key = key
        self._answered: dict[Sequence[str], str] = {}
        """The method that the process has, by those that were asked for."""
        self.address = ""
        """The EIP-55 address of the key."""
        self._unreachable: str | None = None
        self._unsigned: str | None = None

    @property
    def why_away(self) -> str | None:
        """Why the last signature was not made, or the last probe not answered; None if the process does both."""
        return self._unsigned or self._unreachable

    async def probe(self) -> None:
        """Ask whether the process still has the key, so that `why_away` is known before something must be signed."""
        try:
            accounts = await self.accounts()
        except SignerUnavailableError as error:
            self._unreachable = str(error)
        else:
            is_same = [str(each).lower() for each in accounts] == [self.address.lower()]
            self._unreachable = None if is_same else f"{self._key} signer does not have the key of {self.address}"

    async def accounts(self) -> list[Any]:
        """Return the addresses whose keys the process has, as it gives them.

        Raises:
            SignerUnavailableError: It does not answer, or refuses.
        """
        accounts = await self._ask(ACCOUNT_METHODS)
        return accounts if isinstance(accounts, list) else []

    async def sign(self, methods: Sequence[str], *params: Any) -> Any:
        """Return what the first of these methods that the process has gives.

        Raises:
            SignerUnavailableError: It does not answer, or refuses.
        """
        try:
            answer = await self._ask(methods, *params)
        except SignerUnavailableError as error:
            self._unsigned = str(error)
            raise
        self._unsigned = self._unreachable = None
        return answer

    def failure(self, reason: str) -> SignerUnavailableError:
        """Record why what the process has signed is of no use; returns the error to raise."""
        self._unsigned = f"{self._key} signer {reason}"
        return SignerUnavailableError(self._unsigned)

    async def _ask(self, methods: Sequence[str], *params: Any) -> Any:
        reasons: list[str] = []
        for method in (self._answered[methods],) if methods in self._answered else methods:
            try:
                answer = await self._rpc.call(method, *params)
            except RpcResponseError as error:
                # The refusal of a method that the process has says more than that of one that it does not have.
                reasons.insert(len(reasons) if error.code == METHOD_NOT_FOUND else 0, f"refuses: {error.message}")
            except ChainUnavailableError as error:
                reasons.append(f"does not answer: {error}")
            else:
                self._answered[methods] = method
                return answer
        raise SignerUnavailableError(f"{self._key} signer {reasons[0]}")


@asynccontextmanager
async def open_signing_process(url: str, *, key: str, timeout_ms: int, ids: Ids) -> AsyncIterator[SigningProcess]:
    """Connect to the process that has a key.

    Raises:
        KeyRefusedError: It does not have exactly one key, or a well-known one.
        SignerUnavailableError: It does not answer.
    """
    async with open_rpc(url, RpcOptions(timeout_ms=timeout_ms, tries=TRIES), ids) as rpc:
        process = SigningProcess(rpc, key)
        accounts = await process.accounts()
        if len(accounts) != 1 or not is_address(accounts[0]):
            raise KeyRefusedError(f"{key} signer must have one account")
        process.address = to_checksum_address(accounts[0])
        if process.address.lower() in WELL_KNOWN_ADDRESSES:
            raise KeyRefusedError(f"{key} signer has the well-known development key of {process.address}")
        yield process
