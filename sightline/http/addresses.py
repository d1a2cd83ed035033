"""Addresses as callers see them."""

from functools import lru_cache

from eth_utils.address import to_checksum_address


@lru_cache(maxsize=4_096)
def shown_address(address: str) -> str:
    """The EIP-55 form of a valid address."""
    return str(to_checksum_address(address.lower()))
