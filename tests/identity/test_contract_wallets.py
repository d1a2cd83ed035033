"""Signatures of contract wallets on a real EVM.

Valid ones sign in, invalid ones are refused, and an unavailable chain is reported as unavailable.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from eth_account.messages import encode_defunct
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline.chain.rpc.client import RpcOptions, open_rpc
from sightline.chain.rpc.reader import RpcReader
from sightline.identity.signatures import SignatureOptions, SignatureVerifier, text_hash
from sightline.ports.chain import ChainUnavailableError
from sightline.system.ids import SystemIds
from tests.identity.wallet_chain import (
    CHAIN_ID,
    MARK_6492,
    OWNER,
    RUNTIMES,
    STRANGER,
    TEXT,
    ZERO,
    WalletChain,
    an_account,
    not_yet_deployed,
    off_chain_lookup,
    signature_of,
    with_wallets,
    wrapped,
)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalletChain]:
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


@pytest.fixture
async def verifier(chain: WalletChain) -> AsyncIterator[SignatureVerifier]:
    async with a_verifier(chain.url) as opened:
        yield opened


@asynccontextmanager
async def a_verifier(url: str, **options: int) -> AsyncIterator[SignatureVerifier]:
    """Create a verifier with its own client of an endpoint."""
    async with open_rpc(url, RpcOptions(timeout_ms=60_000, tries=1), SystemIds()) as rpc:
        yield SignatureVerifier(
            RpcReader(rpc, token=ZERO, settlement=ZERO), SignatureOptions(**{"timeout_ms": 60_000} | options)
        )


def test_the_hash_is_what_wallets_sign() -> None:
    for text in ("", "a", TEXT, "é" * 200):
        signed = OWNER.sign_message(encode_defunct(text=text))
        assert text_hash(text) == bytes(signed.message_hash)


async def test_a_contract_wallet_s_owner_signs_for_it(verifier: SignatureVerifier, chain: WalletChain) -> None:
    wallet = chain.wallets["good"]
    assert await verifier.is_signed_by(wallet, TEXT, signature_of(OWNER))
    assert await verifier.is_signed_by(wallet.lower(), TEXT, signature_of(OWNER))


async def test_nobody_else_signs_for_it(verifier: SignatureVerifier, chain: WalletChain) -> None:
    wallet = chain.wallets["good"]
    assert not await verifier.is_signed_by(wallet, TEXT, signature_of(STRANGER))
    assert not await verifier.is_signed_by(wallet, TEXT, signature_of(OWNER, TEXT + "."))
    assert not await verifier.is_signed_by(wallet, TEXT, b"")
    assert not await verifier.is_signed_by(wallet, TEXT, b"\x01" * 1_024)


async def test_an_account_with_delegated_code_signs_by_its_own_key(
    verifier: SignatureVerifier, chain: WalletChain
) -> None:
    account = an_account("delegating")
    chain.delegate(account, chain.wallets["reverting"])
    assert await verifier.is_signed_by(account.address, TEXT, signature_of(account))
    assert not await verifier.is_signed_by(account.address, TEXT, signature_of(STRANGER))
    assert not await verifier.is_signed_by(account.address, TEXT, signature_of(account, TEXT + "."))


@pytest.mark.parametrize("kind", list(RUNTIMES))
async def test_a_contract_that_does_not_say_the_word_is_no(
    verifier: SignatureVerifier, chain: WalletChain, kind: str
) -> None:
    assert not await verifier.is_signed_by(chain.wallets[kind], TEXT, signature_of(OWNER))


async def test_an_off_chain_lookup_makes_no_request(chain: WalletChain) -> None:
    """The look-up names a port on which the test listens; no connection may arrive."""
    async with trio.open_nursery() as nursery:
        visitors = 0

        async def visited(stream: trio.SocketStream) -> None:
            nonlocal visitors
            visitors += 1
            await stream.aclose()

        listeners = await nursery.start(trio.serve_tcp, visited, 0)
        port = listeners[0].socket.getsockname()[1]
        code = off_chain_lookup().replace(b"127.0.0.1:1/{data}", f"127.0.0.1:{port}/".ljust(18, "x").encode())
        wallet = await trio.to_thread.run_sync(chain.deploy_runtime, code)
        async with a_verifier(chain.url) as verifier:
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


async def test_a_wallet_that_is_not_deployed_yet_signs_in(verifier: SignatureVerifier, chain: WalletChain) -> None:
    factory = chain.wallets["factory"]
    wallet, preparation = not_yet_deployed(factory, salt=1)
    assert await verifier.is_signed_by(wallet, TEXT, wrapped(factory, preparation, signature_of(OWNER)))
    assert not await verifier.is_signed_by(wallet, TEXT, wrapped(factory, preparation, signature_of(STRANGER)))
    assert await trio.to_thread.run_sync(chain.ask, "eth_getCode", wallet, "latest") == "0x"


async def test_a_wrapped_signature_of_a_deployed_wallet_counts_too(
    verifier: SignatureVerifier, chain: WalletChain
) -> None:
    factory = chain.wallets["factory"]
    wallet, preparation = not_yet_deployed(factory, salt=2)
    await trio.to_thread.run_sync(lambda: chain.send(preparation, to=factory))
    assert await verifier.is_signed_by(wallet, TEXT, wrapped(factory, preparation, signature_of(OWNER)))
    assert not await verifier.is_signed_by(wallet, TEXT, wrapped(factory, preparation, signature_of(STRANGER)))


@pytest.mark.parametrize("kind", ["looping", "reverting", "silent", "endless answer", "off-chain lookup"])
async def test_a_factory_that_deploys_nothing_is_no(verifier: SignatureVerifier, chain: WalletChain, kind: str) -> None:
    wallet, preparation = not_yet_deployed(chain.wallets["factory"], salt=3)
    hostile = chain.wallets[kind]
    assert not await verifier.is_signed_by(wallet, TEXT, wrapped(hostile, preparation, signature_of(OWNER)))
    assert not await verifier.is_signed_by(hostile, TEXT, wrapped(hostile, preparation, signature_of(OWNER)))


async def test_a_wrapped_key_signature_does_not_sign_for_another_address(
    verifier: SignatureVerifier, chain: WalletChain
) -> None:
    factory = chain.wallets["factory"]
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
async def test_a_damaged_wrapping_is_no(verifier: SignatureVerifier, chain: WalletChain, damaged: bytes) -> None:
    for wallet in (chain.wallets["good"], STRANGER.address):
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
                with trio.fail_after(60), pytest.raises(ChainUnavailableError):
                    await verifier.is_signed_by(STRANGER.address, TEXT, b"\x01" * 70)
        nursery.cancel_scope.cancel()


class NoContracts:
    """A chain without contracts."""

    async def call(self, to: str | None, data: bytes, *, gas_cap: int = 0, block: str = "latest") -> bytes:
        return b""

    async def code(self, address: str, *, block: str = "latest") -> bytes:
        return b""


@given(st.binary(min_size=0, max_size=70) | st.binary(min_size=65, max_size=65))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_bytes_are_judged_without_an_error(signature: bytes) -> None:
    verdict = trio.run(SignatureVerifier(NoContracts()).is_signed_by, STRANGER.address, TEXT, signature)
    assert verdict is False
