"""The meter's key: it names payees, charges holds and signs statements. It holds no money and sends no transaction."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol, final

from sightline.chain.contracts.messages import SigningDomain, TypedMessage, escrow_domain
from sightline.chain.rpc.reader import hex_bytes
from sightline.chain.signer import Signer
from sightline.chain.signing_process import SigningProcess, open_signing_process
from sightline.domain.addresses import recovered_address
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ids import Ids

SIGN_METHODS: Final = ("eth_signTypedData_v4", "eth_signTypedData")
"""Web3Signer has the second one only. Both take JSON as text."""


class Meter(Protocol):
    """Signs for the escrow contract. The key may live in another process."""

    @property
    def address(self) -> str:
        """The EIP-55 address that the contract knows as a meter."""
        ...

    @property
    def why_away(self) -> str | None:
        """Why the process that has the key does not sign now; None if it does, or if the key is in this process."""
        ...

    async def probe(self) -> None:
        """Ask the process that has the key whether it is there."""
        ...

    async def sign(self, message: TypedMessage) -> bytes:
        """Return the signature of a message in the contract's domain: r, s and v, 65 bytes.

        Raises:
            SignerUnavailableError: The signer does not answer, or refuses.
        """
        ...


@final
class MeterKey:
    """A meter whose key is in this process. Its repr shows the address only."""

    why_away: str | None = None

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

    async def probe(self) -> None:
        """The key is there."""

    async def sign(self, message: TypedMessage) -> bytes:
        """Sign a message in the contract's domain."""
        v, r, s = self._signer.sign_digest(self._domain.digest(message))
        return r + s + bytes([v])


@final
class RemoteMeter:
    """A meter whose key is in another process, which signs typed data over JSON-RPC."""

    def __init__(self, process: SigningProcess, domain: SigningDomain) -> None:
        self._process = process
        self._domain = domain
        self.address = process.address

    @property
    def why_away(self) -> str | None:
        """Why the process does not sign now; None if it does."""
        return self._process.why_away

    async def probe(self) -> None:
        """Ask the process whether it is there."""
        await self._process.probe()

    async def sign(self, message: TypedMessage) -> bytes:
        """Have a message signed in the contract's domain, and check the signature."""
        typed_data = json.dumps(self._domain.typed_data(message))
        answer = await self._process.sign(SIGN_METHODS, self.address, typed_data)
        try:
            signature = hex_bytes(answer)
        except ChainUnavailableError:
            signature = b""
        if recovered_address(self._domain.digest(message), signature) != self.address.lower():
            raise self._process.failure(f"returned a signature that is not that of {self.address}")
        return signature


@asynccontextmanager
async def open_remote_meter(
    url: str, *, chain_id: int, contract: str, timeout_ms: int, ids: Ids
) -> AsyncIterator[RemoteMeter]:
    """Connect to the process that has the meter's key.

    Raises:
        KeyRefusedError: It does not have exactly one key, or a well-known one.
        SignerUnavailableError: It does not answer.
    """
    async with open_signing_process(url, key="the meter's", timeout_ms=timeout_ms, ids=ids) as process:
        yield RemoteMeter(process, escrow_domain(chain_id, contract))
