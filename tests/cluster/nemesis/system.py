"""The service into which faults are injected: three servers with their Postgres, chain and NATS server."""

import json
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import psutil
import trio

from sightline.bootstrap.process import EXIT_FENCED
from sightline.storage.embedded.postgres_child import SOCKET_NAME, Layout, find_binaries, lay_out
from tests.cluster.bus.nats_process import TOKEN, NatsProcess
from tests.cluster.nemesis.checkout import python_path
from tests.cluster.nemesis.link import Link, open_link
from tests.conftest import open_data_directory
from tests.e2e.server import Server
from tests.nemesis.parts import ExternalChain, ExternalPostgres, on_database

SERVERS: Final = 3
BALANCED: Final = 60
"""Shards of each of three servers when a third of them is fair, and up to 10 % more are kept."""
SETTINGS: Final = {"SIGHTLINE_DISPATCH_MODE": "strict", "SIGHTLINE_LOG_LEVEL": "info"}


class Arrangement(Enum):
    """How the three servers run."""

    SERVERS = "servers"
    """Three `serve` with NATS; each reaches Postgres and NATS through a proxy. Nothing restarts them but the test."""
    WORKERS = "workers"
    """`serve --workers 3`: a supervisor restarts everything."""


@dataclass
class Member:
    """One of the three servers."""

    number: int
    directory: Path
    """With the file that names its listeners."""
    server: Server
    """Its own process; in `serve --workers` that of the supervisor."""
    database: Link | None = None
    nats: Link | None = None
    is_door: bool = True
    """Whether callers use it, as a load balancer would that checks its health."""

    @property
    def internal_url(self) -> str:
        return str(json.loads((self.directory / "server.json").read_text())["internalUrl"])

    def process(self) -> psutil.Process | None:
        """Its process; None while it does not run."""
        started = self.server.process
        if started is None or started.poll() is not None:
            return None
        if self.directory == self.server.directory / "data":
            return psutil.Process(started.pid)
        for child in children(started.pid, f"workers/{self.number}"):
            return child
        return None


def children(pid: int, text: str) -> list[psutil.Process]:
    """The processes below a process whose command line contains a text."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if text in " ".join(child.cmdline()):
                found.append(child)
    return found


@dataclass
class Service:
    """Three servers and what they depend on. Its `url` is that of a random server that is a door."""

    arrangement: Arrangement
    directory: Path
    members: list[Member]
    rng: Random
    layout: Layout
    """Of the database."""
    postgres: ExternalPostgres | None = None
    chain: ExternalChain | None = None
    nats: NatsProcess | None = None
    starter: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))
    """A thread that starts processes again, and lasts as long as they do."""
    exits: list[str] = field(default_factory=list)
    """Servers that ended by themselves, and were started again."""

    @property
    def url(self) -> str:
        return self.rng.choice([member for member in self.members if member.is_door]).server.url

    @property
    def chain_directory(self) -> Path:
        return self.directory / "data" / "chain" if self.chain is None else self.chain.directory

    @property
    def supervisor(self) -> Server:
        """The supervisor of the workers."""
        return self.members[0].server

    async def start(self) -> None:
        """Start all servers; they share the secrets that the first one makes."""
        first, *others = self.members
        await first.server.start()
        if self.arrangement is Arrangement.WORKERS:
            return
        async with trio.open_nursery() as nursery:
            for member in others:
                shutil.copy(first.directory / "secrets.json", member.directory / "secrets.json")
                nursery.start_soon(member.server.start)

    async def kill(self, member: Member) -> None:
        """Kill a server by SIGKILL. A supervisor starts it again; otherwise it stays ended."""
        process = member.process()
        assert process is not None, f"server {member.number} does not run"
        if self.arrangement is Arrangement.SERVERS:
            member.is_door = False
            await member.server.kill()
        else:
            process.kill()

    async def stop(self, member: Member) -> None:
        """Stop a server by SIGTERM, as a rolling upgrade does. It takes no new callers from the beginning."""
        member.is_door = False
        code = await member.server.stop()
        if code != 0:
            self.exits.append(f"server {member.number} ended with exit code {code} after SIGTERM")

    async def upgrade(self, member: Member) -> None:
        """Stop a server of another version by SIGTERM, and start one of this version in its place."""
        process = member.process()
        assert process is not None, f"server {member.number} does not run"
        assert Path(process.cwd()) == member.server.code, f"server {member.number} runs the code of {process.cwd()}"
        await self.stop(member)
        member.server.code = None
        del member.server.env["PYTHONPATH"]
        await self.restart(member)

    async def owners(self) -> dict[int, str | None]:
        """Owner of each shard in the database, by incarnation."""
        found: dict[int, str | None] = {}

        async def read(connection: Any) -> None:
            for row in await connection.fetch("SELECT id, incarnation FROM shard"):
                found[row["id"]] = row["incarnation"]

        await on_database(self.layout.dsn, read)
        return found

    async def until_balanced(self) -> None:
        """Wait until every server owns about as many shards as the others."""
        while True:
            owned = Counter((await self.owners()).values())
            if len(owned) == len(self.members) and None not in owned and min(owned.values()) >= BALANCED:
                return
            await trio.sleep(0.2)

    async def restart(self, member: Member) -> None:
        """Start a server that has ended."""
        await member.server.start()
        member.is_door = True

    async def restart_ended(self) -> None:
        """Start every server that has ended by itself, as its supervisor would, and record that it ended."""
        if self.arrangement is Arrangement.WORKERS:
            return
        for member in self.members:
            process = member.server.process
            if process is not None and process.poll() is not None:
                member.is_door = False
                said = "" if process.returncode == EXIT_FENCED else member.server.log().strip()[-2_000:]
                self.exits.append(f"server {member.number} ended by itself with exit code {process.returncode} {said}")
                await member.server._reap()
                await self.restart(member)

    def postgres_process(self) -> psutil.Process:
        """The first process of Postgres."""
        return psutil.Process(int((self.layout.cluster / "postmaster.pid").read_text().split("\n", 1)[0]))

    async def kill_nats(self) -> None:
        """Kill the NATS server, and start it again on its port unless its supervisor does."""
        if self.nats is None:
            assert self.supervisor.process is not None
            (process,) = children(self.supervisor.process.pid, "nats-server -c")
            process.kill()
        else:
            self.nats.kill()
            await self._in_thread(self.nats.start)

    async def kill_postgres(self) -> None:
        """Kill Postgres, and start it again unless its supervisor does."""
        process = self.postgres_process()
        process.send_signal(signal.SIGKILL)
        if self.postgres is not None:
            assert self.postgres.process is not None
            await self._in_thread(self.postgres.process.wait)
            await self._in_thread(self.postgres.start)

    async def _in_thread(self, work: Callable[[], object]) -> None:
        """Let the proxies and the callers of this process go on. Postgres ends with the thread that has started it."""
        await trio.to_thread.run_sync(self.starter.submit(work).result)

    async def unready(self) -> str | None:
        """Return why the service is not whole; None if every server runs, is ready and has no parked actor."""
        for member in self.members:
            if member.process() is None:
                return f"server {member.number} does not run"
            try:
                async with httpx.AsyncClient(base_url=member.internal_url, timeout=5.0) as http:
                    ready = await http.get("/readyz")
                    actors = (await http.get("/internal/actors", headers=member.server.internal_headers())).json()[
                        "data"
                    ]["kinds"]
            except (httpx.TransportError, OSError, ValueError, KeyError) as error:
                return f"server {member.number} does not answer: {error!r}"
            parked = {kind: counts["parked"] for kind, counts in actors.items() if counts["parked"]}
            if parked:
                return f"actors of server {member.number} are parked: {parked}"
            if ready.status_code != 200:
                return f"server {member.number} is not ready: {ready.text[:600]}"
        return None

    @property
    def log_files(self) -> set[Path]:
        files = {member.server.log_path for member in self.members if member.server.log_path.exists()}
        return files | set((self.directory / "data" / "log").glob("*.log"))

    def keep_logs(self, directory: Path) -> None:
        """Copy every log into a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        for path in self.log_files:
            shutil.copy(path, directory / str(path.relative_to(self.directory)).replace("/", "-"))

    def logs(self) -> str:
        """The end of every server's log."""
        files = self.log_files
        return "\n".join(f"== {path}\n{_without_calls(path)[-8_000:]}" for path in sorted(files))

    def end(self) -> None:
        for member in self.members:
            member.server.end()
        if self.nats is not None:
            self.nats.kill()
        for part in (self.chain, self.postgres):
            if part is not None:
                part.end()
        self.starter.shutdown()


