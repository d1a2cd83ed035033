"""The server is killed while a view is bought, started and ended; the callers repeat, and each view is paid once."""

import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import pytest
import trio

from sightline_client import AsyncChain
from sightline_client.wallet import LocalWallet
from tests.chain.escrow.test_x402 import FUNDS, Market, in_seconds, open_market
from tests.chain.escrow.x402_buyer import Buyer
from tests.e2e.server import Server, go_online, until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # requests cut by the kill
]

ROUNDS: Final = int(os.environ.get("SIGHTLINE_KILL_ROUNDS", "3"))
SEED: Final = os.environ.get("SIGHTLINE_KILL_SEED", "1")
Send = Callable[[], Awaitable[httpx2.Response]]


@dataclass
class Killer:
    """Kills the server at a random moment of a call, and repeats the call until it is answered."""

    server: Server
    rng: random.Random
    cut: int = 0
    """Calls that the kill left without an answer."""

    async def over_a_kill(self, send: Send, within_s: float) -> dict[str, Any]:
        """Return the data of the repeat; the first answer, if it came before the kill, must be the same."""
        first: list[httpx2.Response] = []

        async def try_once() -> None:
            try:
                first.append(await send())
            except httpx2.TransportError:
                self.cut += 1  # the outcome is unknown: that is what the repeat is for

        async with trio.open_nursery() as nursery:
            nursery.start_soon(try_once)
            await trio.sleep(self.rng.uniform(0, within_s))
            await self.server.kill()
        await self.server.start()
        answer = await until(send, lambda seen: seen.status_code == 200, "the repeat is answered")
        data: dict[str, Any] = answer.json()["data"]
        if first and first[0].status_code == 200:
            assert first[0].json()["data"] == data, "the repeat tells the same"
        return data


async def a_view_over_kills(market: Market, killer: Killer, wallet: LocalWallet, number: int) -> dict[str, Any]:
    """Buy, start and end one view, with a kill in each of the three calls."""
    http = market.buyer.http
    buyer = Buyer(wallet, http)
    await until(buyer.ask, lambda seen: seen.status_code == 402, "the operator is found again")
    payment = buyer.signed(await buyer.asked(), valid_before=in_seconds(240), nonce=number)
    view = await killer.over_a_kill(lambda: buyer.pay(payment), 0.3)
    path = f"/api/v1/sessions/{view['viewId']}"

    def posting(key: str, call: str) -> Send:
        headers = {"authorization": f"Bearer {key}", "Idempotency-Key": f"{call}-{number}"}
        return lambda: http.post(f"{path}/{call}", headers=headers)

    await killer.over_a_kill(posting(market.operator.key, "start"), 0.1)
    await killer.over_a_kill(posting(view["key"], "end"), 0.03)
    again = (await buyer.pay(payment)).json()["data"]
    assert (again["viewId"], again["key"], again["state"]) == (view["viewId"], view["key"], "ENDED")
    return view


@pytest.mark.timeout(600 + 60 * ROUNDS)
async def test_each_payment_makes_one_view_and_its_rest_returns_over_kills_in_each_step(server: Server) -> None:
    rng = random.Random(f"x402 {SEED}")
    wallets = [LocalWallet.create() for _ in range(ROUNDS)]
    async with open_market(server) as market:
        await go_online(server.url, market.operator)
        for wallet in wallets:
            await market.fund(wallet.address, FUNDS)
        killer = Killer(server, rng)
        views = [
            await a_view_over_kills(market, killer, wallet, number) for number, wallet in enumerate(wallets, start=1)
        ]
        held = await market.device.get("/sessions", view="operator", limit=100)
        assert sorted(each["id"] for each in held["items"]) == sorted(each["viewId"] for each in views)
        config = await market.device.get("/config")
        chain = AsyncChain(config["rpcUrl"])  # the embedded chain has another port after a restart

        async def balances() -> list[int]:
            holders = [config["settlementAddress"], *(wallet.address for wallet in wallets)]
            return [await chain.balance_of(config["usdcAddress"], each) for each in holders]

        expected = [0, *(FUNDS for _ in wallets)]  # nothing was filmed
        await until(balances, lambda seen: seen == expected, "every hold has returned")
        command = [sys.executable, "-m", "sightline.cli", "reconcile", "--json"]
        compared = await trio.run_process([*command, "--data-dir", str(server.directory / "data")], capture_stdout=True)
        assert json.loads(compared.stdout)["books"]["differences"] == 0
    sys.stdout.write(f"seed {SEED}: {len(views)} views over {3 * ROUNDS} kills, {killer.cut} calls cut\n")
    assert killer.cut > 0
