"""The meter signs in the contract's domain, with its key in this process or in another one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from sightline.bootstrap.maintenance.findings import Level
from sightline.chain.contracts.messages import CaptureBatch, MeterStatement, Opening, TypedMessage, escrow_domain
from sightline.chain.meter import Meter, MeterKey, open_remote_meter
from sightline.chain.signer import KeyRefusedError
from sightline.config import Settings
from sightline.domain.addresses import recovered_address
from sightline.domain.errors import ChainUnavailableError
from tests.chain.escrow.stage import HOLD, Stage
from tests.chain.escrow.test_chain_check import checked
from tests.chain.interop.anvil import anvil_process
from tests.chain.relayer.key_server import KeyServer, served
from tests.chain.world import ids, until

CHAIN_ID, CONTRACT = 84_532_777, "0x" + "Cc" * 20
KEY = "0x" + "7e" * 32
DOMAIN = escrow_domain(CHAIN_ID, CONTRACT)
MESSAGES: tuple[TypedMessage, ...] = (
    Opening(terms_hash=b"\x11" * 32, payee="0x" + "0b" * 20),
    MeterStatement(hold_hash=b"\x22" * 32, clean_seconds=2**40, head_hash=b"\x00" * 32, is_final=True),
    CaptureBatch(captures_hash=b"\x33" * 32),
)


def opened(url: str) -> Any:
    return open_remote_meter(url, chain_id=CHAIN_ID, contract=CONTRACT, timeout_ms=3_000, ids=ids)


@asynccontextmanager
async def in_this_process() -> AsyncIterator[Meter]:
    yield MeterKey(bytes.fromhex(KEY[2:]), chain_id=CHAIN_ID, contract=CONTRACT)


@asynccontextmanager
async def in_a_key_server(methods: frozenset[str], takes_batches: bool) -> AsyncIterator[Meter]:
    async with served(KeyServer(methods=methods, takes_batches=takes_batches)) as url, opened(url) as meter:
        yield meter


@asynccontextmanager
async def in_anvil() -> AsyncIterator[Meter]:
    async with anvil_process("--accounts", "1", "--mnemonic-random") as url, opened(url) as meter:
        yield meter


METERS: list[Any] = [
    pytest.param(in_this_process, id="key"),
    pytest.param(partial(in_a_key_server, frozenset({"eth_accounts", "eth_signTypedData_v4"}), True), id="wallet"),
    pytest.param(partial(in_a_key_server, frozenset({"eth_accounts", "eth_signTypedData"}), False), id="web3signer"),
    pytest.param(in_anvil, id="anvil", marks=pytest.mark.interop),
]


@pytest.mark.parametrize("of", METERS)
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
async def test_a_meter_signs_a_message_for_its_contract_on_its_chain(
    of: Callable[[], Any], message: TypedMessage
) -> None:
    async with of() as meter:
        signature = await meter.sign(message)
        assert await meter.sign(message) == signature
        assert len(signature) == 65
        assert signature[64] in (27, 28)
        assert recovered_address(DOMAIN.digest(message), signature) == meter.address.lower()
        other = escrow_domain(CHAIN_ID + 1, CONTRACT)
        assert recovered_address(other.digest(message), signature) != meter.address.lower()


async def refuse(process: KeyServer, error: type[Exception], words: str, act: Callable[[Meter], Awaitable[Any]]):
    async with served(process) as url:
        with pytest.raises(error, match=words):
            async with opened(url) as meter:
                await act(meter)


async def sign(meter: Meter) -> None:
    await meter.sign(MESSAGES[0])


async def test_a_signature_of_another_key_is_not_passed_on() -> None:
    server = KeyServer(accounts=["0x" + "7e" * 20])
    await refuse(server, ChainUnavailableError, "returned a signature that is not that of 0x", sign)


async def test_a_signer_that_refuses_says_why() -> None:
    await refuse(KeyServer(is_locked=True), ChainUnavailableError, "the account is locked", sign)


@pytest.mark.parametrize("accounts", [[], ["0x" + "01" * 20, "0x" + "02" * 20], ["no address"]])
async def test_a_signer_without_exactly_one_key_is_refused(accounts: list[str]) -> None:
    await refuse(KeyServer(accounts=accounts), KeyRefusedError, "must have one account", sign)


async def test_a_signer_that_is_away_is_unavailable() -> None:
    async with served(KeyServer()) as url:
        pass
    with pytest.raises(ChainUnavailableError):
        async with opened(url):
            raise AssertionError("it opened")


def of_stage(stage: Stage) -> KeyServer:
    """A process with the key that the stage's contract knows as its meter."""
    return KeyServer(key="0x" + stage.meter_key.hex())


async def test_a_session_is_opened_and_captured_by_the_key_in_another_process(stage: Stage) -> None:
    before, process = await stage.held(), of_stage(stage)
    async with served(process) as url, stage.running(meter_signer_url=url) as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        process.is_locked = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.escrow.open_hold, session)
            await until("the relayer's rounds fail", lambda: is_refused(process))
            assert await stage.held() == before
            process.is_locked = False
        assert await stage.held() == before + HOLD
        await stage.ended(session, 20)
        service.notify()
        await stage.until_done(session.id)
        assert await stage.held() == before


async def is_refused(process: KeyServer) -> bool:
    return process.refused > 0


async def test_the_check_of_the_chain_asks_the_process_for_its_address(stage: Stage) -> None:
    async with served(of_stage(stage)) as url:
        findings = await checked(stage, chain_meter_key=None, chain_meter_signer_url=url)
    assert [each.level for each in findings if each.check == "meter"] == [Level.OK]
    findings = await checked(stage, chain_meter_key=None, chain_meter_signer_url=url)
    [away] = [each for each in findings if each.check == "meter"]
    assert (away.level, "SIGHTLINE_CHAIN_METER_SIGNER_URL" in away.remedy) == (Level.FAILED, True)


@pytest.mark.parametrize("given", [{}, {"chain_meter_key": KEY, "chain_meter_signer_url": "http://127.0.0.1:9000"}])
def test_an_escrow_on_a_network_has_its_meter_in_one_place(given: dict[str, str]) -> None:
    external = {
        "chain_rpc_url": "http://127.0.0.1:8545", "chain_id": CHAIN_ID, "chain_usdc_address": CONTRACT.lower(),
        "chain_settlement_address": CONTRACT.lower(), "chain_relayer_key": "0x" + "7f" * 32, "funds_policy": "escrow",
    }  # fmt: skip
    with pytest.raises(ValueError, match="SIGHTLINE_CHAIN_METER_SIGNER_URL"):
        Settings.model_validate(external | given)