def _without_calls(log: Path) -> str:
    return "\n".join(line for line in log.read_text().splitlines() if '"http_call"' not in line)


@asynccontextmanager
async def open_service(arrangement: Arrangement, seed: str, code: Path | None = None) -> AsyncIterator[Service]:
    """Create a service whose servers are not yet started, and remove everything at the end.

    Args:
        code: A checkout of another version that single servers run; None: this version.
    """
    rng = Random(f"{seed}:doors")
    with ExitStack() as stack:
        root = stack.enter_context(open_data_directory())
        root.chmod(0o711)
        if arrangement is Arrangement.WORKERS:
            supervisor = Server(root, env=SETTINGS | {"SIGHTLINE_WORKERS": str(SERVERS)})
            data = root / "data"
            members = [Member(number, data / "workers" / str(number), supervisor) for number in range(1, SERVERS + 1)]
            service = Service(arrangement, root, members, rng, lay_out(data / "postgres", find_binaries()))
            stack.callback(service.end)
            yield service
            return
        (root / "postgres").mkdir(mode=0o700)
        postgres, chain = ExternalPostgres(root / "postgres"), ExternalChain(root / "chain")
        nats = NatsProcess(root / "nats")
        service = Service(arrangement, root, [], rng, postgres.layout, postgres, chain, nats)
        stack.callback(service.end)
        postgres.start()
        chain.start()
        async with trio.open_nursery() as nursery:
            for number in range(1, SERVERS + 1):
                service.members.append(await _a_server(service, number, nursery, code))
            yield service
            nursery.cancel_scope.cancel()


async def _a_server(service: Service, number: int, nursery: trio.Nursery, code: Path | None) -> Member:
    """Create a server that reaches Postgres and NATS through proxies of its own."""
    assert service.chain is not None
    assert service.nats is not None
    to_postgres = partial(trio.open_unix_socket, str(service.layout.socket_directory / SOCKET_NAME))
    database = await open_link(nursery, to_postgres)
    nats = await open_link(nursery, partial(trio.open_tcp_stream, "127.0.0.1", service.nats.port))
    env = {
        "SIGHTLINE_DATABASE_URL": f"postgresql://postgres@127.0.0.1:{database.port}/postgres?sslmode=disable",
        "SIGHTLINE_NATS_URL": f"nats://{TOKEN}@127.0.0.1:{nats.port}",
        "SIGHTLINE_DATABASE_POOL": "6",
    }
    if code is not None:
        env |= python_path(code)
    server = Server(service.directory / f"server-{number}", env=SETTINGS | service.chain.env | env, code=code)
    data = server.directory / "data"
    data.mkdir(parents=True)
    return Member(number, data, server, database, nats)
