"""Views that strangers buy by x402: one payment makes one view, and what is not used returns."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx2
import trio

from sightline.chain.contracts.abi import selector
from sightline.chain.embedded.faucet import open_running_faucet
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline_client import AsyncChain
from sightline_client.wallet import LocalWallet
from tests.chain.escrow.test_escrow_server import filming
from tests.chain.escrow.x402_buyer import VIEW, VIEWS, Buyer, data_of, decoded, encoded
from tests.client.api import Api
from tests.e2e.server import Server, Tenant, a_tenant, go_online, until

FUNDS = 5_000_000


def in_seconds(seconds: int) -> int:
    return SystemClock().now_ms() // 1_000 + seconds


Fund: TypeAlias = Callable[[str, int], Awaitable[object]]
"""Mints micro-USDC to an address."""


@dataclass
class Market:
    """A server in escrow with an operator, and a stranger with money on the chain."""

    server: Server
    operator: Tenant
    device: Api
    buyer: Buyer
    chain: AsyncChain
    config: dict[str, Any]
    fund: Fund

    async def balance(self, address: str) -> int:
        return await self.chain.balance_of(self.config["usdcAddress"], address)

    async def bought(self, nonce: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
        """A view, and the payment that bought it."""
        payment = self.buyer.signed(await self.buyer.asked(), valid_before=in_seconds(240), nonce=nonce)
        return data_of(await self.buyer.pay(payment)), payment


@asynccontextmanager
async def open_market(server: Server, fund: Fund | None = None) -> AsyncIterator[Market]:
    """Open a market. `fund` is the faucet of an external chain."""
    if server.process is None:
        await server.start()
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    wallet = LocalWallet.create()
    async with AsyncExitStack() as stack:
        device = await stack.enter_async_context(Api(server.url, key=operator.key))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=server.url, timeout=30))
        if fund is None:
            chain_directory = server.directory / "data" / "chain"
            fund = (await stack.enter_async_context(open_running_faucet(chain_directory, SystemIds()))).fund
        await fund(wallet.address, FUNDS)
        config = await device.get("/config")
        chain = AsyncChain(config["rpcUrl"])
        yield Market(server, operator, device, Buyer(wallet, http), chain, config, fund)


async def test_a_stranger_buys_a_view_sees_it_and_gets_the_rest_back(server: Server) -> None:
    async with open_market(server) as market:
        buyer, device = market.buyer, market.device
        nobody = await buyer.ask()
        assert (nobody.status_code, nobody.json()["code"]) == (503, "UNAVAILABLE"), "asked before any payment"
        assert "payment-required" not in nobody.headers
        await go_online(server.url, market.operator)

        asked = await buyer.ask()
        assert (asked.status_code, asked.json()["code"]) == (402, "PAYMENT_REQUIRED")
        required = decoded(asked.headers["payment-required"])
        (accepted,) = required["accepts"]
        assert required["x402Version"] == 2
        assert accepted | {"amount": "", "extra": {}} == {
            "scheme": "exact", "network": f"eip155:{market.config['chainId']}", "amount": "",
            "asset": market.config["usdcAddress"], "payTo": market.config["settlementAddress"],
            "maxTimeoutSeconds": 240, "extra": {},
        }  # fmt: skip
        cap = int(accepted["amount"])

        answer = await buyer.pay(buyer.signed(accepted, valid_before=in_seconds(240)))
        view = data_of(answer)
        assert decoded(answer.headers["payment-response"]) == {
            "success": True, "transaction": "", "network": accepted["network"], "payer": buyer.wallet.address,
        }  # fmt: skip
        assert (view["state"], view["capMicroUsdc"]) == ("ASSIGNED", str(cap))
        assert int(view["ratePerSecondMicroUsdc"]) * VIEW["maxDurationSeconds"] == cap
        assert await market.balance(buyer.wallet.address) == FUNDS, "nothing moves before the start"

        started = await device.post(f"/sessions/{view['viewId']}/start")
        assert await market.balance(market.config["settlementAddress"]) == cap
        headers = {"authorization": f"Bearer {view['key']}"}
        async with filming(device, market.operator, started["whipUrl"]):
            frame = await until(
                lambda: buyer.http.get(view["frameUrl"], headers=headers),
                lambda seen: seen.status_code == 200,
                "the first picture",
            )
            assert frame.content[:3] == b"\xff\xd8\xff"
            await until(
                lambda: device.get(f"/sessions/{view['viewId']}/statement"),
                lambda seen: seen["cleanSeconds"] >= 2,
                "seconds are proved",
            )
            ended = data_of(await buyer.http.post(f"/api/v1/sessions/{view['viewId']}/end", headers=headers))
        charged = int(ended["chargedMicroUsdc"])
        assert 0 < charged < cap

        async def read() -> dict[str, Any]:
            return data_of(await buyer.http.get(f"{VIEWS}/{view['viewId']}", headers=headers))

        after = await until(read, lambda seen: seen["settlementTxHash"] is not None, "the view knows its settlement")
        assert (after["state"], after["chargedMicroUsdc"]) == ("ENDED", str(charged))
        assert after["holdTxHash"] == started["session"]["holdTxHash"]
        assert await market.balance(buyer.wallet.address) == FUNDS - charged
        assert await market.balance(market.config["settlementAddress"]) == 0
        assert view["key"].encode() not in server.log_path.read_bytes()


async def test_a_payment_that_comes_twice_at_once_and_again_makes_one_view_with_one_key(server: Server) -> None:
    async with open_market(server) as market:
        buyer = market.buyer
        await go_online(server.url, market.operator)
        thief = await buyer.asked()
        # As other clients do, which allow for clocks that differ.
        since = str(in_seconds(-600))
        payment = buyer.signed(await buyer.asked(), valid_before=in_seconds(240), validAfter=since)
        views: list[dict[str, Any]] = []

        async def pay() -> None:
            views.append(data_of(await buyer.pay(payment)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pay)
            nursery.start_soon(pay)
        await market.device.post(f"/sessions/{views[0]['viewId']}/start")
        # The authorization is used now, and public with its signature.
        await pay()
        assert {(view["viewId"], view["key"]) for view in views} == {(views[0]["viewId"], views[0]["key"])}
        assert views[2]["state"] == "LIVE"
        held = await market.device.get("/sessions", view="operator")
        assert [session["id"] for session in held["items"]] == [views[0]["viewId"]]

        stolen = await buyer.pay(payment | {"accepted": thief})
        assert (stolen.status_code, stolen.json()["detail"]) == (409, "x402:paymentUsed"), "the quote is not public"


async def test_the_key_of_a_view_opens_nothing_else(server: Server) -> None:
    async with open_market(server) as market:
        buyer = market.buyer
        await go_online(server.url, market.operator)
        view, _ = await market.bought()
        await market.device.post("/sessions/cancel-all-assignments")
        other, _ = await market.bought(nonce=2)
        headers = {"authorization": f"Bearer {view['key']}"}
        mine = f"/api/v1/sessions/{view['viewId']}"
        assert (await buyer.http.get(mine, headers=headers)).status_code == 200
        workspace_id = data_of(await buyer.http.get(mine, headers=headers))["consumerWorkspaceId"]
        denied = [
            ("GET", f"/api/v1/sessions/{other['viewId']}"),
            ("GET", f"{VIEWS}/{other['viewId']}"),
            ("GET", f"/api/v1/settlements/{other['viewId']}"),
            ("GET", f"/api/v1/sessions/{other['viewId']}/frame"),
            ("GET", f"/api/v1/sessions/{other['viewId']}/events"),
            ("POST", f"/api/v1/sessions/{other['viewId']}/end"),
            ("DELETE", f"/api/v1/sessions/{other['viewId']}"),
            ("GET", "/api/v1/sessions"),
            ("POST", "/api/v1/sessions"),
            ("GET", "/api/v1/me"),
            ("GET", f"/api/v1/workspaces/{workspace_id}"),
            ("PATCH", f"/api/v1/workspaces/{workspace_id}"),
            ("GET", f"/api/v1/workspaces/{workspace_id}/events"),
            ("GET", f"/api/v1/workspaces/{workspace_id}/api-keys"),
            ("POST", f"/api/v1/workspaces/{workspace_id}/api-keys"),
            ("GET", "/api/v1/wallet"),
            ("GET", "/api/v1/wallet/events"),
            ("PUT", "/api/v1/wallet/mandate"),
            ("POST", "/api/v1/wallet/faucet"),
            ("GET", "/api/v1/pricing/quote?lat=1&lng=2&durationSeconds=3"),
            ("POST", "/api/v1/stream-tickets"),
            ("GET", "/api/v1/webhooks"),
            ("POST", f"{mine}/start"),
            ("POST", f"{mine}/accept"),
        ]
        got = {call: (await buyer.http.request(*call, headers=headers)).status_code for call in denied}
        assert got == dict.fromkeys(denied, 403)
        async with Api(server.url) as owner:
            await owner.auth.sign_in(buyer.wallet)
            await owner.post("/auth/workspace/select", workspaceId=workspace_id)
            listed = await owner.get(f"/workspaces/{workspace_id}/api-keys")
            sessions = await owner.get("/sessions")
        assert listed["items"] == [], "the keys of views are not keys of the workspace"
        assert {each["id"] for each in sessions["items"]} == {view["viewId"], other["viewId"]}


async def test_a_payment_that_differs_from_what_was_asked_is_not_taken_and_makes_nothing(server: Server) -> None:
    async with open_market(server) as market:
        buyer = market.buyer
        await go_online(server.url, market.operator)
        accepted = await buyer.asked()
        amount, late = int(accepted["amount"]), in_seconds(240)
        poor = Buyer(LocalWallet.create(), buyer.http)
        good = buyer.signed(accepted, valid_before=late)
        forged = buyer.signed(accepted, valid_before=late, nonce=7)
        forged["payload"]["signature"] = poor.signed(accepted, valid_before=late, nonce=7)["payload"]["signature"]
        cheap = {**accepted, "amount": str(amount - 1)}
        resealed = {**accepted, "extra": {**accepted["extra"], "quoteId": accepted["extra"]["quoteId"][:-1] + "x"}}
        refused = {
            "signature": forged,
            "balance": poor.signed(accepted, valid_before=late),
            "amount of the transfer": buyer.signed(accepted, valid_before=late, value=str(amount - 1)),
            "accepted amount": buyer.signed(cheap, valid_before=late),
            "receiver": buyer.signed(accepted, valid_before=late, to=poor.wallet.address),
            "ends too early": buyer.signed(accepted, valid_before=in_seconds(170)),
            "begins later": buyer.signed(accepted, valid_before=late, validAfter=str(in_seconds(100))),
            "another network": buyer.signed({**accepted, "network": "eip155:1"}, valid_before=late),
            "a quote of nobody": buyer.signed(resealed, valid_before=late),
            "a contract as payer": buyer.signed(
                accepted, valid_before=late, **{"from": market.config["settlementAddress"]}
            ),
        }
        got: dict[str, tuple[int, str, bool]] = {}
        for name, payment in refused.items():
            answer = await buyer.pay(payment)
            got[name] = (answer.status_code, answer.json()["code"], "payment-required" in answer.headers)
        assert got == dict.fromkeys(refused, (402, "PAYMENT_REQUIRED", True))
        other_place = await buyer.pay(good, lat=VIEW["lat"] + 0.001)
        assert other_place.status_code == 402, "the quote is for another place"
        longer = await buyer.pay(good, maxDurationSeconds=61)
        assert longer.status_code == 402, "the quote is for another duration"
        for broken in ("x", "W10=", "bnVsbA==", "e30=", encoded({**good, "x402Version": 1})):
            answer = await buyer.http.post(VIEWS, json=VIEW, headers={"PAYMENT-SIGNATURE": broken})
            assert (answer.status_code, answer.json()["detail"]) == (400, "x402:payment")
        assert (await market.device.get("/sessions", view="operator"))["items"] == []
        assert data_of(await buyer.pay(good))["state"] == "ASSIGNED", "the quote and the payment were not used up"


async def test_a_payment_without_an_operator_is_tried_again_and_nothing_stays_reserved(server: Server) -> None:
    async with open_market(server) as market:
        buyer, device = market.buyer, market.device
        await go_online(server.url, market.operator)
        payment = buyer.signed(await buyer.asked(), valid_before=in_seconds(240))
        workspace = f"/workspaces/{market.operator.workspace_id}"
        await device.call("PATCH", workspace, {"availabilityState": "OFFLINE"})
        none = await buyer.pay(payment)
        assert (none.status_code, none.json()["code"]) == (503, "UNAVAILABLE")
        await device.call("PATCH", workspace, {"availabilityState": "ONLINE"})
        view = data_of(await buyer.pay(payment))
        await buyer.http.post(
            f"/api/v1/sessions/{view['viewId']}/end", headers={"authorization": f"Bearer {view['key']}"}
        )
        # All of the payer's money can be reserved again.
        rate = int(view["ratePerSecondMicroUsdc"])
        longest = min(3_600, FUNDS // (rate * 2))
        accepted = await buyer.asked(maxDurationSeconds=longest)
        again = buyer.signed(accepted, valid_before=in_seconds(240), nonce=2)
        assert data_of(await buyer.pay(again, maxDurationSeconds=longest))["state"] == "ASSIGNED"
        assert await market.balance(buyer.wallet.address) == FUNDS


async def test_a_view_that_nobody_starts_moves_nothing(server: Server) -> None:
    async with open_market(server) as market:
        buyer = market.buyer
        await go_online(server.url, market.operator)
        view, payment = await market.bought()
        session, headers = f"/api/v1/sessions/{view['viewId']}", {"authorization": f"Bearer {view['key']}"}
        await market.device.post(f"/sessions/{view['viewId']}/decline")
        assert data_of(await buyer.http.get(session, headers=headers))["state"] == "REQUESTED"
        assert data_of(await buyer.http.delete(session, headers=headers))["state"] == "CANCELLED"
        over = data_of(await buyer.http.get(f"{VIEWS}/{view['viewId']}", headers=headers))
        assert (over["state"], over["holdTxHash"], over["expiresAt"]) == ("CANCELLED", None, None)
        assert await market.balance(buyer.wallet.address) == FUNDS
        nonce = payment["payload"]["authorization"]["nonce"]
        state = selector("authorizationState(address,bytes32)").hex() + f"{int(buyer.wallet.address, 16):064x}"
        asked = state + nonce.removeprefix("0x")
        assert await market.chain.read_uint(market.config["usdcAddress"], asked) == 0, "the authorization is unused"
        log = server.log_path.read_text()
        assert payment["payload"]["signature"][2:] not in log
        assert payment["accepted"]["extra"]["quoteId"] not in log


async def test_what_is_reserved_for_one_view_does_not_pay_for_another(server: Server) -> None:
    async with open_market(server) as market:
        buyer = market.buyer
        await go_online(server.url, market.operator)
        second = await a_tenant(server.url, "SUPPLIER", "second")
        await go_online(server.url, second)
        rate = int((await buyer.asked())["amount"]) // VIEW["maxDurationSeconds"]
        seconds = FUNDS * 2 // 3 // rate
        assert seconds <= 3_600
        accepted = await buyer.asked(maxDurationSeconds=seconds)
        first = buyer.signed(accepted, valid_before=in_seconds(240))
        assert data_of(await buyer.pay(first, maxDurationSeconds=seconds))["state"] == "ASSIGNED"
        accepted = await buyer.asked(maxDurationSeconds=seconds)
        both = await buyer.pay(
            buyer.signed(accepted, valid_before=in_seconds(240), nonce=2), maxDurationSeconds=seconds
        )
        assert (both.status_code, both.json()["detail"]) == (402, "session:funds")
