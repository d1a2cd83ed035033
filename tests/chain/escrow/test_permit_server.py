"""A consumer gives its allowance by a signature: by the Python client, the command line and the plain interface."""

import json
import os
import sys
from typing import Any

import pytest
import trio
from mcp import Client

from sightline_client import ApiError, AsyncChain, AsyncSightline
from sightline_client.mcp_confirm import Confirm
from sightline_client.mcp_server import build_server
from tests.chain.escrow.test_escrow_server import FUNDS, signed_session, tracked
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until

VALUE = 3_000_000


async def command(server: Server, consumer: Tenant, *arguments: str, code: int = 0, **changed: str) -> str:
    """Run a command. Returns stdout, or stderr if a failure is expected."""
    env = os.environ | {
        "SIGHTLINE_URL": server.url, "SIGHTLINE_API_KEY": consumer.key,
        "SIGHTLINE_WALLET_KEY": consumer.wallet.private_key,
    } | changed  # fmt: skip
    ended = await trio.run_process(
        [sys.executable, "-m", "sightline_client", *arguments], capture_stdout=True, capture_stderr=True, env=env,
        check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr.decode()
    return (ended.stderr if code else ended.stdout).decode()


async def refusal(api: Api, permit: dict[str, Any], signature: str, **changed: Any) -> tuple[int, str, str | None]:
    with pytest.raises(ApiError) as caught:
        await api.post("/wallet/permit", permit=permit | changed, signature=signature)
    return caught.value.status, caught.value.code, caught.value.detail


async def test_a_consumer_gives_and_takes_back_its_allowance_without_a_transaction_of_its_own(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with (
        Api(server.url, key=consumer.key) as watcher,
        Api(server.url, key=operator.key) as device,
        AsyncSightline(server.url, key=consumer.key) as sl,
    ):
        config = await sl.config()
        chain, token, escrow = AsyncChain(config.rpc_url), config.usdc_address, config.settlement_address
        owner = consumer.wallet.address
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        coin = await chain.call("eth_getBalance", owner, "latest")

        relayed = await sl.wallet.approve(VALUE, consumer.wallet)
        assert (relayed.owner, relayed.spender, int(relayed.value)) == (owner, escrow, VALUE)
        assert await chain.allowance(token, owner, escrow) == VALUE
        await until(lambda: watcher.get("/wallet"), lambda seen: seen["trackedAllowance"] == str(VALUE), "allowance")

        await tracked(watcher, FUNDS)
        session = await signed_session(watcher, consumer, kind="consent")
        await watcher.post(f"/sessions/{session['id']}/dispatch")
        await device.post(f"/sessions/{session['id']}/start")
        assert await chain.allowance(token, owner, escrow) == VALUE - int(session["holdMicroUsdc"])

        said = await command(server, consumer, "approve", "0")
        assert f"{owner} allows {escrow} to take 0" in said
        assert await chain.allowance(token, owner, escrow) == 0

        offer = await watcher.get("/wallet/permit", value="7")
        permit = {name: offer[name] for name in ("owner", "spender", "value", "nonce", "deadline")}
        signature = consumer.wallet.sign_typed_data(offer["typedData"])
        invalid = (400, "INVALID_INPUT", "wallet:permit")
        assert await refusal(watcher, permit, signature, spender=operator.wallet.address) == invalid
        assert await refusal(watcher, permit, signature, owner=operator.wallet.address) == invalid
        assert await refusal(watcher, permit, signature, value="8") == invalid
        assert await refusal(watcher, permit, signature, deadline=1) == invalid
        assert (await refusal(watcher, permit, signature, value=str(2**256)))[:2] == (400, "INVALID_INPUT")
        used = (409, "CONFLICT", "wallet:permitNonce")
        assert await refusal(watcher, permit, signature, nonce="0") in (invalid, used)
        first = await watcher.post("/wallet/permit", permit=permit, signature=signature)
        assert await watcher.post("/wallet/permit", permit=permit, signature=signature) == first
        again = consumer.wallet.sign_typed_data(
            offer["typedData"] | {"message": offer["typedData"]["message"] | {"value": "9"}}
        )
        assert await refusal(watcher, permit, again, value="9") == used

        assert await chain.call("eth_getTransactionCount", owner, "latest") == "0x0"
        assert await chain.call("eth_getBalance", owner, "latest") == coin
        assert signature[2:] not in server.log()


async def test_a_consumer_without_a_mandate_requests_a_session_on_the_command_line(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    place = [str(each) for each in PLACE]
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await tracked(watcher, FUNDS)
        session = json.loads(await command(server, consumer, "request", *place, "--seconds", "30", "--json"))
        assert session["state"] == "ASSIGNED"
        started = await device.post(f"/sessions/{session['id']}/start")
        assert started["session"]["holdTxHash"] is not None


async def test_a_mandate_that_a_command_sets_lets_the_key_buy_without_the_wallet(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    request = ("request", *map(str, PLACE), "--seconds", "30", "--json")
    limits = ("mandate", "--per-session", "1", "--per-day", "2.5", "--days", "2")
    built = build_server(lambda _: AsyncSightline(server.url, consumer.key), lambda _: Confirm.NEVER)
    async with Api(server.url, key=consumer.key) as watcher, Client(built) as agent:

        async def funds() -> dict[str, Any]:
            found: dict[str, Any] = (await agent.call_tool("wallet", {})).structured_content
            return found

        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await watcher.wallet.approve(VALUE, consumer.wallet)
        await until(lambda: watcher.get("/wallet"), lambda seen: seen["trackedAllowance"] == str(VALUE), "allowance")
        assert "mandate    none: without the wallet, the API key cannot buy. `sightline mandate" in await command(
            server, consumer, "wallet"
        )
        assert "has no mandate. `sightline mandate" in await command(server, consumer, "mandate", code=1)
        none = json.loads(await command(server, consumer, "mandate", "--json", code=1))
        assert (none["code"], none["detail"]) == ("NOT_FOUND", "wallet:mandate")
        assert "both limits" in await command(server, consumer, *limits[:3], code=2)
        refused = json.loads(await command(server, consumer, *request, code=1, SIGHTLINE_WALLET_KEY=""))
        assert refused["detail"] == "session:consent"
        assert "`sightline mandate --per-session 1 --per-day 10`" in refused["message"]
        none = await funds()
        assert (none["availableUsdc"], "sightline mandate" in none["nextStep"]) == ("0", True)
        place: dict[str, Any] = {"lat": PLACE[0], "lng": PLACE[1], "seconds": 30}
        quote = (await agent.call_tool("check_place", place)).structured_content
        wish = place | {"quote_id": quote["quoteId"], "max_charge_usdc": "1"}
        said = str((await agent.call_tool("request_view", wish)).content[0])
        assert "INSUFFICIENT_CREDIT (session:consent): " in said
        assert "`sightline mandate --per-session" in said
        assert "payer=" not in said
        strict = build_server(lambda _: AsyncSightline(server.url, consumer.key), lambda _: Confirm.ALWAYS)
        async with Client(strict) as asking:
            said = str((await asking.call_tool("request_view", wish)).content[0])
        assert "(session:consent): " in said, "before the user is asked, which this client cannot do"

        shown = "at most 1 a session and 2.5 a day (UTC), until 20"
        assert shown in await command(server, consumer, *limits)
        assert shown in await command(server, consumer, "mandate")
        assert f"mandate    {shown}" in await command(server, consumer, "wallet")
        some = await funds()
        assert (some["mandatePerSessionUsdc"], some["mandatePerDayUsdc"], some["availableUsdc"]) == ("1", "2.5", "1")
        bought = json.loads(await command(server, consumer, *request, SIGHTLINE_WALLET_KEY=""))
        assert bought["state"] == "ASSIGNED"
        revoked = json.loads(await command(server, consumer, "mandate", "--revoke", "--json"))
        assert (revoked["isRevoked"], revoked["maxPerSession"]) == (True, "1000000")
        assert "has no mandate" in await command(server, consumer, "mandate", "--revoke", code=1)
