"""The relayer signs with its key in this process or in another one, and takes nothing else from there than it asked."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import rlp
import trio
from eth_account import Account

from sightline.bootstrap.maintenance.findings import Level
from sightline.chain.gas_key import GasKey, LocalGasKey, RemoteGasKey, open_remote_gas_key
from sightline.chain.service import ChainService
from sightline.chain.signer import Fees, KeyRefusedError, Signer
from sightline.chain.signing_process import SignerUnavailableError
from sightline.config import Settings
from sightline.ports.ledger import SettlementState
from tests.chain.interop.anvil import anvil_process
from tests.chain.relayer.desk import Desk
from tests.chain.relayer.key_server import KeyServer, Transaction, served, without_socket
from tests.chain.test_chain_check import checked
from tests.chain.world import World, ids, running, until

CHAIN_ID, CONTRACT = 84_532_777, "0x" + "Cc" * 20
FEES = Fees(max_fee_wei=3 * 10**9, tip_wei=10**9)
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def opened(url: str) -> Any:
    return open_remote_gas_key(url, timeout_ms=3_000, ids=ids)


async def sign(key: GasKey) -> tuple[str, bytes]:
    return await key.sign(chain_id=CHAIN_ID, nonce=7, to=CONTRACT, data=b"\x00\x01" * 20, gas=90_000, fees=FEES)


@asynccontextmanager
async def in_this_process() -> AsyncIterator[GasKey]:
    yield LocalGasKey(Signer(ids.token_bytes(32)))


def in_a_key_server(**behaviour: Any) -> Callable[[], Any]:
    @asynccontextmanager
    async def run() -> AsyncIterator[GasKey]:
        async with served(KeyServer(**behaviour)) as url, opened(url) as key:
            yield key

    return run


@asynccontextmanager
async def in_anvil() -> AsyncIterator[GasKey]:
    arguments = ("--accounts", "1", "--mnemonic-random", "--chain-id", str(CHAIN_ID))
    async with anvil_process(*arguments) as url, opened(url) as key:
        yield key


CLEFS = frozenset({"account_list", "account_signTransaction"})
KEYS: list[Any] = [
    pytest.param(in_this_process, id="key"),
    pytest.param(in_a_key_server(takes_batches=False), id="web3signer"),
    pytest.param(in_a_key_server(shows_object=True), id="geth"),
    pytest.param(in_a_key_server(methods=CLEFS, shows_object=True), id="clef"),
    pytest.param(in_anvil, id="anvil", marks=pytest.mark.interop),
]


@pytest.mark.parametrize("of", KEYS)
async def test_a_key_signs_the_transaction_that_was_asked_for(of: Callable[[], Any]) -> None:
    async with of() as key:
        tx_hash, raw = await sign(key)
        assert Account.recover_transaction(raw) == key.address
        local = Signer(ids.token_bytes(32))
        _, ours = local.sign(chain_id=CHAIN_ID, nonce=7, to=CONTRACT, data=b"\x00\x01" * 20, gas=90_000, fees=FEES)
        assert rlp.decode(raw[1:])[:9] == rlp.decode(ours[1:])[:9]
        assert len(tx_hash) == 66
        assert (await sign(key)) == (tx_hash, raw)
        assert key.why_away is None


def with_other(**changed: Any) -> Callable[[Transaction], Transaction]:
    return lambda transaction: transaction | changed


def legacy(transaction: Transaction) -> Transaction:
    kept = {name: transaction[name] for name in ("to", "gas", "nonce", "value", "data", "chainId")}
    return kept | {"gasPrice": transaction["maxFeePerGas"]}


def with_high_s(raw: bytes) -> bytes:
    """The same transaction with the other signature of the same key, which EIP-2 forbids."""
    *fields, parity, r, s = rlp.decode(raw[1:])
    other = ORDER - int.from_bytes(s, "big")
    return b"\x02" + bytes(rlp.encode([*fields, b"" if parity else b"\x01", r, other]))


@pytest.mark.parametrize(
    ("altered", "words"),
    [
        (with_other(chainId=1), "another chain id"),
        (with_other(nonce=8), "another nonce"),
        (with_other(maxPriorityFeePerGas=2), "another tip"),
        (with_other(maxFeePerGas=10**12), "another maximum fee"),
        (with_other(gas=90_001), "another gas limit"),
        (with_other(to=Account.from_key("0x" + "dD" * 32).address), "another receiver"),
        (with_other(value=1), "another value"),
        (with_other(data="0x"), "another data"),
        (with_other(accessList=[{"address": CONTRACT.lower(), "storageKeys": []}]), "another access list"),
        (legacy, "no signed transaction of type 2"),
    ],
)
async def test_another_transaction_is_refused(altered: Callable[[Transaction], Transaction], words: str) -> None:
    async with served(KeyServer(altered=altered)) as url, opened(url) as key:
        with pytest.raises(SignerUnavailableError, match=words):
            await sign(key)
        assert words in (key.why_away or "")


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        (lambda raw: b"", "no signed transaction"),
        (lambda raw: raw[:-1], "no signed transaction"),
        (lambda raw: raw + b"\x00", "no signed transaction"),
        (lambda raw: b"\x02" + rlp.encode(rlp.decode(raw[1:])[:9]), "no signed transaction"),
        (lambda raw: b"\x02" + rlp.encode([*rlp.decode(raw[1:])[:11], b"\x01" * 33]), "no signature"),
        (lambda raw: b"\x02" + rlp.encode([*rlp.decode(raw[1:])[:10], b"\x07" * 32, b"\x07" * 32]), "has not signed"),
        (with_high_s, "nodes refuse"),
    ],
)
async def test_what_is_no_signature_of_the_key_is_refused(spoiled: Callable[[bytes], bytes], words: str) -> None:
    async with served(KeyServer(spoiled=spoiled)) as url, opened(url) as key:
        with pytest.raises(SignerUnavailableError, match=words):
            await sign(key)


@pytest.mark.parametrize("answer", [None, 5, "0xzz", {}, {"raw": None}, ["0x02"]])
async def test_an_answer_without_bytes_is_a_fault_of_the_signer(answer: Any) -> None:
    async with served(KeyServer(shown=lambda _: answer)) as url, opened(url) as key:
        with pytest.raises(SignerUnavailableError, match="no signed transaction"):
            await sign(key)
        assert key.why_away == "the relayer's signer returned no signed transaction of type 2"


async def test_a_signer_with_another_key_than_it_says_is_refused() -> None:
    server = KeyServer()
    async with served(server) as url, opened(url) as key:
        server.accounts, server.key = [key.address], "0x" + "77" * 32
        with pytest.raises(SignerUnavailableError, match="has not signed"):
            await sign(key)


async def test_a_signer_that_refuses_says_why() -> None:
    async with served(KeyServer(is_locked=True)) as url, opened(url) as key:
        with pytest.raises(SignerUnavailableError, match="the relayer's signer refuses: the account is locked"):
            await sign(key)


@pytest.mark.parametrize(
    ("accounts", "words"),
    [
        ([], "must have one account"),
        (["0x" + "01" * 20, "0x" + "02" * 20], "must have one account"),
        (["no address"], "must have one account"),
        (["0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"], "well-known"),
    ],
)
async def test_a_signer_without_exactly_one_private_key_is_refused(accounts: list[str], words: str) -> None:
    async with served(KeyServer(accounts=accounts)) as url:
        with pytest.raises(KeyRefusedError, match=words):
            async with opened(url):
                raise AssertionError("it opened")


def of_world(world: World) -> KeyServer:
    return KeyServer(key="0x" + world.relayer_key.hex())


@asynccontextmanager
async def signed_elsewhere(world: World, url: str) -> AsyncIterator[ChainService]:
    async with running(world, relayer_key=None, relayer_signer_url=url) as service:
        yield service


async def test_a_signer_that_dies_delays_settlements_and_loses_none(world: World) -> None:
    await world.ready_parties()
    server = of_world(world)
    async with served(server) as url, signed_elsewhere(world, url) as service:
        first = await world.end_session(seconds=10)
        service.notify()
        await world.until_told(first)
        server.life.cancel()
        waiting = [await world.end_session(seconds=seconds) for seconds in (20, 30, 40)]
        service.notify()

        async def waits() -> bool:
            return "relayer's signer does not answer" in (service.signers()["relayer"] or "")

        await until("the relayer waits for its signer", waits)
        assert [(await world.record(each)).attempts for each in waiting] == [(), (), ()]
        async with served(server):
            await world.until_told(*waiting)
            assert service.signers() == {"relayer": None}
            settled = await world.settled_on_chain()
    assert settled == {each: 1_000 * seconds for each, seconds in zip([first, *waiting], (10, 20, 30, 40), strict=True)}
    assert [(await world.record(each)).state for each in waiting] == [SettlementState.CONFIRMED] * 3


async def test_a_stuck_transaction_is_sent_again_while_the_signer_is_away(desk: Desk, autojump_clock: Any) -> None:
    server = KeyServer()
    async with without_socket(server) as process:
        desk.key = RemoteGasKey(process)
        relayer = desk.relayer(depth=0)
        stuck = await desk.ended()
        await relayer.work_once(desk.hear)
        server.is_locked = True
        desk.node.pool.clear()
        other = await desk.ended()
        await trio.sleep(2.5)
        with pytest.raises(SignerUnavailableError):
            await relayer.work_once(desk.hear)
        (attempt,) = (await desk.record(stuck)).attempts
        assert [each.tx_hash for each in desk.node.pool.values()] == [attempt.tx_hash]
        desk.node.mine()
        with pytest.raises(SignerUnavailableError):
            await relayer.work_once(desk.hear)
        assert [update.session_id for update in desk.told] == [stuck]
        server.is_locked = False
        await relayer.work_once(desk.hear)
        assert await desk.state(other) is SettlementState.SENT


async def test_a_signer_that_is_away_is_known_before_something_must_be_signed() -> None:
    server = KeyServer()
    async with served(server) as url, opened(url) as key:
        server.life.cancel()
        await key.probe()
        assert "does not answer" in (key.why_away or "")
        async with served(server):
            await key.probe()
            assert key.why_away is None
            server.accounts = ["0x" + "01" * 20]
            await key.probe()
            assert "does not have the key" in (key.why_away or "")


async def test_the_check_of_the_chain_asks_the_process_for_its_address(world: World) -> None:
    server = of_world(world)
    async with served(server) as url:
        findings = await checked(world, chain_relayer_key=None, chain_relayer_signer_url=url)
    assert [each for each in findings if each.level is Level.FAILED] == []
    findings = await checked(world, chain_relayer_key=None, chain_relayer_signer_url=url)
    [away] = [each for each in findings if each.check == "relayer"]
    assert (away.level, "SIGHTLINE_CHAIN_RELAYER_SIGNER_URL" in away.remedy) == (Level.FAILED, True)


@pytest.mark.parametrize(
    "given", [{}, {"chain_relayer_key": "0x" + "7e" * 32, "chain_relayer_signer_url": "http://127.0.0.1:9000"}]
)
def test_the_relayers_key_on_a_network_is_in_one_place(given: dict[str, str]) -> None:
    external = {
        "chain_rpc_url": "http://127.0.0.1:8545", "chain_id": CHAIN_ID, "chain_usdc_address": CONTRACT.lower(),
        "chain_settlement_address": CONTRACT.lower(),
    }  # fmt: skip
    with pytest.raises(ValueError, match="SIGHTLINE_CHAIN_RELAYER_SIGNER_URL"):
        Settings.model_validate(external | given)
