"""The official clients of x402, unmodified, buy views and get their rest back."""

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from sightline.chain.contracts.abi import call_data
from sightline_client import AsyncChain
from sightline_client.wallet import LocalWallet
from tests.chain.escrow.test_escrow_server import filming
from tests.chain.escrow.test_x402 import FUNDS, Market, open_market
from tests.chain.escrow.x402_buyer import VIEW
from tests.chain.interop.anvil import CHAIN_ID, open_anvil
from tests.chain.interop.conftest import a_world_on
from tests.client.api import Api
from tests.e2e.server import Server, go_online, until

pytestmark = pytest.mark.interop

ROOT: Final = Path(__file__).parents[4]
INSTALLED: Final = ROOT / ".interop" / "x402"
PYTHON: Final = INSTALLED / "venv" / "bin" / "python"
EXAMPLE: Final = ROOT / "examples" / "x402_view.py"
GUIDE: Final = ROOT / "docs" / "guides" / "x402.md"
LINES_MAX: Final = 31
LIMIT: Final = "200000"
"""Micro-USDC that one call may cost, in the example and in the guide."""
TOO_LOW: Final = "1000"
CLIENTS: Final = {
    "python": (str(PYTHON), str(Path(__file__).with_name("buy.py"))),
    "typescript": ("node", str(Path(__file__).with_name("buy.mjs"))),
}
BLOCK_S: Final = 1


@asynccontextmanager
async def anvil_market(directory: Path) -> AsyncIterator[Market]:
    """A market on anvil, which makes a block each second."""
    async with open_anvil(is_escrow=True) as anvil, a_world_on(anvil) as world:
        await anvil.rpc.call("evm_setIntervalMining", BLOCK_S)
        server = Server(
            directory,
            env={
                "SIGHTLINE_FUNDS_POLICY": "escrow",
                "SIGHTLINE_CHAIN_RPC_URL": anvil.url,
                "SIGHTLINE_CHAIN_PUBLIC_RPC_URL": anvil.url,
                "SIGHTLINE_CHAIN_ID": str(CHAIN_ID),
                "SIGHTLINE_CHAIN_USDC_ADDRESS": anvil.token,
                "SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS": anvil.settlement,
                "SIGHTLINE_CHAIN_RELAYER_KEY": anvil.relayer_key,
                "SIGHTLINE_CHAIN_METER_KEY": anvil.meter_key,
                "SIGHTLINE_CHAIN_CONFIRMATIONS": "1",
            },
        )

        async def fund(address: str, micro: int) -> None:
            await world.send(anvil.treasury_key, anvil.token, call_data("mint(address,uint256)", [address, micro]))

            async def balance() -> bool:
                return await AsyncChain(anvil.url).balance_of(anvil.token, address) >= micro

            await until(balance, bool, "the money is mined")

        try:
            async with open_market(server, fund) as market:
                yield market
        finally:
            server.end()


@pytest.fixture(
    params=[
        pytest.param(
            "embedded",
            marks=pytest.mark.nightly(
                "tests/chain/escrow/test_x402.py::test_a_stranger_buys_a_view_sees_it_and_gets_the_rest_back"
            ),
        ),
        "anvil",
    ]
)
async def market(request: pytest.FixtureRequest, server: Server, data_directory: Path) -> AsyncIterator[Market]:
    """A market with an operator that is online."""
    opened = open_market(server) if request.param == "embedded" else anvil_market(data_directory)
    async with opened as market:
        await go_online(market.server.url, market.operator)
        yield market


async def attempt(
    market: Market, wallet: LocalWallet, *command: str, limit: str = "", key_end: str = ""
) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | {
        "EVM_KEY": wallet.private_key + key_end, "USDC": market.config["usdcAddress"], "X402_MODULES": str(INSTALLED),
        "X402_LIMIT": limit,
    }  # fmt: skip
    with trio.fail_after(120):
        return await trio.run_process(command, env=env, capture_stdout=True, capture_stderr=True, check=False)


async def run(
    market: Market, wallet: LocalWallet, *command: str, key_end: str = ""
) -> subprocess.CompletedProcess[bytes]:
    done = await attempt(market, wallet, *command, key_end=key_end)
    assert done.returncode == 0, done.stderr.decode()
    return done


async def buy(
    market: Market, wallet: LocalWallet, client: str, path: str, body: dict[str, Any], *key: str
) -> dict[str, Any]:  # fmt: skip
    """Buy with an official client; returns the data of the answer, whose payment has succeeded."""
    url = f"{market.server.url}/api/v1/x402/views{path}"
    bought = json.loads((await run(market, wallet, *CLIENTS[client], url, json.dumps(body), *key)).stdout)
    assert bought["status"] == 200, bought
    assert (bought["paid"]["success"], bought["paid"]["payer"]) == (True, wallet.address)
    data: dict[str, Any] = bought["body"]["data"]
    return data


async def assigned(market: Market) -> str:
    """Wait until the operator has a session that it can start."""

    async def look() -> list[dict[str, Any]]:
        page = await market.device.get("/sessions", view="operator", state="ASSIGNED")
        items: list[dict[str, Any]] = page["items"]
        return items

    return str((await until(look, bool, "a view is sold"))[0]["id"])


