"""Starts the measured programs as a user would, and creates the tenants that the load needs."""

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount

from bench.load import first_sequence
from bench.wire import Client
from sightline.storage.embedded.server import EmbeddedPostgresOptions, child_command
from sightline_client import Chain
from sightline_client.wallet import LocalWallet

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parent.parent
PLACE = {"lat": 52.52, "lng": 13.405}
REGION = {"lat": 0.5, "lng": 0.8}
"""Operators and sessions are spread evenly over this many degrees around the place, 55 km each way.

Of 10,000 operators who cover 5 km each, about 260 cover any one point.
"""
RADIUS_M = 5_000
SETTERS = 12
FUNDS_MICRO = 10_000_000
WAKE_TRIES = 100
WAKE_TIMEOUT_S = 10


@dataclass
class Target:
    """A running server."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    consumer: dict[str, str] = field(default_factory=dict)
    devices: list[dict[str, str]] = field(default_factory=list)
    operators: int = 0
    cookie: str = ""

    @property
    def address(self) -> dict[str, Any]:
        """Address to which the load is sent."""
        return {"host": HOST, "port": self.port}

    def rest(self) -> None:
        """Pause the server with SIGSTOP while another one is measured."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Resume the server, and wait until a call that needs its lease and its database is answered."""
        self.process.send_signal(signal.SIGCONT)
        if self.name != "sightline" or not self.consumer:
            return  # the baselines have no lease to renew
        credential = f"Authorization: Bearer {self.consumer['key']}\r\nConnection: close\r\n\r\n"
        ask = f"GET /api/v1/sessions?limit=1 HTTP/1.1\r\nHost: {HOST}:{self.port}\r\n{credential}".encode()
        status = b""
        for _ in range(WAKE_TRIES):
            with socket.create_connection((HOST, self.port), timeout=WAKE_TIMEOUT_S) as connection:
                connection.sendall(ask)
                status = connection.recv(64).partition(b" ")[2][:3]
            if status == b"200":
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} answers {status.decode()} {WAKE_TRIES * 0.05:.0f} s after it was resumed")

    def rss_kb(self) -> int:
        """Return the resident memory of the serving process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise RuntimeError("no VmRSS")


def spot(number: int, spread: float = 1) -> dict[str, float]:
    """Return the place of an operator or a session: evenly spread, and equal in every run.

    Args:
        spread: Sides of the region, in those of REGION.
    """
    return {
        "lat": round(PLACE["lat"] + spread * REGION["lat"] * ((number * 0.7548776662466927) % 1 - 0.5), 6),
        "lng": round(PLACE["lng"] + spread * REGION["lng"] * ((number * 0.5698402909980532) % 1 - 0.5), 6),
    }


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


@contextlib.asynccontextmanager
async def sightline(directory: Path, **settings: str) -> AsyncIterator[Target]:
    """Run `sightline serve` without limits of requests and dispatches, and every other setting at its default."""
    command = [sys.executable, "-m", "sightline.cli", "serve", "--port", "0", "--internal-port", "0"]
    unlimited = {
        "SIGHTLINE_RATE_LIMITS": "false",
        "SIGHTLINE_CONSUMER_DISPATCHES_MAX": "0",
        "SIGHTLINE_UNFUNDED_SESSIONS_MAX": "0",
        "SIGHTLINE_DISPATCH_ACK_SECONDS": "0",
        # Nobody starts the dispatched sessions, and a no-show puts all operators of the one wallet out of the tiers.
        "SIGHTLINE_START_TIMEOUT_SECONDS": "86400",
        # All operators count as seen during a whole run, as if each sent its heartbeats.
        "SIGHTLINE_SEEN_WITHIN_SECONDS": "86400",
    }
    env = {**os.environ, **unlimited, **settings}
    log_path = directory / "sightline.log"
    with log_path.open("ab") as log_file:
        process = subprocess.Popen(  # noqa: ASYNC220 (nobody else is served meanwhile)
            [*command, "--data-dir", str(directory / "sightline")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_file,
            env=env,
            cwd=ROOT,
        )
    assert process.stdout is not None
    try:
        line = (await asyncio.to_thread(process.stdout.readline)).decode()
        if not line.startswith("ready "):
            raise RuntimeError(f"sightline is not ready; see {log_path}")
        yield Target("sightline", int(line.rsplit(":", 1)[1]), process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


@contextlib.asynccontextmanager
async def fastapi(directory: Path) -> AsyncIterator[Target]:
    """Run the FastAPI baseline on a Postgres of the same version with the same settings."""
    options = EmbeddedPostgresOptions(directory=directory / "baseline", log_path=directory / "baseline-postgres.log")
    with options.log_path.open("ab") as log_file:
        postgres = subprocess.Popen(  # noqa: ASYNC220 (nobody else is served meanwhile)
            child_command(options).args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log_file
        )
    assert postgres.stdin is not None
    assert postgres.stdout is not None
    line = (await asyncio.to_thread(postgres.stdout.readline)).decode()
    dsn = line.split(" ", 1)[1].strip()
    connection = await asyncpg.connect(dsn)
    if await connection.fetchval("SELECT to_regclass('heartbeat')") is None:
        await connection.execute((ROOT / "bench/baselines/schema.sql").read_text())
    await connection.close()
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "bench.baselines.fastapi_app:app", "--port", str(port)]
    with (directory / "fastapi.log").open("ab") as log_file:
        process = subprocess.Popen(  # noqa: ASYNC220 (nobody else is served meanwhile)
            [*command, "--loop", "uvloop", "--http", "httptools", "--backlog", "8192"],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            env={**os.environ, "BENCH_DSN": dsn},
            cwd=ROOT,
        )
    try:
        await listening(port)
        target = Target("fastapi", port, process)
        target.cookie = dsn
        yield target
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        await asyncio.to_thread(process.wait, 30)
        postgres.stdin.close()
        await asyncio.to_thread(postgres.wait, 30)


@contextlib.asynccontextmanager
async def quart_static(directory: Path, content: bytes) -> AsyncIterator[Target]:
    """Run unmodified Quart-Trio on Hypercorn with one file."""
    path = directory / "frame.jpg"
    path.write_bytes(content)
    port = free_port()
    with (directory / "quart.log").open("ab") as log_file:
        process = subprocess.Popen(  # noqa: ASYNC220 (nobody else is served meanwhile)
            [sys.executable, "-m", "bench.baselines.quart_static", str(port), str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            cwd=ROOT,
        )
    try:
        await listening(port)
        yield Target("quart", port, process)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 30)


async def listening(port: int) -> None:
    """Wait until a server accepts connections on the port."""
    for _ in range(300):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.close()
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"no server listens on port {port}")


# Tenants of Sightline, created through its public API.


async def fund(client: Client, port: int, account: LocalAccount) -> None:
    """Give a wallet test USDC and approve the settlement contract: a wallet that owes a charge gets no session."""
    await client.call("POST", "/wallet/faucet", {"amountMicroUsdc": str(FUNDS_MICRO)})
    config = await client.call("GET", "/config")
    token, spender = config["usdcAddress"], config["settlementAddress"]
    chain = Chain(f"http://{HOST}:{port}{urlsplit(config['rpcUrl']).path}")
    await asyncio.to_thread(chain.approve, LocalWallet(account), token=token, spender=spender, amount=FUNDS_MICRO)


async def populate_sightline(target: Target, *, operators: int, devices: int, spread: float = 1) -> None:
    """Create one wallet with one consumer and `operators` ONLINE operators, each seen once; `devices` have a key."""
    account = Account.create()

    async def sign(client: Client, challenge: str) -> dict[str, str]:
        made = await client.call("POST", challenge, {"walletAddress": account.address})
        signed = account.sign_message(encode_defunct(text=made["message"]))
        return {
            "walletAddress": account.address,
            "nonce": made["nonce"],
            "signature": "0x" + signed.signature.hex().removeprefix("0x"),
        }

    async def workspace(client: Client, slug: str, role: str) -> str:
        signed = await sign(client, "/workspaces/challenge")
        made = await client.call("POST", "/workspaces", {**signed, "slug": slug, "name": slug, "roles": [role]})
        return str(made["id"])

    async def key(client: Client, workspace_id: str, scopes: list[str]) -> str:
        await client.call("POST", "/auth/workspace/select", {"workspaceId": workspace_id})
        minted = await client.call(
            "POST",
            f"/workspaces/{workspace_id}/api-keys",
            {"label": "bench", "environment": "TEST", "scopes": scopes},
        )
        return str(minted["plaintext"])

    async def signed_in() -> Client:
        client = Client(HOST, target.port)
        await client.call("POST", "/auth/wallet/login", await sign(client, "/auth/wallet/challenge"))
        return client

    async def set_up(numbers: list[int]) -> None:
        client = await signed_in()
        for number in numbers:
            workspace_id = await workspace(client, f"bench-{number:05}", "SUPPLIER")
            if number < devices:
                made = await key(client, workspace_id, ["sessions:operate", "sessions:read"])
                target.devices.append({"id": workspace_id, "key": made})
            else:
                await client.call("POST", "/auth/workspace/select", {"workspaceId": workspace_id})
            await client.call(
                "PATCH",
                f"/workspaces/{workspace_id}",
                {
                    "availabilityState": "ONLINE",
                    "coverageLat": spot(number, spread)["lat"],
                    "coverageLng": spot(number, spread)["lng"],
                    "coverageRadiusMeters": RADIUS_M,
                    "deviceKind": "PHONE",
                },
            )
            seen = spot(number, spread) | {"sequence": first_sequence(), "accuracyMeters": 5}
            await client.call("POST", f"/workspaces/{workspace_id}/location", seen)
        client.close()

    client = await signed_in()
    consumer = await workspace(client, "bench-consumer", "CONSUMER")
    scopes = ["sessions:read", "sessions:create", "pricing:read", "wallet:read"]
    target.consumer = {"id": consumer, "key": await key(client, consumer, scopes)}
    await fund(client, target.port, account)
    client.close()
    await asyncio.gather(*(set_up(list(range(start, operators, SETTERS))) for start in range(SETTERS)))
    target.operators = operators


async def sightline_sessions(target: Target, count: int, *, spread: float = 1) -> list[str]:
    """Create requested sessions that expire after an hour."""
    ids: list[str] = []

    async def make(first: int) -> None:
        client = Client(HOST, target.port)
        for number in range(first, count, SETTERS):
            wanted = {**spot(number, spread), "waitTimeoutSeconds": 3600}
            made = await client.call("POST", "/sessions", wanted, key=target.consumer["key"])
            ids.append(made["id"])
        client.close()

    await asyncio.gather(*(make(first) for first in range(min(SETTERS, count))))
    return ids


async def populate_fastapi(target: Target, like: Target) -> None:
    """Create the same tenants in the baseline's tables."""
    target.consumer = {"id": like.consumer["id"], "key": "consumer-" + like.consumer["id"]}
    target.devices = [{"id": device["id"], "key": "device-" + device["id"]} for device in like.devices]
    spare = [str(UUID(int=number)) for number in range(like.operators - len(like.devices))]
    online = [UUID(device["id"]) for device in target.devices] + [UUID(each) for each in spare]
    connection = await asyncpg.connect(target.cookie)
    await connection.executemany(
        "INSERT INTO workspace (id, name, state, idle_since, lat, lng, radius_m)"
        " VALUES ($1, 'bench', 'ONLINE', $2, $3, $4, $5)",
        [(each, number, *spot(number).values(), RADIUS_M) for number, each in enumerate(online)],
    )
    consumer = UUID(target.consumer["id"])
    await connection.execute(
        "INSERT INTO workspace (id, name, state, idle_since) VALUES ($1, 'bench', 'OFFLINE', 0)", consumer
    )
    keys = [(target.consumer["key"], consumer)] + [(each["key"], UUID(each["id"])) for each in target.devices]
    await connection.executemany(
        "INSERT INTO api_key (digest, key_id, workspace_id) VALUES ($1, $2, $2)",
        [(hashlib.sha256(key.encode()).digest(), workspace_id) for key, workspace_id in keys],
    )
    await connection.execute("ANALYZE")
    await connection.close()
    target.operators = like.operators


async def fastapi_sessions(target: Target, count: int) -> list[str]:
    """Create requested sessions."""
    connection = await asyncpg.connect(target.cookie)
    places = [spot(number) for number in range(count)]
    rows = await connection.fetch(
        "INSERT INTO session (id, consumer_workspace_id, state, lat, lng, max_duration_seconds, rate_micro)"
        " SELECT gen_random_uuid(), $1, 'REQUESTED', lat, lng, 600, 1000"
        " FROM unnest($2::float8[], $3::float8[]) AS place(lat, lng) RETURNING id",
        UUID(target.consumer["id"]),
        [place["lat"] for place in places],
        [place["lng"] for place in places],
    )
    await connection.close()
    return [str(row["id"]) for row in rows]
