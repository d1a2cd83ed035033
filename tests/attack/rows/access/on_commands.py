"""Attacks by what a command is given: a file of cameras, an id."""

import os
import re
import subprocess
import sys
from pathlib import Path

import trio

from sightline_client.wallet import LocalWallet
from tests.attack.catalogue import Kind, attack
from tests.attack.rows.access.on_identity import cookie_of
from tests.attack.target import Target

FIRST = "slug,lat,lng,source\n"
GOOD = "row-of-fleet,1,2,clip.mp4\n"
PASSWORD = "hunter2-of-the-camera"
SOURCE = f"rtsp://u:{PASSWORD}@192.0.2.1/1"
FILES: dict[str, bytes] = {
    "source in another column": f"{FIRST}{GOOD}gate,1,{SOURCE},2\n".encode(),
    "no first line": f"gate,1,2,{SOURCE}\n".encode(),
    "source as slug": f"{FIRST}{GOOD}{SOURCE},1,2,gate\n".encode(),
    "path as slug": f"{FIRST}{GOOD}../../etc/cron.d/x,1,2,{SOURCE}\n".encode(),
    "formula": f"{FIRST}{GOOD}=cmd|'/C calc'!A0,1,2,{SOURCE}\n".encode(),
    "open quote": f'{FIRST}{GOOD}gate,1,2,"{SOURCE}\n'.encode() + b"a,1,2,b\n" * 9,
    "NUL": f"{FIRST}{GOOD}gate,1,2,{SOURCE}\0\n".encode(),
    "UTF-16": f"{FIRST}{GOOD}gate,1,2,{SOURCE}\n".encode("utf-16"),
    "Latin-1": f"{FIRST}{GOOD}gate,1,2,{SOURCE}\xe4\n".encode("latin-1"),
    "not finite": f"{FIRST}{GOOD}gate,nan,1e308,{SOURCE}\n".encode(),
    "same slug twice": f"{FIRST}{GOOD}{GOOD}".encode(),
    "same column twice": f"slug,lat,lng,source,lat\ngate,1,2,{SOURCE},3\n".encode(),
    "huge field": f"{FIRST}{GOOD}gate,1,2,{SOURCE}".encode() + b"x" * 200_000,
    "a million rows": f"{FIRST}".encode() + b"".join(b"a-%d,1,2,b\n" % number for number in range(1_000_000)),
    "100 MB": f"{FIRST}".encode() + b"x" * 100_000_000,
}
SECONDS_MAX = 60.0


async def run_cli(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "sightline.cli", *arguments]
    return await trio.run_process(command, env=os.environ | env, capture_stdout=True, capture_stderr=True, check=False)


@attack(
    "fleet",
    f"`sightline fleet` with {len(FILES)} hostile files",
    Kind.APART,
    before="BROKEN: the source with its password is printed",
)
async def hostile_fleet(target: Target) -> str:
    wallet, directory = LocalWallet.create(), target.server.directory / "fleet"
    await trio.Path(directory).mkdir()
    env = {"SIGHTLINE_URL": target.url, "SIGHTLINE_WALLET_KEY": wallet.private_key}
    slowest = 0.0
    for name, content in FILES.items():
        file = Path(directory) / "cameras.csv"
        await trio.Path(file).write_bytes(content)
        started = trio.current_time()
        with trio.fail_after(SECONDS_MAX):
            done = await run_cli(env, "fleet", str(file), "--out", str(directory / "out"))
        slowest = max(slowest, trio.current_time() - started)
        said = (done.stdout + done.stderr).decode()
        assert PASSWORD not in said, f"{name}: the password of the source is printed"
        assert wallet.private_key not in said, f"{name}: the key of the wallet is printed"
        assert done.returncode == 1, f"{name}: exit code {done.returncode}"
        assert said.endswith("Nothing was made.\n"), f"{name}: {said[-200:]}"
        assert name == "100 MB" or " line " in said, f"{name}: no line is named: {said[:200]}"
        assert "Traceback" not in said, name
    assert not (directory / "out").exists()
    listed = await target.call("GET", "/workspaces", await cookie_of(target, wallet))
    assert listed.json()["data"]["items"] == [], listed.text
    return f"{len(FILES)} refused with line and column, nothing made; slowest {slowest:.1f} s"


@attack(
    "C3",
    "Ids for `write-off` and `actors --revive` that name another path",
    before="sent: POST /internal/nodes/write-off, POST /internal/settlements/x/write-off",
)
async def ids_of_commands(target: Target) -> str:
    data = str(target.server.directory / "data")
    tries = [
        ("write-off", "../nodes", "because"),
        ("write-off", "x/../../admin/audit?", "because"),
        ("actors", "--revive", "x/../../settlements/x/write-off?reason=because#"),
        ("actors", "--revive", "session/..%2f..%2fnodes"),
    ]
    for each in tries:
        done = await run_cli({}, *each, "--data-dir", data)
        assert done.returncode == 2, each
        assert re.search(rb"is not (an|the) id", done.stderr), (each, done.stderr[-300:])
    return f"{len(tries)} refused, nothing sent"