async def test_the_example_buys_a_view_with_the_python_client_and_saves_its_first_frame(market: Market) -> None:
    code = EXAMPLE.read_text().split('"""')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= LINES_MAX
    async with trio.open_nursery() as nursery:
        wallet = market.buyer.wallet
        bought: list[subprocess.CompletedProcess[bytes]] = []
        looked = trio.Event()

        async def look() -> None:
            place = (str(VIEW["lat"]), str(VIEW["lng"]))
            command = (str(PYTHON), str(EXAMPLE), market.server.url, *place)
            bought.append(await run(market, wallet, *command, key_end="\n"))  # as of a key that was read from a file
            looked.set()

        nursery.start_soon(look)
        session_id = await assigned(market)
        started = await market.device.post(f"/sessions/{session_id}/start")
        held = await market.balance(market.config["settlementAddress"])
        assert held == int(started["session"]["holdMicroUsdc"])
        async with filming(market.device, market.operator, started["whipUrl"]):
            await looked.wait()
            ended = await market.device.get(f"/sessions/{session_id}")
        assert ended["state"] == "ENDED", "the example ends what it does not need any more"
        charged = int(ended["chargedMicroUsdc"])
        assert 0 < charged < held
        await until(lambda: market.balance(wallet.address), lambda now: now == FUNDS - charged, "the rest has returned")
    assert bought[0].stdout[:3] == b"\xff\xd8\xff"
    setting, *command = bought[0].stderr.decode().splitlines()[-1].split()
    assert command == ["sightline", "receipt", session_id]
    async with Api(market.server.url, key=setting.removeprefix("SIGHTLINE_API_KEY=")) as reader:
        assert (await reader.get(f"/sessions/{session_id}"))["chargedMicroUsdc"] == str(charged)


@pytest.mark.parametrize(("arguments", "missing"), [((), ""), (("http://127.0.0.1:9", "1", "2"), "EVM_KEY")])
async def test_the_example_without_what_it_needs_says_how_it_is_run(arguments: tuple[str, ...], missing: str) -> None:
    env = {name: value for name, value in (os.environ | {"EVM_KEY": "0x1", "USDC": "0x2"}).items() if name != missing}
    command = [str(PYTHON), str(EXAMPLE), *arguments]
    done = await trio.run_process(command, env=env, capture_stderr=True, check=False)
    assert done.returncode == 1
    assert "export EVM_KEY=0x..." in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


async def test_a_price_above_the_documented_limit_is_refused_before_anything_is_signed(
    market: Market, tmp_path: Path
) -> None:
    wallet, code, low = market.buyer.wallet, EXAMPLE.read_text(), tmp_path / "low.py"
    assert f'"max_amount_per_payment": "{LIMIT}"}}' in code
    assert f'asset: USDC, maxAmountPerPayment: "{LIMIT}" }}]' in GUIDE.read_text()
    low.write_text(code.replace(LIMIT, TOO_LOW))
    place = (str(VIEW["lat"]), str(VIEW["lng"]))
    tried = [
        await attempt(market, wallet, str(PYTHON), str(low), market.server.url, *place),
        await attempt(
            market, wallet, *CLIENTS["typescript"], f"{market.server.url}/api/v1/x402/views", json.dumps(VIEW),
            limit=TOO_LOW,
        ),
    ]  # fmt: skip
    for done in tried:
        assert done.returncode != 0, done.stdout
        assert b"spend" in done.stderr.lower(), done.stderr.decode()
    assert (await market.device.get("/sessions", view="operator"))["items"] == []
    assert await market.balance(wallet.address) == FUNDS


async def test_the_typescript_client_buys_a_view_and_never_comes_back_and_gets_its_rest(market: Market) -> None:
    wallet, seconds = LocalWallet.create(), 15
    await market.fund(wallet.address, FUNDS)
    data = await buy(market, wallet, "typescript", "", VIEW | {"maxDurationSeconds": seconds})
    started = await market.device.post(f"/sessions/{data['viewId']}/start")
    cap = int(data["capMicroUsdc"])
    assert await market.balance(wallet.address) == FUNDS - cap
    statement = f"/sessions/{data['viewId']}/statement"
    async with filming(market.device, market.operator, started["whipUrl"]):
        await until(lambda: market.device.get(statement), lambda seen: seen["cleanSeconds"] >= 2, "seconds are proved")
    ended = await until(
        lambda: market.device.get(f"/sessions/{data['viewId']}"),
        lambda seen: seen["state"] == "ENDED",
        "the view ends by itself",
    )
    charged = int(ended["chargedMicroUsdc"])
    assert ended["endReason"] == "MAX_DURATION"
    assert 0 < charged < cap, "the operator stopped filming"
    await until(lambda: market.balance(wallet.address), lambda now: now == FUNDS - charged, "the rest has returned")


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_official_client_buys_more_time_for_its_view_and_the_rest_returns(market: Market, client: str) -> None:
    wallet, more_s = LocalWallet.create(), 60
    await market.fund(wallet.address, FUNDS)
    view = await buy(market, wallet, client, "", dict(VIEW))
    await market.device.post(f"/sessions/{view['viewId']}/start")
    cap = int(view["capMicroUsdc"])
    longer = await buy(market, wallet, client, f"/{view['viewId']}/extend", {"seconds": more_s}, view["key"])
    more = more_s * int(view["ratePerSecondMicroUsdc"])
    assert longer["capMicroUsdc"] == str(cap + more)
    assert await market.balance(market.config["settlementAddress"]) == cap + more
    assert await market.balance(wallet.address) == FUNDS - cap - more
    await market.device.post(f"/sessions/{view['viewId']}/end")
    await until(lambda: market.balance(wallet.address), lambda now: now == FUNDS, "nothing was filmed: all returns")
