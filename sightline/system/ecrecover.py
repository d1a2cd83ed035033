"""The address of the key that made a signature."""

from typing import Final

from coincurve import PublicKey

from sightline.system.keccak import keccak256

SIGNATURE_BYTES: Final = 65
_PARITY_FROM: Final = 27


def recovered_address(digest: bytes, signature: bytes) -> str | None:
    """Return the lower-case address whose key signed a hash of 32 bytes; None if it is not a signature of 65 bytes.

    Source: EIP-191; the last byte is 27 or 28, or 0 or 1 as written by some hardware wallets.
    """
    if len(signature) != SIGNATURE_BYTES:
        return None
    parity = signature[-1] - _PARITY_FROM if signature[-1] >= _PARITY_FROM else signature[-1]
    if parity not in (0, 1):
        return None
    try:
        key = PublicKey.from_signature_and_message(signature[:-1] + bytes([parity]), digest, hasher=None)
    except ValueError:
        return None
    return "0x" + keccak256(key.format(compressed=False)[1:])[12:].hex()
