"""The meter's key: it names payees, charges holds and signs statements. It holds no money and sends no transaction."""

from typing import Protocol, final

from sightline.chain.contracts.messages import TypedMessage, escrow_domain
from sightline.chain.signer import Signer


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
