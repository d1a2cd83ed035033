"""Sessions whose amount the escrow contract holds from before their start (FUNDS_POLICY=escrow)."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from sightline.domain.units import usdc_text
from sightline_client import ApiError, AsyncChain, ChainError, TrustedDeployment
from sightline_client.escrow import sign_mandate
from sightline_client.models import Statement
from sightline_client.video.assets import clip_path
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until

FUNDS = 5_000_000
DURATION_S = 60
BEAT = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5}


async def signed_session(watcher: Api, consumer: Tenant, kind: str = "authorization") -> dict[str, Any]:
    """Create a session whose terms the consumer's wallet has signed."""
    quote = await watcher.get("/pricing/quote", lat=PLACE[0], lng=PLACE[1], durationSeconds=DURATION_S)
    terms = await watcher.get("/sessions/terms", quoteId=quote["quoteId"], maxDurationSeconds=DURATION_S)
    signature = consumer.wallet.sign_typed_data(terms[kind])
    created = await watcher.post(
        "/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=DURATION_S, quoteId=quote["quoteId"],
        payment={"kind": kind, "openBy": terms["openBy"], "signature": signature},
    )  # fmt: skip
    assert created["id"] == terms["sessionId"]
    return created


async def tracked(watcher: Api, micro: int) -> None:
    """Wait until the watcher has read the consumer's balance."""
    await until(lambda: watcher.get("/wallet"), lambda seen: seen["trackedBalance"] == str(micro), "wallet is read")


@asynccontextmanager
async def filming(device: Api, operator: Tenant, whip_url: str) -> AsyncIterator[None]:
    """Publish the clip and send heartbeats while the block runs."""
    location = f"/workspaces/{operator.workspace_id}/location"

    async def publish() -> None:
        command = [sys.executable, "-m", "sightline_client.video.publish", str(clip_path()), "--whip", whip_url]
        await trio.run_process(command, check=False, capture_stderr=True)

    async def beat() -> None:
        sequence = 0
        while True:
            sequence += 1
            await device.post(location, **BEAT, sequence=sequence)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        nursery.start_soon(beat)
        yield
        nursery.cancel_scope.cancel()


async def test_a_payer_without_gas_and_allowance_signs_and_the_rest_returns_to_it(server: Server) -> None:
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
        hold, path = int(session["holdMicroUsdc"]), f"/sessions/{session['id']}"
        assert session["fundsState"] == "RESERVED"
        assert (await watcher.get("/wallet"))["heldMicroUsdc"] == str(hold)
        await watcher.post(f"{path}/dispatch")
        with pytest.raises(ApiError) as none_yet:
            await device.get(f"{path}/statement")
        assert none_yet.value.detail == "session:hold"

        started = await device.post(f"{path}/start")
        assert started["session"]["fundsState"] == "HELD"
        assert await chain.balance_of(token, escrow) == hold
        assert await chain.balance_of(token, consumer.wallet.address) == FUNDS - hold
        async with filming(device, operator, started["whipUrl"]):
            interim = await until(
                lambda: device.get(f"{path}/statement"), lambda seen: seen["cleanSeconds"] >= 2, "seconds are proved"
            )
            assert not interim["isFinal"]
            ended = await watcher.post(f"{path}/end")
        charged = int(ended["chargedMicroUsdc"])
        assert charged > 0
        settled = await until(
            lambda: watcher.get(f"/settlements/{session['id']}"),
            lambda seen: seen["state"] == "CONFIRMED",
            "settlement is confirmed",
        )
        payload = settled["payload"]
        assert int(payload["toAmount"]) + int(payload["feeAmount"]) == charged
        assert await chain.balance_of(token, escrow) == 0
        assert await chain.balance_of(token, consumer.wallet.address) == FUNDS - charged
        assert await chain.balance_of(token, operator.wallet.address) == int(payload["toAmount"])
        assert await chain.allowance(token, consumer.wallet.address, escrow) == 0
        final = await device.get(f"{path}/statement")
        assert (final["isFinal"], final["cleanSeconds"]) == (True, ended["cleanSeconds"])
        await tracked(watcher, FUNDS - charged)
        wallet = await watcher.get("/wallet")
        assert wallet["heldMicroUsdc"] == "0"
        after = await until(
            lambda: watcher.get(path),
            lambda seen: seen["settlementTxHash"] is not None,
            "the session knows its payment",
        )
        assert (after["fundsState"], after["holdTxHash"]) == ("SETTLED", started["session"]["holdTxHash"])
        receipt = await watcher.sessions.receipt(session["id"])
        deployment = TrustedDeployment(config["chainId"], escrow, token)
        verified = await receipt.verify(deployment=deployment, rpc=config["rpcUrl"])
        assert not verified.skipped, "the transfer from escrow and the published head hash are those of the receipt"
        ledger = (await watcher.get("/wallet/events"))["items"]
        assert [(row["kind"], row["amountMicroUsdc"]) for row in ledger if row["sessionId"] == session["id"]] == [
            ("TRANSFER_IN", str(hold - charged)), ("TRANSFER_OUT", str(hold)),
        ]  # fmt: skip
        command = [sys.executable, "-m", "sightline.cli", "reconcile", "--json"]
        data_dir = ["--data-dir", str(server.directory / "data")]
        compared = await trio.run_process([*command, *data_dir], capture_stdout=True)  # exit code 0
        books = json.loads(compared.stdout)["books"]
        assert (books["differences"], books["events"]) == (0, 5), "open, charge, return, and the gas of both"
        assert await server.stop() == 0


