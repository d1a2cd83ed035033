"""Views that strangers buy by x402 from a service of several servers."""

import httpx2
import trio

from sightline.chain.embedded.faucet import open_running_faucet
from sightline.system.ids import SystemIds
from tests.chain.escrow.test_x402 import FUNDS, in_seconds, open_market
from tests.chain.escrow.x402_buyer import VIEWS, Buyer, data_of
from tests.cluster.servers import a_cluster
from tests.e2e.server import go_online, until


async def test_a_payment_that_reaches_two_servers_at_once_makes_one_view_that_both_show() -> None:
    with a_cluster(2, is_escrow=True) as cluster:
        await cluster.start()
        one, two = cluster.servers
        async with (
            open_running_faucet(one.directory.parent / "chain", SystemIds()) as faucet,
            open_market(one, faucet.fund) as market,
            httpx2.AsyncClient(base_url=two.url, timeout=30) as http,
        ):
            await go_online(two.url, market.operator)
            here, there = market.buyer, Buyer(market.buyer.wallet, http)
            await until(there.ask, lambda seen: seen.status_code == 402, "the other server knows the operator")
            payment = here.signed(await there.asked(), valid_before=in_seconds(240))
            bought = []

            async def pay(buyer: Buyer) -> None:
                bought.append(data_of(await buyer.pay(payment)))

            async with trio.open_nursery() as nursery:
                for buyer in (here, there, here, there):
                    nursery.start_soon(pay, buyer)
            (view,) = {(each["viewId"], each["key"]) for each in bought}
            view_id, key = view
            await market.device.post(f"/sessions/{view_id}/start")
            headers = {"authorization": f"Bearer {key}"}
            for buyer in (here, there):
                shown = data_of(await buyer.http.get(f"{VIEWS}/{view_id}", headers=headers))
                assert (shown["state"], shown["capMicroUsdc"]) == ("LIVE", payment["accepted"]["amount"])
            data_of(await there.http.post(f"/api/v1/sessions/{view_id}/end", headers=headers))

            async def balances() -> tuple[int, int]:
                return (
                    await market.balance(here.wallet.address),
                    await market.balance(market.config["settlementAddress"]),
                )

            await until(balances, lambda seen: seen == (FUNDS, 0), "the rest returns")
