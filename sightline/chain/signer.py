"""Loads the relayer's key, refuses well-known keys, and signs transactions."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self, final

import rlp
from coincurve import PrivateKey
from eth_utils.address import to_canonical_address, to_checksum_address

from sightline.domain.value import Value
from sightline.system.keccak import keccak256

# The default accounts of Hardhat, Anvil, Ganache and Truffle: their private keys are public.
WELL_KNOWN_ADDRESSES: Final = frozenset(
    {
        "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266", "0x70997970c51812dc3a010c7d01b50e0d17dc79c8",
        "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc", "0x90f79bf6eb2c4f870365e785982e1f101e93b906",
        "0x15d34aaf54267db7d7c367839aaf71a00a2c6a65", "0x9965507d1a55bcc2695c58ba16fb37d819b0a4dc",
        "0x976ea74026e726554db657fa54763abd0c3a0aa9", "0x14dc79964da2c08b23698b3d3cc7ca32193d9955",
        "0x23618e81e3f5cdf7f54c3d65f7fbc0abf5b21e8f", "0xa0ee7a142d267c1f36714e4a8f75612f20a79720",
        "0x90f8bf6a479f320ead074411a4b0e7944ea8c9c1", "0x627306090abab3a6e1400e9345bc60c78a8bef57",
    }
)  # fmt: skip
SMALL_KEYS: Final = 1_000
KEY_BYTES: Final = 32
TYPE_2: Final = b"\x02"


class KeyRefusedError(Exception):
    """This key must not sign on this chain."""


@final
class Fees(Value, kw_only=True):
    """The maximum fee and the tip per gas of a transaction, in wei (EIP-1559)."""

    max_fee_wei: int
    tip_wei: int

    def at_most(self, cap_wei: int) -> Self:
        """Return these fees, none above the cap."""
        return type(self)(max_fee_wei=min(self.max_fee_wei, cap_wei), tip_wei=min(self.tip_wei, cap_wei))


@final
class Signer:
    """Signs transactions of one account. Its repr shows the address only."""

    def __init__(self, key: bytes) -> None:
        """Create a signer from a private key.

        Raises:
            ValueError: The value is not a valid private key of 32 bytes.
        """
        if len(key) != KEY_BYTES:
            raise ValueError("a private key has 32 bytes")
        self._key = PrivateKey(key)
        point = self._key.public_key.format(compressed=False)
        self.address: str = to_checksum_address(keccak256(point[1:])[12:])

    def __repr__(self) -> str:
        return f"Signer({self.address})"

    def sign(
        self, *, chain_id: int, nonce: int, to: str | None, data: bytes, gas: int, fees: Fees, value: int = 0
    ) -> tuple[str, bytes]:
        """Sign a type 2 transaction and return its hash and bytes; without `to` it creates a contract.

        This is our own code because importing eth_account takes half a second, mostly for curves that are not used
        here.

        Source: EIP-1559, section "Specification"; RFC 6979 for the nonce of the signature.
        """
        fields = transaction_fields(chain_id=chain_id, nonce=nonce, to=to, data=data, gas=gas, fees=fees, value=value)
        signature = self._key.sign_recoverable(unsigned_digest(fields), hasher=None)
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
        raw = TYPE_2 + bytes(rlp.encode([*fields, signature[64], r, s]))
        return "0x" + keccak256(raw).hex(), raw

    def sign_digest(self, digest: bytes) -> tuple[int, bytes, bytes]:
        """Sign a hash of 32 bytes; returns v (27 or 28), r and s."""
        signature = self._key.sign_recoverable(digest, hasher=None)
        return 27 + signature[64], signature[:32], signature[32:64]


def transaction_fields(
    *, chain_id: int, nonce: int, to: str | None, data: bytes, gas: int, fees: Fees, value: int = 0
) -> list[Any]:
    """Return the fields of a type 2 transaction that are signed. Source: EIP-1559, section "Specification"."""
    target = b"" if to is None else to_canonical_address(to)
    return [chain_id, nonce, fees.tip_wei, fees.max_fee_wei, gas, target, value, data, []]


def unsigned_digest(fields: Sequence[Any]) -> bytes:
    """Return the hash of a transaction that its sender signs."""
    return keccak256(TYPE_2 + bytes(rlp.encode(fields)))


def require_private_key(address: str, key: bytes) -> None:
    """Refuse publicly known keys: the development accounts and small numbers.

    Raises:
        KeyRefusedError: The key is publicly known.
    """
    if address.lower() in WELL_KNOWN_ADDRESSES or int.from_bytes(key, "big") <= SMALL_KEYS:
        raise KeyRefusedError(f"the key of {address} is a well-known development key")


def read_keystore(path: Path, password: str) -> bytes:
    """Read the key from an encrypted keystore file (Web3 Secret Storage, version 3).

    Raises:
        KeyRefusedError: The file is not a keystore, or the password is wrong.
    """
    from eth_account import Account  # imported here because it is slow and seldom needed

    try:
        return bytes(Account.decrypt(json.loads(path.read_text(encoding="utf-8")), password))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KeyRefusedError(f"{path.name} can not be opened: {type(error).__name__}") from error
