"""The relayer's key: it signs the service's transactions and pays their gas. It may live in another process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, final

import rlp
from eth_utils.address import to_checksum_address

from sightline.chain.rpc.reader import hex_bytes
from sightline.chain.signer import TYPE_2, Fees, Signer, transaction_fields, unsigned_digest
from sightline.chain.signing_process import SigningProcess, open_signing_process
from sightline.domain.addresses import recovered_address
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ids import Ids
from sightline.system.keccak import keccak256

SIGN_METHODS: Final = ("eth_signTransaction", "account_signTransaction")
"""clef has the second one only. Web3Signer and anvil answer with the transaction, geth and clef with an object."""
FIELD_NAMES: Final = (
    "chain id", "nonce", "tip", "maximum fee", "gas limit", "receiver", "value", "data", "access list",
)  # fmt: skip
SIGNATURE_PARTS: Final = 3
HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
"""Half of the order of secp256k1: nodes refuse signatures whose s is above it (EIP-2)."""


class GasKey(Protocol):
    """Signs the transactions of the relayer."""

    @property
    def address(self) -> str:
        """The EIP-55 address that pays the gas."""
        ...

    @property
    def why_away(self) -> str | None:
        """Why the process that has the key does not sign now; None if it does, or if the key is in this process."""
        ...

    async def probe(self) -> None:
        """Ask the process that has the key whether it is there."""
        ...

    async def sign(self, *, chain_id: int, nonce: int, to: str, data: bytes, gas: int, fees: Fees) -> tuple[str, bytes]:
        """Sign a type 2 transaction without value, and return its hash and bytes.

        Raises:
            SignerUnavailableError: The signer does not answer, refuses, or returns another transaction.
        """
        ...


@final
class LocalGasKey:
    """A key in this process. Its repr shows the address only."""

    why_away: str | None = None

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self.address = signer.address

    def __repr__(self) -> str:
        return f"LocalGasKey({self.address})"

    async def probe(self) -> None:
        """The key is there."""

    async def sign(self, *, chain_id: int, nonce: int, to: str, data: bytes, gas: int, fees: Fees) -> tuple[str, bytes]:
        """Sign a type 2 transaction without value, and return its hash and bytes."""
        return self._signer.sign(chain_id=chain_id, nonce=nonce, to=to, data=data, gas=gas, fees=fees)


@final
class RemoteGasKey:
    """A key in another process, which signs transactions over JSON-RPC and broadcasts none.

    What it returns is compared with what was asked, field by field, and its signer is recovered: nothing else is
    stored or sent.
    """

    def __init__(self, process: SigningProcess) -> None:
        self._process = process
        self.address = process.address

    @property
    def why_away(self) -> str | None:
        """Why the process does not sign now; None if it does."""
        return self._process.why_away

    async def probe(self) -> None:
        """Ask the process whether it is there."""
        await self._process.probe()

    async def sign(self, *, chain_id: int, nonce: int, to: str, data: bytes, gas: int, fees: Fees) -> tuple[str, bytes]:
        """Have a transaction signed, and check it."""
        asked = {
            "from": self.address, "to": to_checksum_address(to), "gas": hex(gas), "maxFeePerGas": hex(fees.max_fee_wei),
            "maxPriorityFeePerGas": hex(fees.tip_wei), "nonce": hex(nonce), "value": "0x0", "data": "0x" + data.hex(),
            "chainId": hex(chain_id),
        }  # fmt: skip
        raw = _raw_in(await self._process.sign(SIGN_METHODS, asked))
        fields = transaction_fields(chain_id=chain_id, nonce=nonce, to=to, data=data, gas=gas, fees=fees)
        fault = _fault(raw, fields, self.address)
        if fault is not None:
            raise self._process.failure(f"returned {fault}")
        return "0x" + keccak256(raw).hex(), raw


@asynccontextmanager
async def open_remote_gas_key(url: str, *, timeout_ms: int, ids: Ids) -> AsyncIterator[RemoteGasKey]:
    """Connect to the process that has the relayer's key.

    Raises:
        KeyRefusedError: It does not have exactly one key, or a well-known one.
        SignerUnavailableError: It does not answer.
    """
    async with open_signing_process(url, key="the relayer's", timeout_ms=timeout_ms, ids=ids) as process:
        yield RemoteGasKey(process)


def _raw_in(answer: Any) -> bytes:
    """Return the bytes of a signed transaction; empty if there are none."""
    raw = answer.get("raw") if isinstance(answer, dict) else answer
    try:
        return hex_bytes(raw)
    except ChainUnavailableError:
        return b""


def _fault(raw: bytes, asked: Sequence[Any], address: str) -> str | None:
    """Return in what a signed transaction differs from what was asked for; None if in nothing."""
    try:
        found = rlp.decode(raw[1:]) if raw[:1] == TYPE_2 else None
    except rlp.DecodingError:
        found = None
    if not isinstance(found, list) or len(found) != len(asked) + SIGNATURE_PARTS:
        return "no signed transaction of type 2"
    for name, ours, theirs in zip(FIELD_NAMES, rlp.decode(rlp.encode(asked)), found, strict=False):
        if ours != theirs:
            return f"a transaction with another {name}"
    parity, r, s = found[len(asked) :]
    if any(not isinstance(part, bytes) or len(part) > 32 for part in (parity, r, s)):
        return "no signature"
    signature = r.rjust(32, b"\0") + s.rjust(32, b"\0") + (parity or b"\0")
    if recovered_address(unsigned_digest(asked), signature) != address.lower():
        return f"a transaction that {address} has not signed"
    return None if int.from_bytes(s, "big") <= HALF_ORDER else "a signature that nodes refuse: its s is too large"
