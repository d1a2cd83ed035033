"""Wallet addresses: read in any case, shown in EIP-55 form, compared and stored in lower case."""

import re
from typing import Final

from eth_utils.address import to_checksum_address

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")


def parse_address(text: str) -> str | None:
    """Read an address in whatever case into its EIP-55 form; None if it is none."""
    return shown_address(text) if _ADDRESS.fullmatch(text) else None


def shown_address(address: str) -> str:
    """The EIP-55 form of a valid address."""
    return str(to_checksum_address(address.lower()))
