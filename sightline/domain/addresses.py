"""Wallet addresses: read in any case, compared and stored in lower case, shown in EIP-55 form."""

import re
from functools import lru_cache
from typing import Final

from eth_utils.address import to_checksum_address

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")


def parse_address(text: str) -> str | None:
    """Read an address in any case into its EIP-55 form; None when it is not an address."""
    return shown_address(text) if _ADDRESS.fullmatch(text) else None


@lru_cache(maxsize=4_096)
def shown_address(address: str) -> str:
    """The EIP-55 form of a valid address."""
    return str(to_checksum_address(address.lower()))
