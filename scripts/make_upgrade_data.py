"""Make one archive of tests/backup/data: a small data directory as an earlier commit wrote it.

Run it in a worktree of that commit, with the `sightline` of the newest commit for the backup:

    git worktree add /tmp/old COMMIT && cd /tmp/old
    PYTHONPATH=. OLD_PYTHON scripts/make_upgrade_data.py NAME TARGET_DIRECTORY NEWEST_PYTHON

It writes NAME.backup and NAME.json: keys, wallets and what the API of that commit said about each session. One session
is settled, one is unsettled because its payer approved nothing, one is LIVE with clean seconds.
"""

import json
import os
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from sightline_client import AsyncChain
from sightline_client.video.assets import clip_path
from sightline_client.wallet import LocalWallet
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, a_tenant, go_online, until

FUNDS = 50_000_000


@asynccontextmanager
async def filmed(server, consumer, operator):
    """Start a session and film it until it has clean seconds."""
    async with Api(server.url, key=consumer.key) as buyer, Api(server.url, key=operator.key) as seller:
        made = await buyer.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=120)
        path = f"/sessions/{made['id']}"
        await seller.post(f"{path}/accept", operatorWorkspaceId=operator.workspace_id)
        started = await seller.post(f"{path}/start")

        async def beat():
            sequence = 0
            while True:
                sequence += 1
                report = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5, "sequence": sequence}
                await seller.post(f"/workspaces/{operator.workspace_id}/location", **report)
                await trio.sleep(1)

        program = [sys.executable, "-m", "sightline_client.video.publish"]
        command = [*program, str(clip_path()), "--whip", started["whipUrl"]]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat)
            nursery.start_soon(trio.run_process, command)
            await until(lambda: buyer.get(path), lambda seen: seen["cleanSeconds"] >= 3, "clean seconds")
            yield buyer, path
            nursery.cancel_scope.cancel()


async def run(python, *arguments):
    """Run a command of Sightline, that of the old commit or that of the newest."""
    path = os.environ["PYTHONPATH"] if python == sys.executable else ""
    env = {**os.environ, "PYTHONPATH": path}
    await trio.run_process([python, "-m", "sightline.cli", *arguments], env=env, cwd=None if path else "/")


async def make(name, target, newest):
    """Run the old server, make three sessions, back up, and write what its API said."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        server = Server(Path(directory))
        await server.start()
        async with Api(server.url) as api:
            config = await api.get("/config")
        chain = AsyncChain(config["rpcUrl"])
        tenants, data = {}, str(server.directory / "data")
        for slug in ("payer", "debtor", "one", "two", "three"):
            wallet, is_consumer = LocalWallet.create(), slug in ("payer", "debtor")
            if is_consumer:
                await run(sys.executable, "faucet", wallet.address, str(FUNDS), "--data-dir", data)
            tenants[slug] = await a_tenant(server.url, "CONSUMER" if is_consumer else "SUPPLIER", f"old-{slug}", wallet)
            if not is_consumer:
                await go_online(server.url, tenants[slug])
        await chain.approve(
            tenants["payer"].wallet, token=config["usdcAddress"], spender=config["settlementAddress"], amount=FUNDS
        )
        sessions = {}
        async with filmed(server, tenants["payer"], tenants["one"]) as (buyer, path):
            await buyer.post(f"{path}/end")
            settled = await until(
                lambda: buyer.get(path), lambda seen: seen["settlementTxHash"] is not None, "settlement"
            )
            sessions["settled"] = settled
        async with filmed(server, tenants["debtor"], tenants["two"]) as (buyer, path):
            sessions["unsettled"] = await buyer.post(f"{path}/end")
        async with filmed(server, tenants["payer"], tenants["three"]) as (buyer, path):
            sessions["live"] = await buyer.get(path)
            await run(newest, "backup", str(target / f"{name}.backup"), "--data-dir", data)
        report = {
            "funds": FUNDS,
            "config": config,
            "tenants": {
                slug: {"key": tenant.key, "wallet": tenant.wallet.private_key} for slug, tenant in tenants.items()
            },
            "sessions": sessions,
        }
        for session in sessions.values():
            for secret in ("whipUrl", "whepUrl", "consistencyToken"):
                session.pop(secret, None)
        (target / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
        await server.stop()


trio.run(make, sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3])
