"""The server under attack, and what an attacker needs: tenants, raw requests, and the latency of an honest tenant."""

import os
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import trio

from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online
from tests.http.server.certificate import write_certificate

RESPONSE_BYTES_MAX = 65_536


@dataclass
class Target:
    """A server started as a user starts it: defaults, rate limits on, embedded database, chain and video."""

    server: Server
    http: httpx.AsyncClient
    tenants: int = 0
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _tls: dict[str, tuple[Server, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.server.url

    async def tenant(self, role: str) -> Tenant:
        """A new workspace with its wallet and a key of every scope."""
        self.tenants += 1
        return await a_tenant(self.url, role, f"tenant-{role.lower()}-{self.tenants}")

    async def operator(self, place: tuple[float, float] = PLACE) -> Tenant:
        """A supplier that is ONLINE and covers the place, with one heartbeat."""
        operator = await self.tenant("SUPPLIER")
        await go_online(self.url, operator, place)
        async with Api(self.url, key=operator.key) as api:
            await api.post(f"/workspaces/{operator.workspace_id}/location", lat=place[0], lng=place[1], sequence=1)
        return operator

    async def live_session(self, consumer: Tenant, operator: Tenant) -> dict[str, Any]:
        """A LIVE session, as the operator sees it (with its whipUrl)."""
        async with Api(self.url, key=consumer.key) as buyer, Api(self.url, key=operator.key) as seller:
            session = await buyer.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=1_800)
            await seller.post(f"/sessions/{session['id']}/accept", operatorWorkspaceId=operator.workspace_id)
            return await seller.post(f"/sessions/{session['id']}/start")

    async def tls_server(self, name: str) -> tuple[Server, str]:
        """A server that speaks HTTP/2, and the file of its certificate; each name has one until the end."""
        if name not in self._tls:
            directory = self.server.directory / name
            directory.mkdir()
            tls = write_certificate(directory)
            env = {"SIGHTLINE_TLS_CERT": tls.cert_file, "SIGHTLINE_TLS_KEY": tls.key_file}
            server = await self._stack.enter_async_context(running(directory, env | {"SIGHTLINE_VIDEO_WORKERS": "1"}))
            self._tls[name] = server, tls.cert_file
        return self._tls[name]

    async def call(self, method: str, path: str, credential: str = "", body: Any = None, **headers: str) -> Any:
        """A request to the API. `credential` is a key or a Cookie header."""
        if credential:
            is_key = credential.startswith(("svc_test_", "svc_live_"))
            headers |= {"authorization": f"Bearer {credential}"} if is_key else {"cookie": credential}
        url = path if path.startswith("http") else f"{self.url}/api/v1{path}"
        return await self.http.request(method, url, json=body, headers=headers)

    async def rpc(self, method: str, *params: Any) -> httpx.Response:
        """A JSON-RPC request to the public endpoint of the embedded chain."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        return await self.http.post(f"{self.url}/rpc", json=body)

    async def raw(self, request: bytes, *, wait_s: float = 10.0) -> bytes:
        """Send bytes on a connection of its own; returns what came back until the server closed or `wait_s` passed."""
        parts = urlsplit(self.url)
        received = b""
        async with await trio.open_tcp_stream(str(parts.hostname), parts.port or 80) as stream:
            with trio.move_on_after(wait_s):
                try:
                    await stream.send_all(request)
                    while len(received) < RESPONSE_BYTES_MAX and (piece := await stream.receive_some()):
                        received += piece
                except trio.BrokenResourceError:
                    pass
        return received

    def memory_bytes(self) -> int:
        """Resident memory of the server and its children, Postgres left out."""
        assert self.server.process is not None
        main = psutil.Process(self.server.process.pid)
        total = 0
        for each in (main, *main.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # connections of Postgres come and go
                total += 0 if "postgres" in each.name() else int(each.memory_info().rss)
        return total

    def cpu_s(self) -> float:
        """CPU time that the server's own process has used."""
        assert self.server.process is not None
        used = psutil.Process(self.server.process.pid).cpu_times()
        return float(used.user + used.system)

    def logged(self) -> str:
        return self.server.log()


@dataclass
class Latency:
    """Response times of an honest tenant while something else goes on."""

    millis: list[float] = field(default_factory=list)
    _next: trio.Event = field(default_factory=trio.Event)

    async def measured(self, count: int) -> None:
        """Wait until there are this many calls."""
        while len(self.millis) < count:
            self._next = trio.Event()
            await self._next.wait()

    def add(self, millis: float) -> None:
        self.millis.append(millis)
        self._next.set()

    def quantile_ms(self, percent: int) -> float:
        return statistics.quantiles(self.millis, n=100, method="inclusive")[percent - 1]


@asynccontextmanager
async def honest_calls(
    url: str, credential: str | None = None, ca_file: str | None = None, *, every_s: float = 0.05
) -> AsyncIterator[Latency]:
    """Call a URL 20 times a second, or as `every_s` says, from a process of its own, for as long as the block lasts."""
    latency = Latency()
    command = [sys.executable, "-m", "tests.attack.second_tenant", url, *([] if ca_file is None else [ca_file])]
    env = os.environ | {"EVERY_S": str(every_s)} | ({} if credential is None else {"API_KEY": credential})

    async def read(lines: trio.abc.ReceiveStream) -> None:
        rest = b""
        async for piece in lines:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                latency.add(float(line))
        raise AssertionError("the second tenant got another answer than 200")

    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, command, stdout=subprocess.PIPE, check=False, env=env))
        nursery.start_soon(read, process.stdout)
        await latency.measured(1)
        latency.millis.clear()  # the first call opens the connection
        yield latency
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(directory: Path, env: dict[str, str]) -> AsyncIterator[Server]:
    """Start a server, and stop it at the end; it must end without an error."""
    server = Server(directory, env=env)
    try:
        await server.start()
        yield server
        assert await server.stop() == 0
    finally:
        server.end()


@asynccontextmanager
async def open_target(directory: Path) -> AsyncIterator[Target]:
    """Start the server, and stop it at the end."""
    # All tenants share one address here, so the budgets of addresses are wide.
    limits = {
        "SIGHTLINE_CONSUMER_DISPATCHES_MAX": "3",
        "SIGHTLINE_UNFUNDED_SESSIONS_MAX": "1",
        "SIGHTLINE_DISPATCH_ACK_SECONDS": "10",
        "SIGHTLINE_RATE_LIMITS": "true",
        # Operators send one heartbeat: a session that waits for an attacker on a slow machine must not end by itself.
        "SIGHTLINE_PAUSE_MAX_SECONDS": "1800",
        "SIGHTLINE_PAUSED_TOTAL_MAX_SECONDS": "1800",
        "SIGHTLINE_FRAME_SIGNING": "request",
        "SIGHTLINE_RATE_BUDGETS": "auth=100/1000,signalling=1000/5000",
    }
    env = limits | {"SIGHTLINE_VIDEO_WORKERS": str(os.cpu_count() or 1)}
    async with (
        running(directory, env) as server,
        httpx.AsyncClient(timeout=60) as http,
        AsyncExitStack() as stack,
    ):
        yield Target(server, http, _stack=stack)