async def test_a_payer_saves_the_statement_and_sends_no_call_that_the_contract_would_refuse(
    server: Server, tmp_path: Path
) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    own = {"SIGHTLINE_API_KEY": consumer.key, "SIGHTLINE_WALLET_KEY": consumer.wallet.private_key}
    env = os.environ | own | {"SIGHTLINE_URL": server.url}

    async def sightline(*words: str) -> tuple[int | None, str]:
        command = [sys.executable, "-m", "sightline_client", *words]
        done = await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True, env=env)
        return done.returncode, (done.stdout + done.stderr).decode()

    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        config = await watcher.get("/config")
        chain, node = AsyncChain(config["rpcUrl"]), ("--rpc-url", config["rpcUrl"])
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await tracked(watcher, FUNDS)
        path = f"/sessions/{(await signed_session(watcher, consumer))['id']}"
        await watcher.post(f"{path}/dispatch")
        await device.post(f"{path}/start")

        file = tmp_path / "statement.json"
        code, said = await sightline("save-statement", path.rpartition("/")[2], str(file))
        assert (code, f"`sightline reclaim {file} --rpc-url URL`" in said) == (0, True)
        assert "--rpc-url URL` pays its operator from an hour after the session's latest end" in said
        answer = tmp_path / "answer.json"
        answer.write_text(json.dumps({"statusCode": 200, "data": await watcher.get(f"{path}/statement")}))
        hold = json.loads(file.read_bytes())["hold"]
        latest_end = hold["openedAt"] + DURATION_S
        two_days = 172_800
        for call, saved, delay_s in (
            ("claim", answer, 3_600),
            ("reclaim", file, two_days),
            ("reclaim", answer, two_days),
        ):
            code, said = await sightline(call, str(saved), *node)
            possible = f"from {datetime.fromtimestamp(latest_end + delay_s, UTC):%Y-%m-%d %H:%M} UTC"
            assert (code, possible in said, "Nothing was sent." in said) == (1, True, True)
        for changed, reason in (
            ({"maxAmount": str(int(hold["maxAmount"]) + 1)}, "was extended"),
            ({"sessionIdHash": "0x" + "ab" * 32}, "holds nothing for session"),
        ):
            statement = Statement.model_validate(json.loads(file.read_bytes()) | {"hold": hold | changed})
            with pytest.raises(ChainError, match=f"{reason}.* Nothing was sent"):
                await chain.reclaim(consumer.wallet, statement)

        await watcher.post(f"{path}/end")
        await tracked(watcher, FUNDS)
        for call in ("claim", "reclaim"):
            code, said = await sightline(call, str(file), *node)
            assert (code, "has closed session" in said, "Nothing was sent." in said) == (1, True, True)
        settled = await until(
            lambda: watcher.get(f"/settlements/{path.rpartition('/')[2]}"),
            lambda seen: seen["state"] == "CONFIRMED",
            "settlement is confirmed",
        )
        code, said = await sightline("save-statement", path.rpartition("/")[2], str(file))
        done = f"The session is settled without a charge in {settled['txHash']}: nothing is left to claim"
        assert (code, done in said, "`sightline claim" in said) == (0, True, False)
        assert int(await chain.call("eth_getTransactionCount", consumer.wallet.address, "latest"), 16) == 0


