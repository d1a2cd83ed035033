"""Contract wallets on a real EVM.

Good ones sign in, every other one is a plain no, and no chain is neither.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from eth_abi.abi import encode
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount
from eth_utils.crypto import keccak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline.chain.reader import RpcReader
from sightline.chain.rpc import RpcOptions, open_rpc
from sightline.identity.signatures import SignatureOptions, SignatureVerifier, text_hash
from sightline.ports.chain import ChainUnavailableError
from sightline.system.ids import SystemIds

CHAIN_ID = 84_532_001
TEXT = "localhost wants you to sign in\nNonce: 1"
MARK_6492 = bytes.fromhex("6492" * 16)
ZERO = "0x" + "00" * 20

# Runtime code written by hand; each comment is its assembly.
RUNTIMES = {
    "looping": "5b600056",  # again: JUMP(again)
    "reverting": "60006000fd",  # REVERT
    "silent": "00",  # STOP: success and no answer
    "invalid": "fe",
    "wrong magic": "7fffffffff" + "00" * 28 + "60005260206000f3",
    "short": "7f1626ba7e" + "00" * 28 + "60005260046000f3",  # the magic in 4 bytes instead of 32
    "long": "7f1626ba7e" + "00" * 28 + "60005260406000f3",  # 64 bytes
    "padded with junk": "7f1626ba7e" + "00" * 27 + "0160005260206000f3",
    "endless answer": "63ffffffff6000f3",  # RETURN of 4 GiB
    # REVERT with OffchainLookup(address,string[],bytes,bytes4,bytes), its sender being the wallet itself.
    "off-chain lookup": "%LOOKUP%",
}
# Deploys what its call data holds behind a salt, by CREATE2 (the deterministic deployment proxy).
FACTORY = (
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe0"
    "3601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3"
)


@dataclass
class Ledger:
    """Test contracts on a running embedded chain."""

    url: str
    payer: LocalAccount
    nonce: int
    wallets: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, *params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx.post(self.url, json=body, timeout=30, trust_env=False).json()
        assert "error" not in answer, answer
        return answer["result"]

    def send(self, data: bytes, to: str | None = None) -> str:
        """Send a transaction; the address of the contract it created, or empty."""
        transaction: dict[str, Any] = {
            "chainId": CHAIN_ID,
            "nonce": self.nonce,
            "gas": 2_000_000,
            "maxFeePerGas": 10**11,
            "maxPriorityFeePerGas": 10**9,
            "value": 0,
            "data": data,
        }
        if to:
            transaction["to"] = to
        raw = self.payer.sign_transaction(transaction).raw_transaction
        self.nonce += 1
        receipt = self.ask("eth_getTransactionReceipt", self.ask("eth_sendRawTransaction", "0x" + raw.hex()))
        assert receipt["status"] == "0x1", receipt
        return str(receipt["contractAddress"] or "")

    def deploy_runtime(self, runtime: bytes) -> str:
        """Deploy exactly this code."""
        assert len(runtime) < 2**16
        return self.send(bytes.fromhex(f"61{len(runtime):04x}80600a3d393df3") + runtime)


def owned_wallet_code(owner: str) -> bytes:
    """Deployment code of the owned wallet."""
    source = Path(__file__).with_name("wallets") / "owned_wallet.vy"
    command = [Path(sys.executable).with_name("vyper"), "-f", "bytecode", source]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return bytes.fromhex(output.strip().removeprefix("0x")) + encode(["address"], [owner])


def an_account(name: str) -> LocalAccount:
    account: LocalAccount = Account.from_key(sha256(name.encode()).digest())
    return account


OWNER, STRANGER = an_account("owner"), an_account("stranger")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    directory = tmp_path_factory.mktemp("chain")
    command = [sys.executable, "-m", "sightline.chain.embedded", "--data-dir", str(directory)]
    command += ["--chain-id", str(CHAIN_ID), "--max-fee-bps", "5000", "--session-cap-micro", "1000000"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        assert process.stdin
        assert process.stdout
        try:
            line = process.stdout.readline().decode()
            assert line.startswith("ready "), (directory / "log").read_text()
            url = f"http://127.0.0.1:{json.loads(line.removeprefix('ready '))['port']}"
            yield with_wallets(url, json.loads((directory / "keys.json").read_text())["relayer"])
        finally:
            process.stdin.close()
            process.wait(20)
            process.stdout.close()


def with_wallets(url: str, payer_key: str) -> Ledger:
    payer: LocalAccount = Account.from_key(payer_key)
    ledger = Ledger(url, payer, 0)
    ledger.nonce = int(ledger.ask("eth_getTransactionCount", payer.address, "latest"), 16)
    for name, runtime in RUNTIMES.items():
        code = off_chain_lookup() if runtime == "%LOOKUP%" else bytes.fromhex(runtime)
        ledger.wallets[name] = ledger.deploy_runtime(code)
    ledger.wallets["factory"] = ledger.deploy_runtime(bytes.fromhex(FACTORY))
    ledger.wallets["good"] = ledger.send(owned_wallet_code(OWNER.address))
    return ledger


def off_chain_lookup() -> bytes:
    """Code that asks its caller to fetch an answer from a web server on this machine."""
    types = ["address", "string[]", "bytes", "bytes4", "bytes"]
    selector = keccak(text=f"OffchainLookup({','.join(types)})")[:4]
    data = selector + encode(types, [ZERO, ["http://127.0.0.1:1/{data}"], b"", b"\x16\x26\xba\x7e", b""])
    head = bytes.fromhex(f"61{len(data):04x}80600c6000396000fd")
    assert len(head) == 0x0C
    return head + data


@pytest.fixture
async def verifier(ledger: Ledger) -> AsyncIterator[SignatureVerifier]:
    async with a_verifier(ledger.url) as opened:
        yield opened


@asynccontextmanager
async def a_verifier(url: str, **options: int) -> AsyncIterator[SignatureVerifier]:
    """A verifier on its own client of an endpoint."""
    async with open_rpc(url, RpcOptions(timeout_ms=3_000, tries=1), SystemIds()) as rpc:
        yield SignatureVerifier(RpcReader(rpc, token=ZERO, settlement=ZERO), SignatureOptions(**options))


def signature_of(account: LocalAccount, text: str = TEXT) -> bytes:
    return bytes(account.sign_message(encode_defunct(text=text)).signature)


def wrapped(factory: str, preparation: bytes, inner: bytes) -> bytes:
    return encode(["address", "bytes", "bytes"], [factory, preparation, inner]) + MARK_6492


def not_yet_deployed(factory: str, salt: int) -> tuple[str, bytes]:
    """Where a wallet of OWNER would be, and the factory's call data that puts it there."""
    code = owned_wallet_code(OWNER.address)
    salt_bytes = salt.to_bytes(32, "big")
    place = keccak(b"\xff" + bytes.fromhex(factory[2:]) + salt_bytes + keccak(code))[12:]
    return "0x" + place.hex(), salt_bytes + code


