"""The system into which faults are injected: one server with its database, chain, disk and clock."""

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from sightline.storage.embedded.postgres_child import Layout, find_binaries, lay_out
from tests.chain.endpoint import Endpoint, open_endpoint
from tests.conftest import open_data_directory
from tests.e2e.history import Recorded, Rows
from tests.e2e.server import Server
from tests.nemesis.clock_shim import ClockShim
from tests.nemesis.parts import ROLE, Disk, ExternalChain, ExternalPostgres, on_database
from tests.storage.proxy import Wire, open_wire

PATIENCE_S: Final = 60.0
EVENTS: Final = "SELECT session_id, kind, at_ms, facts FROM session_event ORDER BY session_id, sequence"


class Arrangement(Enum):
    """Where database and chain run."""

    EMBEDDED = "embedded"
    """Database and chain are children of the server."""
    EXTERNAL = "external"
    """Both run independently; the database is reached through a TCP proxy. Only here can a second server take over."""


@dataclass
class System:
    """One server and everything that it depends on."""

    arrangement: Arrangement
    server: Server
    disk: Disk
    clock: ClockShim
    postgres: ExternalPostgres | None = None
    chain: ExternalChain | None = None
    wire: Wire | None = None
    endpoint: Endpoint | None = None
    """In front of the external chain, for the server only."""
    ended_by_itself: list[str] = field(default_factory=list)
    """Exits of the server that no fault caused."""
    servers: list[Server] = field(default_factory=list)
    """All servers that were started; the last is the active one."""

    @property
    def data(self) -> Path:
        return self.server.directory / "data"

    @property
    def chain_directory(self) -> Path:
        return self.data / "chain" if self.chain is None else self.chain.directory

    @property
    def process(self) -> psutil.Process:
        assert self.server.process is not None
        return psutil.Process(self.server.process.pid)

    def another_server(self) -> Server:
        """Create a server on the same database and chain, with its own data directory and the same secrets."""
        directory = self.server.directory.with_name(f"server-{len(self.servers) + 1}")
        (directory / "data").mkdir(parents=True, mode=0o700)
        shutil.copy(self.data / "secrets.json", directory / "data")
        made = Server(directory, env=self.server.env)
        self.servers.append(made)
        return made

    def children(self, *words: str) -> list[psutil.Process]:
        """List the processes below the server whose command line contains one of the words."""
        found = []
        for child in self.process.children(recursive=True):
            with suppress(psutil.Error):
                if any(word in " ".join(child.cmdline()) for word in words):
                    found.append(child)
        return found

    def postmaster(self) -> psutil.Process:
        """Return the first process of Postgres."""
        return psutil.Process(int((self.postgres_layout.cluster / "postmaster.pid").read_text().split("\n", 1)[0]))

    @property
    def postgres_layout(self) -> Layout:
        directory = self.postgres.directory if self.postgres is not None else self.data / "postgres"
        return lay_out(directory, find_binaries())

    @property
    def database_dsn(self) -> str:
        """Return the address of the database itself, without a proxy."""
        return self.postgres_layout.dsn if self.postgres is None else self.postgres.dsn

    async def unready(self) -> str | None:
        """Return why the server is not ready; None if its process runs, /readyz passes and no actor is parked."""
        if self.server.process is None or self.server.process.poll() is not None:
            return "the server is not running"
        try:
            async with httpx.AsyncClient(base_url=self._internal_url(), timeout=5.0) as http:
                ready = await http.get("/readyz")
                actors = (await http.get("/internal/actors", headers=self.server.internal_headers())).json()["data"][
                    "kinds"
                ]
        except (httpx.TransportError, OSError, ValueError, KeyError) as error:
            return f"readiness is not answered: {error!r}"
        parked = {kind: counts["parked"] for kind, counts in actors.items() if counts["parked"]}
        if parked:
            return f"actors are parked: {parked}"
        return None if ready.status_code == 200 else f"not ready: {ready.text[:300]}"

    def _internal_url(self) -> str:
        return str(json.loads((self.data / "server.json").read_text())["internalUrl"])

    async def restart_if_ended(self) -> None:
        """Start the server again if it has exited, as its supervisor would, and record the exit."""
        process = self.server.process
        if process is not None and process.poll() is not None:
            said = self.server.log().strip().rpartition("\n")[2][-300:]
            self.ended_by_itself.append(f"exit code {process.returncode}: {said}")
            await self.server._reap()
            await self.server.start()

    def events(self) -> Counter[str]:
        """Count the log lines of all servers by event: warnings and worse."""
        lines = (line for server in self.servers for line in server.log_path.read_bytes().splitlines())
        return Counter(json.loads(line)["event"] for line in lines if line.startswith(b"{") and line.endswith(b"}"))

    async def rows(self) -> Rows:
        """Read the contents of the database."""
        return await read_rows(self.database_dsn)

    def end(self) -> None:
        for server in self.servers:
            server.end()
        for part in (self.chain, self.postgres):
            if part is not None:
                part.end()