async def test_a_payer_that_spent_its_funds_is_told_at_the_start_and_may_start_when_it_has_them(
    server: Server,
) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        config = await watcher.get("/config")
        chain, token = AsyncChain(config["rpcUrl"]), config["usdcAddress"]
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await tracked(watcher, FUNDS)
        path = f"/sessions/{(await signed_session(watcher, consumer))['id']}"
        await watcher.post(f"{path}/dispatch")
        transfer = "0xa9059cbb" + operator.wallet.address[2:].rjust(64, "0") + f"{FUNDS:064x}"
        await chain.send(consumer.wallet, to=token, data=transfer, gas=100_000)
        with pytest.raises(ApiError) as refused:
            await device.post(f"{path}/start")
        assert (refused.value.status, refused.value.detail) == (402, "session:fundsNotHeld")
        seen = await device.get(path)
        assert (seen["state"], seen["fundsState"]) == ("ASSIGNED", "RESERVED")

        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        started = await device.post(f"{path}/start")
        assert started["session"]["fundsState"] == "HELD"
        ended = await watcher.post(f"{path}/end")
        assert ended["chargedMicroUsdc"] == "0"
        await tracked(watcher, FUNDS)


async def test_a_session_without_a_valid_signature_of_its_payer_is_refused(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    thief = await a_tenant(server.url, "CONSUMER", "thief")
    async with Api(server.url, key=consumer.key) as watcher:
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await tracked(watcher, FUNDS)
        with pytest.raises(ApiError) as unsigned:
            await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1])
        assert (unsigned.value.status, unsigned.value.detail) == (402, "session:consent")
        quote = await watcher.get("/pricing/quote", lat=PLACE[0], lng=PLACE[1], durationSeconds=DURATION_S)
        terms = await watcher.get("/sessions/terms", quoteId=quote["quoteId"], maxDurationSeconds=DURATION_S)
        good = consumer.wallet.sign_typed_data(terms["authorization"])
        payment = {"kind": "authorization", "openBy": terms["openBy"], "signature": good}
        asked = {"lat": PLACE[0], "lng": PLACE[1], "maxDurationSeconds": DURATION_S, "quoteId": quote["quoteId"]}
        for changed in (
            {"signature": thief.wallet.sign_typed_data(terms["authorization"])},
            {"openBy": terms["openBy"] + 1},
            {"kind": "consent"},
        ):
            with pytest.raises(ApiError) as refused:
                await watcher.post("/sessions", **asked, payment=payment | changed)
            assert (refused.value.status, refused.value.detail) == (400, "session:consent")
        with pytest.raises(ApiError) as shorter:
            await watcher.post("/sessions", **(asked | {"maxDurationSeconds": 59}), payment=payment)
        assert shorter.value.detail == "session:consent"
        session = await watcher.post("/sessions", **asked, payment=payment)
        assert (session["state"], session["fundsState"]) == ("REQUESTED", "RESERVED")
        gone = await watcher.sessions.cancel(session["id"])
        assert (gone.state, gone.funds_state) == ("CANCELLED", "RELEASED")


async def test_a_session_in_escrow_goes_on_after_kill_9_and_is_paid_from_its_hold(server: Server) -> None:
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        config = await watcher.get("/config")
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await tracked(watcher, FUNDS)
        path = f"/sessions/{(await signed_session(watcher, consumer))['id']}"
        await watcher.post(f"{path}/dispatch")
        started = await device.post(f"{path}/start")
        async with filming(device, operator, started["whipUrl"]):
            await until(
                lambda: device.get(f"{path}/statement"), lambda seen: seen["cleanSeconds"] >= 4, "seconds are stored"
            )
        await server.kill()
        await server.start()
        after = await watcher.get(path)
        assert (after["state"], after["fundsState"]) == ("LIVE", "HELD")
        assert after["holdTxHash"] == started["session"]["holdTxHash"]
        charged = int((await watcher.post(f"{path}/end"))["chargedMicroUsdc"])
        assert charged > 0
        await tracked(watcher, FUNDS - charged)
        chain = AsyncChain(config["rpcUrl"])
        assert await chain.balance_of(config["usdcAddress"], config["settlementAddress"]) == 0


@asynccontextmanager
async def a_funded_pair(server: Server) -> AsyncIterator[tuple[Tenant, Api, Api]]:
    """Start the server; yields a consumer with funds and an allowance, its client, and that of an operator ONLINE."""
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        config = await watcher.config()
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        chain, spender = AsyncChain(config.rpc_url), config.settlement_address
        await chain.approve(consumer.wallet, token=config.usdc_address, spender=spender, amount=FUNDS)
        await tracked(watcher, FUNDS)
        yield consumer, watcher, device


