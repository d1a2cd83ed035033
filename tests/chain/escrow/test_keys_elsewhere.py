"""A session in escrow whose transactions are signed by the gas key in another process, and a server that says so."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_utils.address import to_checksum_address

from sightline.domain.escrow import ConsentKind
from sightline.system.server_address_file import read_server_addresses
from tests.chain.escrow.stage import HOLD, Stage
from tests.chain.interop.anvil import anvil_process
from tests.chain.relayer.key_server import KeyServer, served
from tests.chain.world import Wallet, until
from tests.e2e.server import Server

CHAIN_ID = 84_532_001


@asynccontextmanager
async def in_a_key_server() -> AsyncIterator[str]:
    async with served(KeyServer(takes_batches=False)) as url:
        yield url


@asynccontextmanager
async def in_anvil() -> AsyncIterator[str]:
    async with anvil_process("--accounts", "1", "--mnemonic-random", "--chain-id", str(CHAIN_ID)) as url:
        yield url


async def address_at(url: str) -> str:
    async with httpx.AsyncClient() as http:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "eth_accounts", "params": []}
        (address,) = (await http.post(url, json=asked)).json()["result"]
    return str(to_checksum_address(address))


@pytest.mark.parametrize(
    "of", [pytest.param(in_a_key_server, id="server"), pytest.param(in_anvil, id="anvil", marks=pytest.mark.interop)]
)
async def test_a_session_is_opened_and_captured_by_a_gas_key_in_another_process(
    stage: Stage, of: Callable[[], Any]
) -> None:
    before = await stage.held()
    async with of() as url:
        payer_of_gas = await address_at(url)
        await stage.world.give_coin(_Account(payer_of_gas))
        async with stage.running(relayer_key=None, relayer_signer_url=url) as service:
            assert service.escrow is not None
            session = await stage.assigned(service, kind=ConsentKind.AUTHORIZATION)
            await service.escrow.open_hold(session)
            assert await stage.held() == before + HOLD
            charged = await stage.ended(session, 20)
            service.notify()
            await stage.until_done(session.id)
        assert await stage.held() == before
        assert await stage.world.balance(stage.world.payee) == charged - charged * 1_500 // 10_000
        sent = await stage.world.rpc.call("eth_getTransactionCount", payer_of_gas, "latest")
        assert int(sent, 16) == 2


class _Account(Wallet):
    """An address whose key is elsewhere."""

    def __init__(self, address: str) -> None:
        self._address = address

    @property
    def address(self) -> str:
        return self._address


@pytest.fixture
async def server_with_signer(stage: Stage, data_directory: Path) -> AsyncIterator[tuple[Server, KeyServer]]:
    keys = KeyServer(key="0x" + stage.world.relayer_key.hex())
    async with served(keys) as url:
        made = Server(
            data_directory,
            env={
                "SIGHTLINE_FUNDS_POLICY": "escrow", "SIGHTLINE_CHAIN_RPC_URL": stage.world.endpoint.url,
                "SIGHTLINE_CHAIN_ID": str(CHAIN_ID), "SIGHTLINE_CHAIN_USDC_ADDRESS": stage.world.token,
                "SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS": stage.world.settlement,
                "SIGHTLINE_CHAIN_RELAYER_SIGNER_URL": url, "SIGHTLINE_CHAIN_METER_KEY": "0x" + stage.meter_key.hex(),
            },
        )  # fmt: skip
        yield made, keys
        made.end()


async def test_a_server_says_that_its_signer_is_away(server_with_signer: tuple[Server, KeyServer]) -> None:
    server, keys = server_with_signer
    await server.start()
    where = read_server_addresses(server.directory / "data")
    assert where is not None

    async def seen() -> tuple[str, bool]:
        async with httpx.AsyncClient(timeout=10) as http:
            checks = json.loads((await http.get(f"{where.internal_url}/readyz")).text)
            metrics = (await http.get(f"{where.internal_url}/metrics")).text
        detail = (checks.get("data") or checks)["checks"]["relayer"]["detail"]
        return detail, 'sightline_chain_signer_up{key="relayer"} 1' in metrics

    detail, is_up = await seen()
    assert ("signer" in detail, is_up) == (False, True)
    keys.life.cancel()

    async def is_away() -> bool:
        detail, is_up = await seen()
        return "the relayer's signer does not answer" in detail and not is_up

    await until("the server says that its signer is away", is_away)
