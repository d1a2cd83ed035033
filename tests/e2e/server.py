"""Run a real server in separate processes, and use its public interface only."""

import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import trio

from sightline.system.secrets import stored_secrets
from sightline_client import AsyncChain
from sightline_client.wallet import LocalWallet
from tests.client.api import Api

PLACE = (52.520008, 13.404954)
PATIENCE_S = 60.0
DEFAULTS = {
    "SIGHTLINE_VIDEO_WORKERS": "1",
    "SIGHTLINE_RATE_LIMITS": "false",
    "SIGHTLINE_CONSUMER_DISPATCHES_MAX": "0",
    "SIGHTLINE_UNFUNDED_SESSIONS_MAX": "0",
    # Many operators of these tests have no device that acknowledges.
    "SIGHTLINE_DISPATCH_ACK_SECONDS": "0",
    # Sessions without a charge are settled at once, because tests wait for that too.
    "SIGHTLINE_CHAIN_FREE_SETTLE_SECONDS": "0",
}


def _limit_descriptors(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


@dataclass
class Server:
    """A `sightline serve` process on a data directory that remains after it."""

    directory: Path
    port: int = 0
    internal_port: int = 0
    env: dict[str, str] = field(default_factory=dict)
    descriptors: int | None = None
    """Limit of open files, soft and hard; None inherits the test's limits."""
    code: Path | None = None
    """Working directory: a checkout of another version, whose code runs; None: that of the test."""
    process: subprocess.Popen[bytes] | None = None
    url: str = ""

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    def log(self) -> str:
        return self.log_path.read_text()

    def internal_headers(self) -> dict[str, str]:
        """The credential of calls to the internal listener, as an account that reads the server's files has it."""
        path = self.env.get("SIGHTLINE_SECRETS_FILE") or self.directory / "data" / "secrets.json"
        secrets = stored_secrets(Path(path))
        assert secrets is not None
        return {"authorization": f"Bearer {secrets.internal_token}"}

    async def start(self) -> None:
        self.spawn()
        await self.await_ready()

    def spawn(self) -> None:
        """Start the server without waiting until it is ready."""
        ports = ["--port", str(self.port), "--internal-port", str(self.internal_port)]
        command = [sys.executable, "-m", "sightline.cli", "serve", *ports]
        env = os.environ | DEFAULTS | self.env
        with self.log_path.open("ab") as log_file:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(self.directory / "data")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=env,
                cwd=self.code,
                preexec_fn=None if self.descriptors is None else partial(_limit_descriptors, self.descriptors),
            )

    async def await_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE_S * 2):
            line = await trio.to_thread.run_sync(self.process.stdout.readline, abandon_on_cancel=True)
        word, _, self.url = line.decode().strip().partition(" ")
        assert word == "ready", self.log()[-3000:]
        # With SIGHTLINE_PUBLIC_URL the server prints that URL; the port is then the one that the test chose.
        self.port = self.port or int(self.url.rpartition(":")[2])

    async def until_secrets(self) -> None:
        """Wait until the server has made its secrets."""
        secrets = self.directory / "data" / "secrets.json"
        with trio.fail_after(PATIENCE_S * 2):
            while not secrets.exists() or not secrets.read_bytes().endswith(b"}"):  # noqa: ASYNC110  another process
                await trio.sleep(0.02)

    async def until_logged(self, text: str) -> None:
        """Wait until the log contains a text."""
        with trio.fail_after(PATIENCE_S * 2):
            while text not in self.log():  # noqa: ASYNC110  another process writes the file
                await trio.sleep(0.05)

    async def kill(self) -> None:
        """Kill the server by SIGKILL, so that no clean-up runs."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self._reap()

    async def kill_everything(self) -> None:
        """Kill the server and all its child processes by SIGKILL, the database first."""
        assert self.process is not None
        for child in reversed(psutil.Process(self.process.pid).children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        await self.kill()

    async def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return await self._reap()

    async def _reap(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE_S):
            code = await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
        self.process.stdout.close()
        self.process = None
        return code

    def end(self) -> None:
        """Stop every process of the server, whatever its state."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()


@dataclass
class Tenant:
    """A workspace with its own API key."""

    wallet: LocalWallet
    workspace_id: str
    key: str


async def a_tenant(url: str, role: str, slug: str, wallet: LocalWallet | None = None) -> Tenant:
    """Sign up as a user would. A new wallet has no funds; that is enough if the funds policy is advisory."""
    wallet = wallet if wallet is not None else LocalWallet.create()
    scopes = ["sessions:read", "sessions:create", "sessions:operate", "pricing:read", "wallet:read"]
    async with Api(url) as api:
        workspace = await api.workspaces.create(wallet, slug=slug, name=slug, roles=[role])
        await api.auth.sign_in(wallet)
        await api.post("/auth/workspace/select", workspaceId=workspace.id)
        minted = await api.post(f"/workspaces/{workspace.id}/api-keys", label="e2e", environment="TEST", scopes=scopes)
    return Tenant(wallet, workspace.id, minted["plaintext"])


async def go_online(url: str, operator: Tenant, place: tuple[float, float] = PLACE) -> None:
    async with Api(url, key=operator.key) as api:
        body = {
            "availabilityState": "ONLINE",
            "coverageLat": place[0],
            "coverageLng": place[1],
            "coverageRadiusMeters": 1000,
        }
        await api.call("PATCH", f"/workspaces/{operator.workspace_id}", body)


async def fund(url: str, consumer: Tenant, micro: int = 10_000_000) -> None:
    """Give a consumer test USDC, and let it approve the settlement contract: its charges can be collected."""
    async with Api(url, key=consumer.key) as api:
        config = await api.get("/config")
        await api.post("/wallet/faucet", amountMicroUsdc=str(micro))
        chain = AsyncChain(config["rpcUrl"])
        await chain.approve(
            consumer.wallet, token=config["usdcAddress"], spender=config["settlementAddress"], amount=micro
        )


@dataclass
class Live:
    """A LIVE session and the two sides of it."""

    session_id: str
    consumer: Tenant
    operator: Tenant


async def go_live(server: Server) -> Live:
    """Start a session of a new consumer with a new operator."""
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    async with Api(server.url, key=consumer.key) as watcher, Api(server.url, key=operator.key) as device:
        session_id = (await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600))["id"]
        await watcher.post(f"/sessions/{session_id}/dispatch")
        await device.post(f"/sessions/{session_id}/start")
    return Live(session_id, consumer, operator)


async def until(read: Any, holds: Any, what: str) -> Any:
    """Wait until a condition is true."""
    seen = None
    with trio.move_on_after(PATIENCE_S):
        while True:
            seen = await read()
            if holds(seen):
                return seen
            await trio.sleep(0.05)
    raise AssertionError(f"{what}: last seen {seen}")


async def start_line(server: Server) -> str:
    """Start a server that must not start; returns the line that it prints."""
    logged = len(server.log())
    server.spawn()
    assert server.process is not None
    with trio.fail_after(PATIENCE_S * 5):
        code = await trio.to_thread.run_sync(server.process.wait, abandon_on_cancel=True)
    [line] = [line for line in server.log()[logged:].splitlines() if not line.startswith("{")]
    assert code == 1
    assert server.process.stdout is not None
    server.process.stdout.close()
    server.process = None
    return line


def processes_under(directory: Path) -> list[str]:
    """List the command lines of the processes that name the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(directory) in command:
                found.append(command)
    return found
