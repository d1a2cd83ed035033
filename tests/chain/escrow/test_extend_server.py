"""A LIVE session in escrow gets more time on a whole server: by a signature, a mandate, or an x402 payment."""

import json
import sys
from contextlib import suppress
from typing import Any

import pytest
import trio

from sightline_client import ApiError, AsyncChain, AsyncSightline, SightlineError, TrustedDeployment
from sightline_client.escrow import sign_mandate
from tests.chain.escrow.test_escrow_server import FUNDS, signed_session, tracked
from tests.chain.escrow.test_x402 import in_seconds, open_market
from tests.chain.escrow.x402_buyer import VIEWS, data_of, decoded, encoded
from tests.client.agents.test_mcp import call, json_of, open_client
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until

MORE_S = 600


async def books_of(server: Server) -> dict[str, Any]:
    """Compare the books with the chain."""
    command = [sys.executable, "-m", "sightline.cli", "reconcile", "--json"]
    compared = await trio.run_process(
        [*command, "--data-dir", str(server.directory / "data")], capture_stdout=True, check=False
    )
    books: dict[str, Any] = json.loads(compared.stdout)["books"]
    return books


async def give_mandate(watcher: Api, consumer: Tenant) -> None:
    """Fund a workspace whose API keys may spend everything."""
    settings = await watcher.config()
    await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
    await tracked(watcher, FUNDS)
    mandate = sign_mandate(
        settings, consumer.wallet, max_per_session=FUNDS, max_per_day=FUNDS, max_rate_per_second=10_000,
        valid_until=in_seconds(3_600),
    )  # fmt: skip
    await watcher.wallet.set_mandate(mandate)
    await AsyncChain(settings.rpc_url).approve(
        consumer.wallet, token=settings.usdc_address, spender=settings.settlement_address, amount=FUNDS
    )
    await until(
        lambda: watcher.get("/wallet"), lambda seen: seen["availableMicroUsdc"] == str(FUNDS), "the allowance is read"
    )


