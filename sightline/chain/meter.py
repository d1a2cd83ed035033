"""The meter's key: it names payees, charges holds and signs statements. It holds no money and sends no transaction."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, final

from eth_utils.address import is_address, to_checksum_address

from sightline.chain.contracts.messages import SigningDomain, TypedMessage, escrow_domain
from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.chain.rpc.reader import hex_bytes
from sightline.chain.signer import KeyRefusedError, Signer
from sightline.domain.addresses import recovered_address
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ids import Ids


class Meter(Protocol):
    """Signs for the escrow contract. The key may live in another process."""

    @property
    def address(self) -> str:
        """The EIP-55 address that the contract knows as a meter."""
        ...

    async def sign(self, message: TypedMessage) -> bytes:
        """Return the signature of a message in the contract's domain: r, s and v, 65 bytes.

        Raises:
            ChainUnavailableError: The signer does not answer.
        """
        ...


@final
class MeterKey:
    """A meter whose key is in this process. Its repr shows the address only."""

    def __init__(self, key: bytes, *, chain_id: int, contract: str) -> None:
        """Create a meter from a private key.

        Raises:
            ValueError: The value is not a valid private key of 32 bytes.
        """
        self._signer = Signer(key)
        self._domain = escrow_domain(chain_id, contract)
        self.address = self._signer.address

    def __repr__(self) -> str:
        return f"MeterKey({self.address})"

    async def sign(self, message: TypedMessage) -> bytes:
        """Sign a message in the contract's domain."""
        v, r, s = self._signer.sign_digest(self._domain.digest(message))
        return r + s + bytes([v])


@final
class RemoteMeter:
    """A meter whose key is in another process, which signs typed data over JSON-RPC.

    The method is eth_signTypedData_v4, or eth_signTypedData, which is its name in Web3Signer. Both take JSON as text.
    """

    def __init__(self, rpc: JsonRpc, address: str, domain: SigningDomain) -> None:
        """Use `open_remote_meter`, which asks the process for its address."""
        self._rpc = rpc
        self._domain = domain
        self._methods: Sequence[str] = ("eth_signTypedData_v4", "eth_signTypedData")
        """Those that the process may have."""
        self.address = address

    async def sign(self, message: TypedMessage) -> bytes:
        """Have a message signed in the contract's domain, and check the signature."""
        typed_data = json.dumps(self._domain.typed_data(message))
        answers = await self._rpc.batch([(method, [self.address, typed_data]) for method in self._methods])
        refusals = [answer for answer in answers if isinstance(answer, RpcResponseError)]
        if len(refusals) == len(answers):
            raise ChainUnavailableError(f"the meter's signer refuses: {refusals[0].message}") from refusals[0]
        self._methods = [each for each, answer in zip(self._methods, answers, strict=True) if answer not in refusals]
        signature = hex_bytes(next(answer for answer in answers if answer not in refusals))
        if recovered_address(self._domain.digest(message), signature) != self.address.lower():
            raise ChainUnavailableError(f"the signer's signature is not that of the meter {self.address}")
        return signature


@asynccontextmanager
async def open_remote_meter(
    url: str, *, chain_id: int, contract: str, timeout_ms: int, ids: Ids
) -> AsyncIterator[RemoteMeter]:
    """Connect to the process that has the meter's key.

    Raises:
        KeyRefusedError: It does not have exactly one key.
        ChainUnavailableError: It does not answer.
    """
    async with open_rpc(url, RpcOptions(timeout_ms=timeout_ms), ids) as rpc:
        try:
            accounts = await rpc.call("eth_accounts")
        except RpcResponseError as error:
            raise ChainUnavailableError(f"the meter's signer refuses: {error.message}") from error
        if not isinstance(accounts, list) or len(accounts) != 1 or not is_address(accounts[0]):
            raise KeyRefusedError("the meter's signer must have one account, the meter's")
        yield RemoteMeter(rpc, to_checksum_address(accounts[0]), escrow_domain(chain_id, contract))