async def test_an_api_key_pays_under_the_mandate_of_its_workspace_until_it_is_deleted(server: Server) -> None:
    async with a_funded_pair(server) as (consumer, watcher, device):
        thief = await a_tenant(server.url, "CONSUMER", "thief")
        config = await watcher.config()
        chain = AsyncChain(config.rpc_url)

        def mandate_by(signer: Tenant, max_per_session: int) -> dict[str, Any]:
            valid_until = 2**40
            return sign_mandate(
                config, signer.wallet, max_per_session=max_per_session, max_per_day=FUNDS, max_rate_per_second=10_000,
                valid_until=valid_until,
            )  # fmt: skip

        with pytest.raises(ApiError) as foreign:
            await watcher.wallet.set_mandate(mandate_by(thief, FUNDS))
        assert (foreign.value.status, foreign.value.detail) == (400, "session:consent")
        forged = mandate_by(consumer, 1)
        forged["mandate"]["maxPerSession"] = str(FUNDS)
        with pytest.raises(ApiError) as changed:
            await watcher.wallet.set_mandate(forged)
        assert changed.value.detail == "session:consent"

        asked = {"lat": PLACE[0], "lng": PLACE[1], "maxDurationSeconds": DURATION_S}
        await watcher.wallet.set_mandate(mandate_by(consumer, 1))
        with pytest.raises(ApiError) as beyond:
            await watcher.post("/sessions", **asked)
        assert (beyond.value.status, beyond.value.detail) == (402, "session:mandate")

        await watcher.wallet.set_mandate(mandate_by(consumer, FUNDS))
        unused = await watcher.wallet.mandate()
        assert (unused.max_per_session, unused.held_today, unused.left_today) == (FUNDS, 0, FUNDS)
        session = await watcher.post("/sessions", **asked)
        path = f"/sessions/{session['id']}"
        await watcher.post(f"{path}/dispatch")
        started = await device.post(f"{path}/start")
        assert started["session"]["fundsState"] == "HELD"
        assert await chain.balance_of(config.usdc_address, config.settlement_address) == int(session["holdMicroUsdc"])

        held = int(session["holdMicroUsdc"])
        used = await watcher.wallet.mandate()
        assert (used.held_today, used.left_today) == (held, FUNDS - held)

        await watcher.wallet.delete_mandate()
        with pytest.raises(ApiError) as deleted:
            await watcher.post("/sessions", **asked)
        assert (deleted.value.status, deleted.value.detail) == (402, "session:consent")
        with pytest.raises(ApiError) as none_left:
            await watcher.wallet.mandate()
        assert (none_left.value.status, none_left.value.detail) == (404, "wallet:mandate")


async def test_a_payer_whose_opens_ended_without_a_charge_is_told_when_it_may_open_again(server: Server) -> None:
    server.env["SIGHTLINE_UNPAID_OPENS_MAX"] = "1"
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
        await tracked(watcher, FUNDS)
        path = f"/sessions/{(await signed_session(watcher, consumer))['id']}"
        await watcher.post(f"{path}/dispatch")
        await device.post(f"{path}/start")
        assert (await watcher.post(f"{path}/end"))["chargedMicroUsdc"] == "0"
        with pytest.raises(ApiError) as refused:
            await signed_session(watcher, consumer)
        assert (refused.value.status, refused.value.detail) == (429, "session:gasBudget")
        assert refused.value.retry_after_s is not None
        assert 86_000 < refused.value.retry_after_s <= 86_400
        await tracked(watcher, FUNDS)
        assert (await watcher.get("/wallet"))["heldMicroUsdc"] == "0"


async def test_a_day_of_a_mandate_that_is_used_up_refuses_a_session_before_an_operator_is_sent(server: Server) -> None:
    async with a_funded_pair(server) as (consumer, watcher, device):
        config = await watcher.config()
        asked = {"lat": PLACE[0], "lng": PLACE[1], "maxDurationSeconds": DURATION_S}
        quote = await watcher.get("/pricing/quote", lat=PLACE[0], lng=PLACE[1], durationSeconds=DURATION_S)
        rate, left_s = int(quote["ratePerSecondMicroUsdc"]), DURATION_S // 2
        await watcher.wallet.set_mandate(
            sign_mandate(
                config, consumer.wallet, max_per_session=FUNDS, max_per_day=rate * (DURATION_S + left_s),
                max_rate_per_second=10_000, valid_until=2**40,
            )
        )  # fmt: skip
        first = await watcher.post("/sessions", **asked)
        await watcher.post(f"/sessions/{first['id']}/dispatch")
        await device.post(f"/sessions/{first['id']}/start")
        await watcher.post(f"/sessions/{first['id']}/end")

        with pytest.raises(ApiError) as refused:
            await watcher.post("/sessions", **asked)
        assert (refused.value.status, refused.value.detail) == (402, "session:mandate")
        assert f"leaves {usdc_text(rate * left_s)} USDC for the rest of today (UTC)" in str(refused.value)
        assert f"at most {left_s} s" in str(refused.value)
        await watcher.post("/sessions", **{**asked, "maxDurationSeconds": left_s})
