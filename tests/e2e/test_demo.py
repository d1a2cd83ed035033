"""`make demo` runs a session end to end and every check passes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import simplejpeg
import trio

from sightline.chain.contracts.abi import call_data
from sightline_client import Sightline
from tests.e2e.server import Server, until
from tests.e2e.town import FUNDS, a_town
from tests.e2e.traffic import STUDIO, film


def test_demo_does_the_main_job_and_leaves_a_console_that_knows_its_consumer(data_directory: Path) -> None:
    frame = data_directory / "frame.jpg"
    command = [sys.executable, "-m", "sightline.cli", "demo", "--data-dir", str(data_directory), "--frame", str(frame)]
    with subprocess.Popen([*command, "--keep"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while "/wallet/events" not in said:
            line = demo.stdout.readline()
            assert line, said[-3000:]
            said += line
        found = re.search(r"(http\S+)/console/#/start\?testWallet=(0x[0-9a-f]{64})", said)
        assert found is not None, said[-3000:]
        url, key = found.groups()
        page = httpx.get(f"{url}/console/")
        pasted = said[said.index("export SIGHTLINE_URL=") :].replace(
            " watch ", f" watch --count 1 --out {data_directory} "
        )
        without = {name: value for name, value in os.environ.items() if not name.startswith("SIGHTLINE_")}
        exported = dict(re.findall(r"^export (SIGHTLINE_\w+)=(\S+)$", pasted, re.MULTILINE))
        with Sightline(exported["SIGHTLINE_URL"], exported["SIGHTLINE_API_KEY"]) as sl:
            hook = sl.webhooks.create("http://127.0.0.1:9/", event_types=["session.ended"])
            sl.webhooks.delete(hook.id)
        shell = ["sh", "-eu"]
        done = subprocess.run(shell, input=pasted, env=without, capture_output=True, text=True, check=False)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=30) == 0
    assert page.headers["content-type"].startswith("text/html")
    assert done.returncode == 0, done.stderr
    assert ("1 frame, " in done.stdout, done.stdout.count('"statusCode":200')) == (True, 3)
    assert f"frame: {frame.resolve()}" in said
    assert "every check held" in said
    assert "Another device cannot open 127.0.0.1" in said
    logs = "".join(path.read_text() for path in data_directory.glob("*.log"))
    assert key.removeprefix("0x") not in logs
    height, width, _, _ = simplejpeg.decode_jpeg_header(frame.read_bytes())
    assert (width, height) == (1280, 720)


@contextmanager
def a_dev(directory: Path) -> Iterator[dict[str, Any]]:
    """What `sightline dev --escrow` prints."""
    command = [sys.executable, "-m", "sightline.cli", "dev", "--escrow", "--json", "--port", "0"]
    env = os.environ | {"SIGHTLINE_DISPATCH_ACK_SECONDS": "60"}  # on a busy machine the device takes longer than 10 s
    line = [*command, "--data-dir", str(directory)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env) as dev:
        assert dev.stdout is not None
        try:
            yield json.loads(dev.stdout.readline())
        finally:
            dev.terminate()
            assert dev.wait(60) == 0


def test_the_key_of_dev_with_escrow_pays_for_a_view_and_another_run_has_its_consumer_and_view(
    data_directory: Path,
) -> None:
    with a_dev(data_directory) as said, Sightline(said["url"], said["consumerKey"]) as sl:
        with sl.view(said["lat"], said["lng"], seconds=60) as view:
            while view.refresh().clean_seconds == 0:
                assert not view.session.state.is_over
            assert view.session.funds_state == "HELD"
        assert sl.config().is_escrow
        assert view.receipt().charged > 0
        running = sl.sessions.create(said["lat"], said["lng"], seconds=300)
        sl.sessions.dispatch(running.id)
        while sl.sessions.get(running.id).clean_seconds == 0:
            pass
    with a_dev(data_directory) as again, Sightline(again["url"], again["consumerKey"]) as sl:
        for kept in ("consumerWalletKey", "consumerKey", "operatorKey"):
            assert again[kept] == said[kept]
        assert [each.id for each in sl.sessions.list(view="consumer")] == [running.id, view.session.id]
        proved = sl.sessions.get(running.id).clean_seconds
        while sl.sessions.get(running.id).clean_seconds == proved:
            pass
        assert sl.sessions.end(running.id).end_reason == "CONSUMER_ENDED"


async def test_a_revoked_allowance_ends_the_session_and_its_charge_is_paid_when_it_is_restored(server: Server) -> None:
    server.env["SIGHTLINE_FUNDS_POLICY"] = "enforced"
    async with a_town(server, "funds") as town:
        consumer, operator = town.consumers[-1], town.operators[-1]
        token, spender = town.config["usdcAddress"], town.config["settlementAddress"]
        wallet = consumer.tenant.wallet
        await until(lambda: consumer.read("/wallet"), lambda seen: seen["trackedAllowance"] == str(FUNDS), "is funded")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operator.beat, STUDIO)
            nursery.start_soon(partial(film, consumer, operator, seconds=60))
            listing = await until(
                lambda: consumer.read("/sessions", view="consumer"),
                lambda seen: seen["items"] and seen["items"][0]["cleanSeconds"] >= 1,
                "is charged",
            )
            path = f"/sessions/{listing['items'][0]['id']}"
            await town.chain.approve(wallet, token=token, spender=spender, amount=0)
            ended = await until(lambda: consumer.read(path), lambda seen: seen["state"] == "ENDED", "ends")
            nursery.cancel_scope.cancel()
        assert ended["endReason"] == "FUNDS_LOST"
        assert int(ended["chargedMicroUsdc"]) > 0

        await town.chain.approve(wallet, token=token, spender=spender, amount=FUNDS)
        await until(lambda: consumer.read(path), lambda seen: seen["settlementTxHash"] is not None, "is paid")
        left = await town.chain.balance_of(token, wallet.address)
        assert left == FUNDS - int(ended["chargedMicroUsdc"])


async def test_a_session_above_the_payers_own_limits_is_refused_before_it_exists_and_the_wallet_says_what_is_left(
    server: Server,
) -> None:
    server.env["SIGHTLINE_FUNDS_POLICY"] = "enforced"
    async with a_town(server, "limits") as town:
        consumer = town.consumers[-1]
        wish = {"lat": STUDIO[0], "lng": STUDIO[1], "maxDurationSeconds": 600}

        async def allow(per_session: int, per_day: int) -> dict[str, str]:
            data = "0x" + call_data("setLimits(uint256,uint256)", [per_session, per_day]).hex()
            await town.chain.send(consumer.tenant.wallet, to=town.config["settlementAddress"], data=data, gas=200_000)
            limits = {"perSessionMicroUsdc": str(per_session), "perDayMicroUsdc": str(per_day)}
            shown = await until(
                lambda: consumer.read("/wallet"),
                lambda seen: (seen["limits"] or {}).items() >= limits.items(),
                "shows the limits",
            )
            return shown["limits"]

        assert (await allow(1_000, FUNDS))["leftTodayMicroUsdc"] == str(FUNDS)
        refused = await consumer.act("POST", "/sessions", wish)
        assert (refused.status, refused.detail) == (402, "wallet:limit")
        assert refused.body["remainingMicroUsdc"] == "1000"
        assert "0.001 USDC" in refused.body["message"]
        assert "setLimits" in refused.body["message"]
        assert (await consumer.read("/sessions", view="consumer"))["items"] == []

        await allow(FUNDS, FUNDS)
        session = (await consumer.act("POST", "/sessions", wish)).data
        hold = int(session["holdMicroUsdc"])
        assert (await allow(hold, 2 * hold - 1))["leftTodayMicroUsdc"] == str(hold - 1)
        assert (await consumer.act("POST", "/sessions", wish)).detail == "wallet:limit"
        assert (await consumer.act("DELETE", f"/sessions/{session['id']}")).is_done

        await allow(FUNDS, 2 * FUNDS)
        longest = wish | {"maxDurationSeconds": 14_400}
        long = [(await consumer.act("POST", "/sessions", longest)).data for _ in range(2)]
        above = await consumer.act("POST", "/sessions", longest)
        assert (above.status, above.detail) == (402, "session:funds")
        left = FUNDS - sum(int(each["holdMicroUsdc"]) for each in long)
        assert above.body["remainingMicroUsdc"] == str(left)
        assert f"enough for {left * 14_400 // int(long[0]['holdMicroUsdc'])} s" in above.body["message"]
        for each in long:
            assert (await consumer.act("DELETE", f"/sessions/{each['id']}")).is_done
        assert (await consumer.act("POST", "/sessions", wish)).is_done


async def test_the_faucet_pays_once_for_a_key_on_the_embedded_chain(server: Server) -> None:
    async with a_town(server, "faucet") as town:
        consumer = town.consumers[-1]
        address, token = consumer.tenant.wallet.address, town.config["usdcAddress"]
        before = await town.chain.balance_of(token, address)
        paid = await consumer.act("POST", "/wallet/faucet", {"amountMicroUsdc": "1000"})
        assert paid.is_done, paid
        again = await consumer.repeat(town.stage.history.made[-1])
        assert again.data == paid.data
        assert await town.chain.balance_of(token, address) == before + 1_000
        seen = lambda wallet: wallet["trackedBalance"] == str(before + 1_000)  # noqa: E731
        await until(lambda: consumer.read("/wallet"), seen, "is seen by the watcher")
