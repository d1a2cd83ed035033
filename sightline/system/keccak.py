"""Keccak-256 and the one place that says what a session is called on the chain."""

from eth_hash.auto import keccak


def keccak256(data: bytes) -> bytes:
    """The 32 byte Keccak-256 digest (not NIST SHA-3)."""
    return bytes(keccak(data))


def session_id_hash(session_id: str) -> str:
    """The session's key on the contract: keccak256 of the lower-case UUID text, as 0x and 64 hex digits."""
    return "0x" + keccak256(session_id.lower().encode("ascii")).hex()
