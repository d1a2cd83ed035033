"""Verify that a wallet signed a text: by its key, by its deployed contract, or by a contract that is not yet deployed.

Order of the checks, and why it is safe:

1. A signature of 65 bytes from which the claimed address is recovered was made by the wallet's own key. This also holds
for an account that delegates to code (EIP-7702), whose key keeps its rights. ERC-6492 wants contracts asked first,
because a *different* key's signature could be wrapped; comparing with the claimed address rules that out.
2. A signature with the ERC-6492 suffix is that of a contract wallet that may not be deployed. A deployed one is called
directly. Otherwise, or if it refuses, its factory and then the wallet are called in one simulated call that changes
nothing.
3. If the address has code, the contract is called (ERC-1271).

A contract is untrusted code. It runs only on the chain's node, with limits on gas, signature size, time and concurrent
calls. A revert, an endless loop or an off-chain lookup (ERC-3668, never followed) counts as an invalid signature. If
the node does not answer, the result is unknown: ChainUnavailableError.
"""

from typing import Final, final

import trio
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak

from sightline.domain.addresses import recovered_address
from sightline.domain.value import Value
from sightline.ports.chain import CallRevertedError, ChainReader, ChainUnavailableError

_MAGIC_1271: Final = bytes.fromhex("1626ba7e")
_YES: Final = _MAGIC_1271 + bytes(28)
_MARK_6492: Final = bytes.fromhex("6492") * 16


@final
class SignatureOptions(Value, kw_only=True):
    """Limits of one verification."""

    gas_max: int = 2_000_000
    """Gas per call. A multisig wallet needs about 100,000, a passkey wallet without precompile 400,000."""
    timeout_ms: int = 5_000
    """Time limit of all calls of one verification, including the wait for a slot."""
    signature_bytes_max: int = 8_192
    at_once_max: int = 8
    """Maximum number of concurrent contract verifications; further ones wait within their time limit."""


@final
class SignatureVerifier:
    """Verifies signatures of texts (EIP-191 version 0x45, `personal_sign`)."""

    def __init__(self, chain: ChainReader, options: SignatureOptions | None = None) -> None:
        self._chain = chain
        self._options = options or SignatureOptions()
        self._places = trio.CapacityLimiter(self._options.at_once_max)

    async def is_signed_by(self, address: str, text: str, signature: bytes) -> bool:
        """Return whether the wallet signed the text.

        Raises:
            ChainUnavailableError: A contract would have to be called, and the chain does not answer in time.
        """
        if not 0 < len(signature) <= self._options.signature_bytes_max:
            return False
        if recovered_address(text_hash(text), signature) == address.lower():
            return True
        with trio.move_on_after(self._options.timeout_ms / 1_000):
            async with self._places:
                return await self._contract_agrees(address, text_hash(text), signature)
        raise ChainUnavailableError("the wallet's contract did not answer in time")

    async def _contract_agrees(self, address: str, digest: bytes, signature: bytes) -> bool:
        is_wrapped = signature.endswith(_MARK_6492)
        factory, preparation, inner = _unwrapped(signature) if is_wrapped else ("", b"", signature)
        if not inner:
            return False
        question = _question(digest, inner)
        if await self._chain.code(address) and await self._answers_yes(address, question):
            return True
        return is_wrapped and await self._answers_yes(None, _prepare_and_ask(factory, preparation, address, question))

    async def _answers_yes(self, to: str | None, data: bytes) -> bool:
        try:
            return await self._chain.call(to, data, gas_cap=self._options.gas_max) == _YES
        except CallRevertedError:
            return False


def text_hash(text: str) -> bytes:
    """Return the 32-byte hash that `personal_sign` signs (EIP-191, version 0x45)."""
    raw = text.encode()
    return bytes(keccak(b"\x19Ethereum Signed Message:\n" + str(len(raw)).encode() + raw))


def _question(digest: bytes, signature: bytes) -> bytes:
    """Encode the call isValidSignature(bytes32,bytes) of ERC-1271."""
    return _MAGIC_1271 + encode(["bytes32", "bytes"], [digest, signature])


def _unwrapped(signature: bytes) -> tuple[str, bytes, bytes]:
    """Split an ERC-6492 signature into factory, factory call data and the inner signature.

    Returns None if it is not an ERC-6492 signature.
    """
    try:
        factory, preparation, inner = decode(["address", "bytes", "bytes"], signature[: -len(_MARK_6492)])
    except (DecodingError, OverflowError, ValueError):
        return "", b"", b""
    return str(factory), bytes(preparation), bytes(inner)


def _prepare_and_ask(factory: str, preparation: bytes, wallet: str, question: bytes) -> bytes:
    """Assemble code that calls the factory, then the wallet, and returns the wallet's 32 bytes or reverts.

    It runs as deployment code in a call without a recipient, so the result of the call is the code that it "deploys".
    The outcome of the factory's call is ignored, since only the wallet's answer counts. It is written by hand because
    70 bytes of code are easier to review than the validator contract that they replace.

    Source: ERC-6492, section "Verifier side"; opcodes of the Yellow Paper, appendix H.
    """
    call_factory = b"".join(
        (
            b"\x60\x00\x60\x00",  # no return data wanted
            _push(len(preparation)),
            b"\x60\x00\x60\x00",  # from memory 0; value 0
            b"\x73" + bytes.fromhex(factory.removeprefix("0x")),  # PUSH20
            b"\x5a\xf1\x50",  # GAS CALL POP
        )
    )
    ask_wallet = b"".join(
        (
            b"\x60\x20\x60\x00",  # 32 bytes of the answer to memory 0
            _push(len(question)),
            b"\x60\x00",  # from memory 0
            b"\x73" + bytes.fromhex(wallet.removeprefix("0x")),
            b"\x5a\xfa",  # GAS STATICCALL
            b"\x60\x20\x3d\x14\x16",  # success AND RETURNDATASIZE == 32
        )
    )
    answer = bytes.fromhex("60206000f3")  # RETURN 32 bytes from memory 0
    refuse = bytes.fromhex("60006000fd")  # REVERT without data
    copy_length = len(_copy(0, 0))
    start_of_data = (
        2 * copy_length + len(call_factory) + len(ask_wallet) + len(_jump_if(0)) + len(refuse) + 1 + len(answer)
    )
    code = b"".join(
        (
            _copy(start_of_data, len(preparation)),
            call_factory,
            _copy(start_of_data + len(preparation), len(question)),
            ask_wallet,
        )
    )
    target = len(code) + len(_jump_if(0)) + len(refuse)
    code += _jump_if(target) + refuse + b"\x5b" + answer
    assert len(code) == start_of_data
    return code + preparation + question


def _push(number: int) -> bytes:
    return b"\x61" + number.to_bytes(2, "big")  # PUSH2


def _copy(start: int, length: int) -> bytes:
    """Encode CODECOPY of a range of this code to memory 0."""
    return _push(length) + _push(start) + b"\x60\x00\x39"


def _jump_if(target: int) -> bytes:
    return _push(target) + b"\x57"  # JUMPI
