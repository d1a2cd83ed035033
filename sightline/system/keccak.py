"""Keccak-256, and the key under which the contract stores a session."""

from eth_hash.auto import keccak


def keccak256(data: bytes) -> bytes:
    """Return the 32-byte Keccak-256 digest (not NIST SHA-3)."""
    return bytes(keccak(data))


def session_id_hash(session_id: str) -> str:
    """Return the session's key on the contract: keccak256 of the lower-case UUID text, as 0x and 64 hex digits."""
    return "0x" + keccak256(session_id.lower().encode("ascii")).hex()