async def test_a_signed_extension_is_held_before_it_counts_and_its_rest_returns(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        config = await watcher.get("/config")
        chain, token, escrow = AsyncChain(config["rpcUrl"]), config["usdcAddress"], config["settlementAddress"]
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await tracked(watcher, FUNDS)
        session = await signed_session(watcher, consumer)
        path, hold = f"/sessions/{session['id']}", int(session["holdMicroUsdc"])
        await watcher.post(f"{path}/dispatch")
        with pytest.raises(ApiError) as early:
            await watcher.get(f"{path}/extend/terms", seconds=MORE_S)
        assert (early.value.status, early.value.detail) == (409, "session:state")
        await device.post(f"{path}/start")

        with pytest.raises(ApiError) as unsigned:
            await watcher.post(f"{path}/extend", seconds=MORE_S)
        assert (unsigned.value.status, unsigned.value.detail) == (402, "session:consent")
        terms = await watcher.get(f"{path}/extend/terms", seconds=MORE_S)
        more = MORE_S * int(session["ratePerSecondMicroUsdc"])
        assert terms["extraAmountMicroUsdc"] == str(more)
        payment = {
            "kind": "authorization", "openBy": terms["openBy"],
            "signature": consumer.wallet.sign_typed_data(terms["authorization"]),
        }  # fmt: skip
        with pytest.raises(ApiError) as other:
            await watcher.post(f"{path}/extend", seconds=MORE_S + 1, payment=payment)
        assert (other.value.status, other.value.detail) == (400, "session:consent")
        extended = await watcher.post(f"{path}/extend", seconds=MORE_S, payment=payment)
        assert extended["maxDurationSeconds"] == session["maxDurationSeconds"] + MORE_S
        assert extended["holdMicroUsdc"] == str(hold + more)
        assert await chain.balance_of(token, escrow) == hold + more, "the contract has it"
        again = await watcher.post(f"{path}/extend", seconds=MORE_S, payment=payment)
        assert again["maxDurationSeconds"] == extended["maxDurationSeconds"], "the same payment extends once"
        assert (await device.get(path))["expiresAt"] == extended["expiresAt"]
        statement = await device.get(f"{path}/statement")
        assert statement["hold"]["maxAmount"] == str(hold + more)
        await tracked(watcher, FUNDS - hold - more)
        assert (await watcher.get("/wallet"))["escrowedMicroUsdc"] == str(hold + more)
        assert (await books_of(server))["differences"] == 0, "while the hold is open"
        ledger = await watcher.get("/wallet/events")
        taken = [each for each in ledger["items"] if each["toAddress"] == escrow]
        assert [(each["amountMicroUsdc"], each["sessionId"]) for each in taken] == [
            (str(more), session["id"]), (str(hold), session["id"]),
        ]  # fmt: skip

        await watcher.post(f"{path}/end")
        await until(
            lambda: watcher.get(path), lambda seen: seen["settlementTxHash"] is not None, "the session is settled"
        )
        assert await chain.balance_of(token, escrow) == 0
        assert await chain.balance_of(token, consumer.wallet.address) == FUNDS
        receipt = await watcher.sessions.receipt(session["id"])
        deployment = TrustedDeployment(config["chainId"], escrow, token)
        assert not (await receipt.verify(deployment=deployment, rpc=config["rpcUrl"])).skipped
        [event] = [each for each in receipt.data["events"] if each["kind"] == "EXTENDED"]
        facts = {fact["name"]: fact["value"] for fact in event["facts"]}
        mined = await chain.call("eth_getTransactionReceipt", facts["holdTxHash"])
        assert mined["status"] == "0x1"
        books = await books_of(server)
        assert (books["differences"], books["events"]) == (0, 7), (
            "open, extension, charge, return, and the gas of three"
        )


async def test_under_a_mandate_a_call_that_a_kill_cuts_extends_once(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        settings = await watcher.config()
        chain = AsyncChain(settings.rpc_url)
        await give_mandate(watcher, consumer)
        session = await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=60)
        path = f"/sessions/{session['id']}"
        await watcher.post(f"{path}/dispatch")
        await device.post(f"{path}/start")

        answered: list[int] = []

        async def extend() -> None:
            longer = await watcher.sessions.extend(session["id"], MORE_S, idempotency_key="once")
            answered.append(longer.max_duration_seconds)

        async def cut() -> None:
            with suppress(SightlineError):  # the outcome is unknown: that is what the repeat is for
                await extend()

        async def held() -> int:
            return await chain.balance_of(settings.usdc_address, settings.settlement_address)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            await until(held, lambda seen: seen > int(session["holdMicroUsdc"]), "the contract has the amount")
            await server.kill()
        await server.start()
        while len(answered) < 2:
            await cut()
        assert set(answered) == {60 + MORE_S}
        seen = await watcher.get(path)
        assert seen["maxDurationSeconds"] == 60 + MORE_S
        settings = await watcher.config()
        chain = AsyncChain(settings.rpc_url)  # the embedded chain has another port after a restart
        assert await held() == int(seen["holdMicroUsdc"])
        await watcher.post(f"{path}/end")
        await tracked(watcher, FUNDS)
        assert (await books_of(server))["differences"] == 0


async def test_a_stranger_buys_more_seconds_of_its_view_and_the_rest_returns(server: Server) -> None:
    async with open_market(server) as market:
        await go_online(server.url, market.operator)
        buyer, path = market.buyer, f"{VIEWS}/{{}}/extend"
        view, first = await market.bought()
        path, headers = path.format(view["viewId"]), {"authorization": f"Bearer {view['key']}"}

        async def extend(seconds: int, payment: dict[str, Any] | None = None):
            paid = {} if payment is None else {"PAYMENT-SIGNATURE": encoded(payment)}
            return await buyer.http.post(path, json={"seconds": seconds}, headers=headers | paid)

        early = await extend(MORE_S)
        assert (early.status_code, early.json()["detail"]) == (409, "session:state")
        await market.device.post(f"/sessions/{view['viewId']}/start")
        cap = int(view["capMicroUsdc"])

        asked = await extend(MORE_S)
        assert (asked.status_code, asked.json()["code"]) == (402, "PAYMENT_REQUIRED")
        (accepted,) = decoded(asked.headers["payment-required"])["accepts"]
        more = int(view["ratePerSecondMicroUsdc"]) * MORE_S
        assert accepted["amount"] == str(more)
        for refused in (
            await extend(MORE_S, first),  # the payment of the view itself
            await extend(MORE_S + 1, buyer.signed(accepted, valid_before=in_seconds(180), nonce=2)),
            await extend(MORE_S, buyer.signed(accepted, valid_before=in_seconds(5), nonce=2)),
        ):
            assert (refused.status_code, refused.json()["detail"]) == (402, "x402:payment")
            assert "payment-required" in refused.headers
        stranger = await buyer.http.post(path, json={"seconds": MORE_S})
        assert stranger.status_code == 401

        payment = buyer.signed(accepted, valid_before=in_seconds(180), nonce=2)
        answer = await extend(MORE_S, payment)
        longer = data_of(answer)
        assert longer["capMicroUsdc"] == str(cap + more)
        receipt = decoded(answer.headers["payment-response"])
        mined = await market.chain.call("eth_getTransactionReceipt", receipt["transaction"])
        assert mined["status"] == "0x1"
        assert await market.balance(market.config["settlementAddress"]) == cap + more
        again = await extend(MORE_S, payment)
        assert data_of(again) == longer, "a repeat of the payment has the same answer"
        assert await market.balance(market.config["settlementAddress"]) == cap + more

        data_of(await buyer.http.post(f"/api/v1/sessions/{view['viewId']}/end", headers=headers))
        assert data_of(await extend(MORE_S, payment)) == longer, "also after the end"

        async def balance() -> int:
            return await market.balance(buyer.wallet.address)

        await until(balance, lambda seen: seen == FUNDS, "nothing was filmed: all returns")
        assert await market.balance(market.config["settlementAddress"]) == 0
        assert (await books_of(server))["differences"] == 0


async def test_an_agent_extends_its_view_by_mcp_under_the_mandate(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        await give_mandate(watcher, consumer)
        session = await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=60)
        path = f"/sessions/{session['id']}"
        await watcher.post(f"{path}/dispatch")
        await device.post(f"{path}/start")
        async with open_client("http", server.url, consumer.key) as client:
            for _ in range(2):
                longer = json_of(
                    await call(client, "extend_view", session_id=session["id"], seconds=90, max_charge_usdc="5")
                )
                assert longer["maxSeconds"] == 90
        settings, hold = await watcher.config(), 90 * int(session["ratePerSecondMicroUsdc"])
        held = await AsyncChain(settings.rpc_url).balance_of(settings.usdc_address, settings.settlement_address)
        assert held == hold == int((await watcher.get(path))["holdMicroUsdc"])


async def test_a_view_that_its_wallet_pays_is_extended_by_the_wallets_signature(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with (
        AsyncSightline(server.url, consumer.key) as sl,
        Api(server.url, key=consumer.key) as watcher,
        Api(server.url, key=operator.key) as device,
        trio.open_nursery() as nursery,
    ):
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await tracked(watcher, FUNDS)

        async def start() -> None:
            mine = await until(
                lambda: device.get("/sessions", view="operator", state="ASSIGNED"),
                lambda page: bool(page["items"]),
                "a view is dispatched",
            )
            await device.post(f"/sessions/{mine['items'][0]['id']}/start")

        nursery.start_soon(start)
        async with sl.view(*PLACE, seconds=60, max_charge=FUNDS, payer=consumer.wallet) as view:
            longer = await view.extend(MORE_S)
            assert longer.max_duration_seconds == 60 + MORE_S
            settings, chain = await watcher.config(), AsyncChain((await watcher.config()).rpc_url)
            held = await chain.balance_of(settings.usdc_address, settings.settlement_address)
            assert held == longer.hold_micro_usdc == (60 + MORE_S) * longer.rate_per_second_micro_usdc
            assert (
                await chain.allowance(settings.usdc_address, consumer.wallet.address, settings.settlement_address) == 0
            )
        await tracked(watcher, FUNDS)
