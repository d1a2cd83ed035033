"""A chain is opened only if chain id, genesis block and contracts are as expected and the key is private."""

import json
from pathlib import Path

import pytest
import trio
from eth_abi.abi import encode
from eth_account import Account

from sightline.bootstrap.failures.line import start_line
from sightline.bootstrap.options.core import chain_options
from sightline.chain.contracts.abi import call_data
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.relayer import Relayer
from sightline.chain.service import ChainOptions, ChainRefusedError, ChainService, ContractKindError, open_chain
from sightline.chain.signer import Fees, KeyRefusedError, Signer, read_keystore
from sightline.config import Settings
from sightline.domain.errors import ChainUnavailableError, StoreUnavailableError
from sightline.domain.value import replace
from sightline.ports.chain import CallRevertedError, ChainChangedError
from sightline.ports.ledger import ChainIdentity, SettlementState
from simulation.memory.ledger import MemoryLedger
from tests.chain.endpoint import answering, of_method
from tests.chain.world import Wallet, World, clock, faucet_of, ids, options_for, running, until

ANVILS_FIRST_KEY = bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")


async def refuse(world: World, options: ChainOptions, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        async with open_chain(options, ledger=MemoryLedger(), clock=clock, ids=ids):
            raise AssertionError("it opened")


async def test_settings_that_fit_no_chain_are_refused_with_what_is_wrong(world: World) -> None:
    options = options_for(world)
    stranger = Wallet().address
    for changed, words in (
        ({"chain_id": 5}, "the endpoint's chain id is 84532001, the settings say 5"),
        ({"usdc_address": None}, "needs rpc_url"),
        ({"settlement_address": "0x12"}, "is not an address"),
        ({"settlement_address": stranger}, "no contract at settlement_address"),
        ({"usdc_address": stranger}, "no contract at usdc_address"),
        ({"settlement_address": world.token}, "is not a SessionSettlement"),
        ({"usdc_address": world.settlement}, "settles in another token"),
        ({"platform_fee_bps": 3_001}, "over the contract's bound 3000"),
    ):
        await refuse(world, replace(options, **changed), ChainRefusedError, words)  # type: ignore[arg-type]


async def test_the_contract_of_another_funds_policy_names_the_setting_of_the_policy(
    world: World, tmp_path: Path
) -> None:
    options = replace(options_for(world), settlement_address=world.token)
    with pytest.raises(ContractKindError) as caught:
        async with open_chain(options, ledger=MemoryLedger(), clock=clock, ids=ids):
            raise AssertionError("it opened")
    said = start_line(caught.value, Settings(data_dir=tmp_path))
    assert "is not a SessionSettlement" in said
    assert "started with escrow, set SIGHTLINE_FUNDS_POLICY to that; it is advisory now" in said


async def test_a_dead_endpoint_is_unavailable_not_refused(world: World) -> None:
    world.endpoint.is_down = True
    await refuse(world, options_for(world), ChainUnavailableError, "does not answer")


@pytest.mark.parametrize("key", [ANVILS_FIRST_KEY, (1).to_bytes(32, "big"), (999).to_bytes(32, "big")])
async def test_keys_that_everybody_has_are_refused_off_the_embedded_chain(world: World, key: bytes) -> None:
    await refuse(world, options_for(world, relayer_key=key), KeyRefusedError, "well-known")


@pytest.mark.parametrize("key", [b"", b"\x00" * 32, b"\xff" * 32, b"short"])
async def test_what_is_no_key_is_refused_without_showing_it(world: World, key: bytes) -> None:
    await refuse(world, options_for(world, relayer_key=key), KeyRefusedError, "not a private key")


async def test_another_chain_under_the_same_database_is_refused(world: World) -> None:
    other = ChainIdentity(
        chain_id=84_532_001, genesis_hash="0x" + "11" * 32, usdc_address=world.token.lower(),
        settlement_address=world.settlement.lower(),
    )  # fmt: skip
    await world.ledger.identify(other)
    with pytest.raises(ChainChangedError, match="was written against"):
        async with open_chain(options_for(world), ledger=world.ledger, clock=clock, ids=ids):
            raise AssertionError("it opened")


async def test_a_chain_that_changes_while_we_run_gets_no_signature(world: World) -> None:
    await world.ready_parties()
    async with running(world) as service:
        world.endpoint.fault = of_method("eth_chainId", answering("0x1"))
        session_id = await world.end_session()
        service.notify()

        async def halted() -> bool:
            return (status := service.relayer_status()) is not None and status.halted_because is not None

        await until("the relayer halts", halted)
        assert (await world.record(session_id)).attempts == ()
        assert (await world.record(session_id)).state is SettlementState.COMPOSED


async def test_the_config_names_the_chain_and_hides_the_nodes_own_port(world: World) -> None:
    def opened(**changed: object) -> object:
        return open_chain(options_for(world, **changed), ledger=MemoryLedger(), clock=clock, ids=ids)

    async with opened() as service:  # type: ignore[attr-defined]
        assert isinstance(service, ChainService)
        assert service.config.rpc_is_private
        assert (service.config.environment, service.config.chain_id) == ("TEST", 84_532_001)
        assert service.limits.session_cap == 1_000_000_000_000
        assert (service.config.usdc_address, service.config.settlement_address) == (world.token, world.settlement)
        assert service.faucet is None
    async with opened(public_rpc_url="https://rpc.example") as service:  # type: ignore[attr-defined]
        assert (service.config.rpc_url, service.config.rpc_is_private) == ("https://rpc.example", False)


async def test_reads_tell_no_from_do_not_know(world: World) -> None:
    async with open_chain(options_for(world), ledger=MemoryLedger(), clock=clock, ids=ids) as service:
        reader = service.reader
        assert await reader.code(world.token)
        assert await reader.code(Wallet().address) == b""
        supply = await reader.call(world.token, call_data("totalSupply()"))
        assert len(supply) == 32
        assert await reader.call(None, bytes.fromhex("600160005360016000f3")) == b"\x01"
        with pytest.raises(CallRevertedError, match="TestUSDC: amount exceeds balance") as caught:
            await reader.call(world.token, call_data("transfer(address,uint256)", [Wallet().address, 1]))
        assert caught.value.data[:4] == b"\x08\xc3\x79\xa0"
        with pytest.raises(CallRevertedError, match="out of gas"):
            await reader.call(None, bytes.fromhex("5b600056"), gas_cap=100_000)
        world.endpoint.fault = of_method("eth_call", answering({"not": "hex"}))
        with pytest.raises(ChainUnavailableError):
            await reader.call(world.token, b"")
        world.endpoint.is_down = True
        with pytest.raises(ChainUnavailableError):
            await reader.call(world.token, b"")


async def test_a_deployment_of_the_first_contract_goes_on_settling(world: World) -> None:
    """On a chain deployed before settleMany and the admin delay, charged and free sessions settle one by one."""
    old = json.loads((Path(__file__).parent / "data" / "SessionSettlement_1.json").read_text())
    owner = Account.from_key(world.treasury_key).address
    arguments = encode(
        ["address", "address", "address", "address", "uint256", "uint256", "bool"],
        [world.token, owner, Signer(world.relayer_key).address, owner, 3_000, 10**12, False],
    )
    tx_hash = await world.send(world.treasury_key, "", bytes.fromhex(old["bytecode"][2:]) + arguments, gas=4_000_000)
    world.settlement = (await world.rpc.call("eth_getTransactionReceipt", tx_hash))["contractAddress"]
    await world.ready_parties()
    async with running(world) as service:
        charged = await world.end_session()
        free = [await world.end_session(seconds=0) for _ in range(3)]
        service.notify()
        await world.until_told(charged, *free)
        assert await world.settled_on_chain() == {charged: 60_000} | dict.fromkeys(free, 0)
        await world.assert_books_balance()
    hashes = {(await world.record(session_id)).tx_hash for session_id in (charged, *free)}
    assert len(hashes) == 4


async def test_a_wallet_that_changes_is_reported_until_the_report_is_taken(world: World) -> None:
    await world.ready_parties()
    heard: list[dict[str, int]] = []

    async def busy_at_first(address: str) -> None:
        heard.append(await world.ledger.spendable([address], now_ms=clock.now_ms()))
        if len(heard) == 1:
            raise StoreUnavailableError("busy")

    payer = world.payer.address.lower()

    async def falls_to(micro: int) -> bool:
        return {payer: micro} in heard[1:]

    options = options_for(world)
    async with (
        open_chain(options, ledger=world.ledger, clock=clock, ids=ids) as service,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(service.run_watcher, busy_at_first)
        await until("the wallet is reported", lambda: falls_to(100_000_000))
        await world.approve(world.payer, 7)
        service.wake_watcher()
        await until("the lower allowance is reported", lambda: falls_to(7))
        nursery.cancel_scope.cancel()


async def test_without_a_listener_the_wallets_that_were_read_are_not_kept(world: World) -> None:
    await world.ready_parties()

    options = options_for(world)
    async with (
        open_chain(options, ledger=world.ledger, clock=clock, ids=ids) as service,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(service.run_watcher)

        async def is_read() -> bool:
            return not await world.ledger.wallets_to_read(limit=1)

        await until("the wallets are read", is_read)
        assert service._read_wallets == {}
        nursery.cancel_scope.cancel()


async def test_without_a_round_trip_of_the_faucet_nothing_is_claimed(world: World) -> None:
    payment = await faucet_of(world).fund(world.payer.address, 7)
    assert payment.amount_micro == 7
    assert await world.balance(world.payer) == 7


def test_a_keystore_opens_with_its_password_alone(tmp_path: Path) -> None:
    key = ids.token_bytes(32)
    path = tmp_path / "relayer.json"
    path.write_text(json.dumps(Account.encrypt(key, "open sesame", iterations=2)))
    assert read_keystore(path, "open sesame") == key
    for broken, password in ((path, "wrong"), (tmp_path / "absent.json", "x")):
        with pytest.raises(KeyRefusedError) as caught:
            read_keystore(broken, password)
        assert key.hex() not in str(caught.value)


def test_a_signer_signs_as_other_wallets_do_and_never_shows_its_key() -> None:
    key = ids.token_bytes(32)
    signer = Signer(key)
    tx_hash, raw = signer.sign(
        chain_id=84_532_001, nonce=3, to=Wallet().address, data=b"\x01\x02", gas=90_000,
        fees=Fees(max_fee_wei=5, tip_wei=1),
    )  # fmt: skip
    assert Account.recover_transaction(raw) == signer.address == Account.from_key(key).address
    assert tx_hash.startswith("0x")
    assert key.hex() not in repr(signer) + str(vars(RelayerOptions)) + repr(Relayer)


def test_the_cap_of_fees_is_a_setting_in_gwei(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "chain_max_fee_gwei": 7})
    assert chain_options(settings, "http://127.0.0.1:8080").fee_cap_wei == 7 * 10**9
