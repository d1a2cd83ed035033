"""Attacks on a restore: what was taken away after the backup must not come back."""

import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import trio

from sightline.system.server_address_file import read_server_addresses
from tests.attack.catalogue import Kind, attack
from tests.attack.rows.access.on_identity import MINT, a_member, cookie_of
from tests.attack.target import Target
from tests.conftest import open_data_directory
from tests.e2e.server import Server, Tenant

WITHDRAWALS = "withdrawals.jsonl"


async def command(*arguments: str | Path) -> str:
    line = [sys.executable, "-m", "sightline.cli", *map(str, arguments)]
    done = await trio.run_process(line, check=False, capture_stdout=True, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode()[-160:]
    return done.stdout.decode()


async def take_away(target: Target, owner: Tenant, member: str, cookie: str) -> None:
    """Revoke a key, remove an OWNER, suspend another tenant's workspace, and log out."""
    keys = (await target.call("GET", f"/workspaces/{owner.workspace_id}/api-keys", cookie)).json()["data"]
    key_id = next(each["keyId"] for each in keys["items"] if each["label"] == "stolen")
    own = f"/workspaces/{owner.workspace_id}"
    for method, path in (("POST", f"{own}/api-keys/{key_id}/revoke"), ("DELETE", f"{own}/members/{member}")):
        answer = await target.call(method, path, cookie)
        assert answer.status_code == 200, answer.text
    answer = await target.call("POST", "/auth/logout", cookie)
    assert answer.status_code == 200, answer.text


async def suspend(target: Target, tenant: Tenant) -> None:
    addresses = read_server_addresses(target.server.directory / "data")
    assert addresses is not None
    url = f"{addresses.internal_url}/internal/admin/workspaces/{tenant.workspace_id}/suspend"
    act = {"operator": "Ada", "osUser": "ada", "reason": "fraud"}
    answer = await target.http.post(url, json=act, headers=target.server.internal_headers())
    assert answer.status_code == 200, answer.text


@attack(
    "A7", "A restore gives back a revoked key, an ended sign-in, a removed OWNER and a suspended workspace",
    Kind.APART, before="all of them worked again",
)  # fmt: skip
async def restored_rights(_target: Target) -> str:
    with open_data_directory() as directory:
        old, new = Server(directory / "old"), Server(directory / "new")
        for server in (old, new):
            (server.directory / "data").mkdir(parents=True)
        try:
            async with httpx.AsyncClient(timeout=60) as http:
                await old.start()
                target = Target(old, http)
                owner, suspended = await target.tenant("CONSUMER"), await target.tenant("CONSUMER")
                cookie = await cookie_of(target, owner.wallet, owner.workspace_id)
                wallet, members_cookie = await a_member(target, owner, "OWNER")
                minted = await target.call(
                    "POST", f"/workspaces/{owner.workspace_id}/api-keys", cookie, MINT | {"label": "stolen"}
                )
                key = minted.json()["data"]["plaintext"]
                await command("backup", directory / "backup", "--data-dir", old.directory / "data")
                await take_away(target, owner, wallet.address, cookie)
                await suspend(target, suspended)
                await old.stop()
                kept = old.directory / "data" / WITHDRAWALS
                if kept.exists():
                    shutil.copy(kept, new.directory / "data" / WITHDRAWALS)
                await command("restore", directory / "backup", "--data-dir", new.directory / "data")
                await new.start()
                target = Target(new, http)
                fresh = await cookie_of(target, wallet)
                answers = {
                    "revoked key": await target.call("GET", "/me", key),
                    "ended sign-in": await target.call("GET", "/me", cookie),
                    "sign-in from before the backup": await target.call("GET", "/me", members_cookie),
                    "removed OWNER": await target.call(
                        "POST", "/auth/workspace/select", fresh, {"workspaceId": owner.workspace_id}
                    ),
                    "suspended workspace": await target.call("GET", "/me", suspended.key),
                }
                work = [what for what, answer in answers.items() if answer.status_code == 200]
                assert not work, f"work again: {', '.join(work)}"
                assert (await target.call("GET", "/me", owner.key)).status_code == 200
                return ", ".join(f"{what} {answer.status_code}" for what, answer in answers.items())
        finally:
            old.end()
            new.end()
