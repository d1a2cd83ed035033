"""Keccak-256, which Ethereum uses: SHA-3 with the padding from before its standard; hashlib does not have it.

Written here because it hashes 100 bytes per receipt, and the smallest maintained library adds 15 MB to this package.

Source: https://keccak.team/keccak_specs_summary.html
"""

import re
from typing import Final

_RATE_BYTES: Final = 136
_LANE: Final = (1 << 64) - 1
_ROUND_CONSTANTS: Final = (
    0x0000000000000001, 0x0000000000008082, 0x800000000000808A, 0x8000000080008000,
    0x000000000000808B, 0x0000000080000001, 0x8000000080008081, 0x8000000000008009,
    0x000000000000008A, 0x0000000000000088, 0x0000000080008009, 0x000000008000000A,
    0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003,
    0x8000000000008002, 0x8000000000000080, 0x000000000000800A, 0x800000008000000A,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
)  # fmt: skip


def keccak256(data: bytes) -> bytes:
    """Return the 32-byte digest."""
    padded = bytearray(data) + b"\x01" + bytes(-(len(data) + 1) % _RATE_BYTES)
    padded[-1] |= 0x80
    state = [0] * 25
    for start in range(0, len(padded), _RATE_BYTES):
        for lane in range(_RATE_BYTES // 8):
            state[lane] ^= int.from_bytes(padded[start + 8 * lane : start + 8 * lane + 8], "little")
        state = _permuted(state)
    return b"".join(lane.to_bytes(8, "little") for lane in state[:4])


def _permuted(state: list[int]) -> list[int]:
    """Keccak-f[1600]: 24 rounds of theta, rho and pi, chi, iota."""
    for constant in _ROUND_CONSTANTS:
        parity = [state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20] for x in range(5)]
        mixed = [parity[x - 1] ^ _rotated(parity[(x + 1) % 5], 1) for x in range(5)]
        state = [lane ^ mixed[place % 5] for place, lane in enumerate(state)]
        x, y, moved = 1, 0, state[1]
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            moved, state[x + 5 * y] = state[x + 5 * y], _rotated(moved, (step + 1) * (step + 2) // 2 % 64)
        rows = [state[start : start + 5] for start in range(0, 25, 5)]
        state = [row[x] ^ (~row[(x + 1) % 5] & _LANE & row[(x + 2) % 5]) for row in rows for x in range(5)]
        state[0] ^= constant
    return state


def _rotated(lane: int, bits: int) -> int:
    return (lane << bits | lane >> (64 - bits)) & _LANE


_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_UPPER_FROM: Final = 8


def checked_address(text: str) -> str:
    """Return an address that a person wrote. Letters of both cases are its checksum (EIP-55), which must fit.

    Raises:
        ValueError: It is no address, or its checksum does not fit.
    """
    if not _ADDRESS.fullmatch(text):
        raise ValueError("write 0x and 40 hexadecimal digits")
    digits = text[2:]
    if digits in (digits.lower(), digits.upper()):
        return text
    hashed = keccak256(digits.lower().encode()).hex()
    for digit, nibble in zip(digits, hashed, strict=False):
        if digit.isalpha() and digit.isupper() != (int(nibble, 16) >= _UPPER_FROM):
            raise ValueError("the checksum does not fit: is a character wrong?")
    return text
