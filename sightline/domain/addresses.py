"""Wallet addresses: read in any case, stored in lower case, shown in EIP-55 form, recovered from signatures."""

import re
from functools import lru_cache
from typing import Final

from coincurve import PublicKey
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

_SIGNATURE_BYTES: Final = 65
_PARITY_FROM: Final = 27
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")


def parse_address(text: str) -> str | None:
    """Read an address in any case into its EIP-55 form; None when it is not an address."""
    return shown_address(text) if _ADDRESS.fullmatch(text) else None


@lru_cache(maxsize=4_096)
def shown_address(address: str) -> str:
    """The EIP-55 form of a valid address."""
    return str(to_checksum_address(address.lower()))


def recovered_address(digest: bytes, signature: bytes) -> str | None:
    """Return the lower-case address whose key signed a hash of 32 bytes; None if it is not a signature of 65 bytes.

    Source: EIP-191; the last byte is 27 or 28, or 0 or 1 as written by some hardware wallets.
    """
    if len(signature) != _SIGNATURE_BYTES:
        return None
    parity = signature[-1] - _PARITY_FROM if signature[-1] >= _PARITY_FROM else signature[-1]
    if parity not in (0, 1):
        return None
    try:
        key = PublicKey.from_signature_and_message(signature[:-1] + bytes([parity]), digest, hasher=None)
    except ValueError:
        return None
    return "0x" + keccak(key.format(compressed=False)[1:])[12:].hex()