async def read_rows(dsn: str) -> Rows:
    """Read the contents of a database by SQL."""
    heartbeats: dict[str, Counter[int]] = defaultdict(Counter)
    found = Rows(heartbeats, {}, {})

    async def read(connection: Any) -> None:
        for row in await connection.fetch("SELECT workspace_id, sequence FROM heartbeat"):
            heartbeats[str(row["workspace_id"])][row["sequence"]] += 1
        for row in await connection.fetch("SELECT id, state FROM session"):
            found.sessions[str(row["id"])] = row["state"]
        for row in await connection.fetch("SELECT session_id, state FROM settlement"):
            found.settlements[str(row["session_id"])] = row["state"]
        for row in await connection.fetch(EVENTS):
            event = Recorded(str(row["session_id"]), row["kind"], row["at_ms"], dict(json.loads(row["facts"])))
            found.events.append(event)

    await on_database(dsn, read)
    return found


@asynccontextmanager
async def open_system(arrangement: Arrangement) -> AsyncIterator[System]:
    """Create a system whose server is not yet started, and remove everything at the end."""
    with ExitStack() as stack:
        root = stack.enter_context(open_data_directory())
        root.chmod(0o711)  # the account of Postgres uses the clock's file and the database too
        clock = ClockShim(root / "clock")
        directory = root / "server-1"
        directory.mkdir(mode=0o711)
        env = {"SIGHTLINE_DISPATCH_MODE": "strict", "SIGHTLINE_LOG_LEVEL": "warning"}
        if arrangement is Arrangement.EMBEDDED:
            disk = stack.enter_context(Disk(directory / "data").opened())
            server = Server(directory, env=env | clock.env)
            system = System(arrangement, server, disk, clock, servers=[server])
            stack.callback(system.end)
            yield system
            return
        disk = stack.enter_context(Disk(root / "disk").opened())
        disk.path.chmod(0o711)
        (disk.path / "postgres").mkdir(mode=0o700)
        postgres, chain = ExternalPostgres(disk.path / "postgres"), ExternalChain(root / "chain")
        stack.enter_context(_running(postgres, chain))
        await postgres.make_database()
        url = chain.env["SIGHTLINE_CHAIN_RPC_URL"]
        async with open_wire(postgres.dsn) as wire, open_endpoint(url) as endpoint:
            env |= chain.env | clock.env | {"SIGHTLINE_CHAIN_RPC_URL": endpoint.url}
            env["SIGHTLINE_DATABASE_URL"] = wire.dsn.replace("postgres@", f"{ROLE}@")
            server = Server(directory, env=env)
            system = System(arrangement, server, disk, clock, postgres, chain, wire, endpoint, servers=[server])
            try:
                yield system
            finally:
                system.end()


@contextmanager
def _running(postgres: ExternalPostgres, chain: ExternalChain) -> Iterator[None]:
    try:
        postgres.start()
        chain.start()
        yield
    finally:
        chain.end()
        postgres.end()
