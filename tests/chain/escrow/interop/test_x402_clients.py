"""The official clients of x402, unmodified, buy views and get their rest back."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from sightline.chain.embedded.node import open_running_faucet
from sightline.system.ids import SystemIds
from sightline_client.wallet import LocalWallet
from tests.chain.escrow.test_escrow_server import filming
from tests.chain.escrow.test_x402 import FUNDS, Market, open_market
from tests.chain.escrow.x402_buyer import VIEW
from tests.e2e.server import Server, go_online, until

pytestmark = pytest.mark.interop

ROOT: Final = Path(__file__).parents[4]
INSTALLED: Final = ROOT / ".interop" / "x402"
PYTHON: Final = INSTALLED / "venv" / "bin" / "python"
EXAMPLE: Final = ROOT / "examples" / "x402_view.py"
LINES_MAX: Final = 15


async def run(market: Market, wallet: LocalWallet, *command: str) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | {
        "EVM_KEY": wallet.private_key, "USDC": market.config["usdcAddress"], "X402_MODULES": str(INSTALLED),
    }  # fmt: skip
    with trio.fail_after(120):
        done = await trio.run_process(command, env=env, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done


async def assigned(market: Market) -> str:
    """Wait until the operator has a session that it can start."""

    async def look() -> list[dict[str, Any]]:
        page = await market.device.get("/sessions", view="operator", state="ASSIGNED")
        items: list[dict[str, Any]] = page["items"]
        return items

    return str((await until(look, bool, "a view is sold"))[0]["id"])


async def test_the_example_buys_a_view_with_the_python_client_and_saves_its_first_frame(server: Server) -> None:
    code = EXAMPLE.read_text().split('"""')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= LINES_MAX
    async with open_market(server) as market, trio.open_nursery() as nursery:
        await go_online(server.url, market.operator)
        wallet = market.buyer.wallet
        pictures: list[bytes] = []
        looked = trio.Event()

        async def look() -> None:
            place = (str(VIEW["lat"]), str(VIEW["lng"]))
            pictures.append((await run(market, wallet, str(PYTHON), str(EXAMPLE), server.url, *place)).stdout)
            looked.set()

        nursery.start_soon(look)
        session_id = await assigned(market)
        started = await market.device.post(f"/sessions/{session_id}/start")
        held = await market.balance(market.config["settlementAddress"])
        assert held == int(started["session"]["holdMicroUsdc"])
        async with filming(market.device, market.operator, started["whipUrl"]):
            await looked.wait()
            ended = await market.device.post(f"/sessions/{session_id}/end")
        charged = int(ended["chargedMicroUsdc"])
        assert 0 < charged < held
        await until(lambda: market.balance(wallet.address), lambda now: now == FUNDS - charged, "the rest has returned")
    assert pictures[0][:3] == b"\xff\xd8\xff"


async def test_the_typescript_client_buys_a_view_and_never_comes_back_and_gets_its_rest(server: Server) -> None:
    async with open_market(server) as market:
        await go_online(server.url, market.operator)
        wallet, seconds = LocalWallet.create(), 15
        async with open_running_faucet(server.directory / "data" / "chain", SystemIds()) as faucet:
            await faucet.fund(wallet.address, FUNDS)
        view = json.dumps(VIEW | {"maxDurationSeconds": seconds})
        script = str(Path(__file__).with_name("buy.mjs"))
        bought = json.loads((await run(market, wallet, "node", script, server.url, view)).stdout)
        assert (bought["status"], bought["paid"]["success"]) == (200, True)
        assert bought["paid"]["payer"] == wallet.address
        data = bought["body"]["data"]
        started = await market.device.post(f"/sessions/{data['viewId']}/start")
        cap = int(data["capMicroUsdc"])
        assert await market.balance(wallet.address) == FUNDS - cap
        statement = f"/sessions/{data['viewId']}/statement"
        async with filming(market.device, market.operator, started["whipUrl"]):
            await until(
                lambda: market.device.get(statement), lambda seen: seen["cleanSeconds"] >= 2, "seconds are proved"
            )
        ended = await until(
            lambda: market.device.get(f"/sessions/{data['viewId']}"),
            lambda seen: seen["state"] == "ENDED",
            "the view ends by itself",
        )
        charged = int(ended["chargedMicroUsdc"])
        assert ended["endReason"] == "MAX_DURATION"
        assert 0 < charged < cap, "the operator stopped filming"
        await until(lambda: market.balance(wallet.address), lambda now: now == FUNDS - charged, "the rest has returned")