def test_the_hash_is_what_wallets_sign() -> None:
    for text in ("", "a", TEXT, "é" * 200):
        signed = OWNER.sign_message(encode_defunct(text=text))
        assert text_hash(text) == bytes(signed.message_hash)


async def test_a_contract_wallet_s_owner_signs_for_it(verifier: SignatureVerifier, ledger: Ledger) -> None:
    wallet = ledger.wallets["good"]
    assert await verifier.is_signed_by(wallet, TEXT, signature_of(OWNER))
    assert await verifier.is_signed_by(wallet.lower(), TEXT, signature_of(OWNER))


async def test_nobody_else_signs_for_it(verifier: SignatureVerifier, ledger: Ledger) -> None:
    wallet = ledger.wallets["good"]
    assert not await verifier.is_signed_by(wallet, TEXT, signature_of(STRANGER))
    assert not await verifier.is_signed_by(wallet, TEXT, signature_of(OWNER, TEXT + "."))
    assert not await verifier.is_signed_by(wallet, TEXT, b"")
    assert not await verifier.is_signed_by(wallet, TEXT, b"\x01" * 1_024)


@pytest.mark.parametrize("kind", list(RUNTIMES))
async def test_a_contract_that_does_not_say_the_word_is_no(
    verifier: SignatureVerifier, ledger: Ledger, kind: str
) -> None:
    assert not await verifier.is_signed_by(ledger.wallets[kind], TEXT, signature_of(OWNER))


async def test_an_off_chain_lookup_makes_no_request(ledger: Ledger) -> None:
    """The lookup names a listening port of ours; nobody may come."""
    async with trio.open_nursery() as nursery:
        visitors = 0

        async def visited(stream: trio.SocketStream) -> None:
            nonlocal visitors
            visitors += 1
            await stream.aclose()

        listeners = await nursery.start(trio.serve_tcp, visited, 0)
        port = listeners[0].socket.getsockname()[1]
        code = off_chain_lookup().replace(b"127.0.0.1:1/{data}", f"127.0.0.1:{port}/".ljust(18, "x").encode())
        wallet = await trio.to_thread.run_sync(ledger.deploy_runtime, code)
        async with a_verifier(ledger.url) as verifier:
            assert not await verifier.is_signed_by(wallet, TEXT, signature_of(OWNER))
        assert visitors == 0
        nursery.cancel_scope.cancel()


async def test_an_address_without_code_needs_its_own_key(verifier: SignatureVerifier) -> None:
    assert await verifier.is_signed_by(OWNER.address, TEXT, signature_of(OWNER))
    assert not await verifier.is_signed_by(STRANGER.address, TEXT, signature_of(OWNER))
    assert not await verifier.is_signed_by(STRANGER.address, TEXT, signature_of(OWNER) + b"\x00")


@pytest.mark.parametrize("number", range(1, 11))
async def test_a_precompiled_contract_signs_nothing(verifier: SignatureVerifier, number: int) -> None:
    address = f"0x{number:040x}"
    assert not await verifier.is_signed_by(address, TEXT, signature_of(OWNER))
    assert not await verifier.is_signed_by(address, TEXT, wrapped(ZERO, b"", signature_of(OWNER)))


async def test_a_wallet_that_is_not_deployed_yet_signs_in(verifier: SignatureVerifier, ledger: Ledger) -> None:
    factory = ledger.wallets["factory"]
    wallet, preparation = not_yet_deployed(factory, salt=1)
    assert await verifier.is_signed_by(wallet, TEXT, wrapped(factory, preparation, signature_of(OWNER)))
    assert not await verifier.is_signed_by(wallet, TEXT, wrapped(factory, preparation, signature_of(STRANGER)))
    assert await trio.to_thread.run_sync(ledger.ask, "eth_getCode", wallet, "latest") == "0x"


async def test_a_wrapped_signature_of_a_deployed_wallet_counts_too(verifier: SignatureVerifier, ledger: Ledger) -> None:
    factory = ledger.wallets["factory"]
    wallet, preparation = not_yet_deployed(factory, salt=2)
    await trio.to_thread.run_sync(lambda: ledger.send(preparation, to=factory))
    assert await verifier.is_signed_by(wallet, TEXT, wrapped(factory, preparation, signature_of(OWNER)))
    assert not await verifier.is_signed_by(wallet, TEXT, wrapped(factory, preparation, signature_of(STRANGER)))


@pytest.mark.parametrize("kind", ["looping", "reverting", "silent", "endless answer", "off-chain lookup"])
async def test_a_factory_that_deploys_nothing_is_no(verifier: SignatureVerifier, ledger: Ledger, kind: str) -> None:
    wallet, preparation = not_yet_deployed(ledger.wallets["factory"], salt=3)
    hostile = ledger.wallets[kind]
    assert not await verifier.is_signed_by(wallet, TEXT, wrapped(hostile, preparation, signature_of(OWNER)))
    assert not await verifier.is_signed_by(hostile, TEXT, wrapped(hostile, preparation, signature_of(OWNER)))


async def test_a_wrapped_key_signature_does_not_sign_for_another_address(
    verifier: SignatureVerifier, ledger: Ledger
) -> None:
    factory = ledger.wallets["factory"]
    _, preparation = not_yet_deployed(factory, salt=4)
    sealed = wrapped(factory, preparation, signature_of(OWNER))
    assert not await verifier.is_signed_by(STRANGER.address, TEXT, sealed)


@pytest.mark.parametrize(
    "damaged",
    [
        MARK_6492,
        b"\x00" * 31 + MARK_6492,
        b"\xff" * 96 + MARK_6492,
        b"\x00" * 96 + MARK_6492,
        b"\x7f" * 500 + MARK_6492,
    ],
    ids=["mark alone", "31 bytes", "all ones", "all zero", "nonsense"],
)
async def test_a_damaged_wrapping_is_no(verifier: SignatureVerifier, ledger: Ledger, damaged: bytes) -> None:
    for wallet in (ledger.wallets["good"], STRANGER.address):
        assert not await verifier.is_signed_by(wallet, TEXT, damaged)


async def test_a_signature_over_the_size_cap_is_no_without_asking() -> None:
    async with a_verifier("http://127.0.0.1:9", signature_bytes_max=100) as verifier:
        assert not await verifier.is_signed_by(STRANGER.address, TEXT, b"\x01" * 101)


async def test_a_chain_that_does_not_answer_says_neither_yes_nor_no() -> None:
    async with a_verifier("http://127.0.0.1:9") as verifier:
        with pytest.raises(ChainUnavailableError):
            await verifier.is_signed_by(STRANGER.address, TEXT, b"\x01" * 70)


async def test_a_chain_that_hangs_is_given_up_in_time() -> None:
    async def say_nothing(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, say_nothing, 0)
        port = listeners[0].socket.getsockname()[1]
        async with a_verifier(f"http://127.0.0.1:{port}", timeout_ms=200, at_once_max=1) as verifier:
            for _ in range(2):
                with trio.fail_after(5), pytest.raises(ChainUnavailableError):
                    await verifier.is_signed_by(STRANGER.address, TEXT, b"\x01" * 70)
        nursery.cancel_scope.cancel()


class NoContracts:
    """A chain on which no contract lives."""

    async def call(self, to: str | None, data: bytes, *, gas_cap: int = 0, block: str = "latest") -> bytes:
        return b""

    async def code(self, address: str, *, block: str = "latest") -> bytes:
        return b""


@given(st.binary(min_size=0, max_size=70) | st.binary(min_size=65, max_size=65))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_bytes_are_judged_without_an_error(signature: bytes) -> None:
    verdict = trio.run(SignatureVerifier(NoContracts()).is_signed_by, STRANGER.address, TEXT, signature)
    assert verdict is False
