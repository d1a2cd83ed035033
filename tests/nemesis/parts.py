"""The parts into which faults are injected: a separate disk, an external Postgres, an external chain."""

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil
import trio

from sightline.chain.embedded.node import CHAIN_ID_DEFAULT
from sightline.storage.embedded.postgres_account import choose_account
from sightline.storage.embedded.postgres_child import (
    Layout,
    find_binaries,
    lay_out,
    make_cluster,
    prepare_socket_directory,
    start_postgres,
    stop_leftover,
    write_access_rules,
)
from tests.conftest import on_server

DISK_BYTES: Final = 1_500 * 1024 * 1024
"""Bytes for a cluster and for the gigabyte of log that Postgres keeps at most."""
DATABASE_PATIENCE_S: Final = 30.0
LAST_BYTES: Final = 4 * 1024 * 1024
FILE_BYTES_WHEN_FULL: Final = 64 * 1024


@dataclass
class Disk:
    """A separate file system if the machine allows a mount; otherwise an ordinary directory.

    `fill` makes writes fail with "no space left on device". Without a mount it limits the file size of the processes
    that work there, so that their writes fail with "file too large".
    """

    path: Path
    is_mounted: bool = False
    _limited: list[int] = field(default_factory=list)

    @contextmanager
    def opened(self) -> Iterator["Disk"]:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(self.path)]
        self.is_mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
        try:
            yield self
        finally:
            if self.is_mounted:
                subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self) -> None:
        """Fill the disk completely."""
        if not self.is_mounted:
            self._limit_files(FILE_BYTES_WHEN_FULL)
            return
        with self._filler.open("wb", buffering=0) as out, suppress(OSError):
            free = os.statvfs(self.path)
            # Other processes write too: first fill nearly everything, then block by block until the disk is full.
            size = max(0, free.f_bavail * free.f_frsize - LAST_BYTES)
            os.posix_fallocate(out.fileno(), 0, max(1, size))
            out.seek(0, os.SEEK_END)
            while True:
                out.write(bytes(free.f_frsize))

    def clear(self) -> None:
        """Free the space again."""
        if not self.is_mounted:
            self._limit_files(-1)
            return
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def _limit_files(self, limit: int) -> None:
        program = (
            "import resource, sys; pid, limit = map(int, sys.argv[1:]);"
            "resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))"
        )
        for process in processes_in(self.path):
            with suppress(psutil.NoSuchProcess):
                uids, gids = process.uids(), process.gids()
                # As the owner of the process: a limit on another user's process needs a capability that containers
                # lack.
                as_owner = {"user": uids.real, "group": gids.real, "extra_groups": []} if os.geteuid() == 0 else {}
                subprocess.run([sys.executable, "-c", program, str(process.pid), str(limit)], check=False, **as_owner)


def processes_in(directory: Path) -> list[psutil.Process]:
    """List the processes of databases and chains that work in the directory or name it in their command line."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(directory) in " ".join(process.cmdline()) or Path(process.cwd()).is_relative_to(directory):
                found.append(process)
    return found


async def on_database(dsn: str, unit: Callable[[Any], Awaitable[object]]) -> None:
    """Run a function on an asyncpg connection of its own; waits for a database that is still starting."""
    with trio.fail_after(DATABASE_PATIENCE_S):
        while True:
            try:
                return await trio.to_thread.run_sync(on_server, dsn, unit)
            except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):
                await trio.sleep(0.1)


@dataclass
class ExternalPostgres:
    """A Postgres that the server reaches by `SIGHTLINE_DATABASE_URL`; the server does not supervise it."""

    directory: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def layout(self) -> Layout:
        return lay_out(self.directory, find_binaries())

    def start(self) -> None:
        """Start Postgres and block until it is ready. Call it on the main thread: Postgres ends with that thread."""
        account = choose_account("nobody")
        account.own(self.directory)
        self.directory.parent.chmod(0o711)
        prepare_socket_directory(self.layout, account)
        make_cluster(self.layout, account)
        write_access_rules(self.layout, account)
        # Only this account and the test's can reach the socket.
        (self.layout.cluster / "pg_hba.conf").write_text("local all all trust\nlocal replication all trust\n")
        stop_leftover(self.layout, lambda _said: None)
        self.process = start_postgres(self.layout, account, durable=True, changes=REPLICATED)

    async def replicate(self, directory: Path) -> "ExternalPostgres":
        """Make and start a synchronous replica of this database in another directory."""
        account = choose_account("nobody")
        await trio.Path(directory).mkdir(mode=0o700)
        account.own(directory)
        replica = ExternalPostgres(directory)
        source = ["-h", str(self.layout.socket_directory), "-U", "postgres"]
        copy = [str(self.layout.binaries / "pg_basebackup"), *source, "--checkpoint=fast", "--write-recovery-conf"]
        await trio.run_process(
            [*copy, "-D", str(replica.layout.cluster)], capture_stderr=True, cwd="/", **account.popen_options()
        )
        replica.start()
        await on_database(self.layout.dsn, _wait_for_replica)
        return replica

    @property
    def dsn(self) -> str:
        """Address of the server's database for the superuser."""
        return self.layout.dsn.replace("/postgres?", f"/{ROLE}?")

    async def make_database(self) -> None:
        """Make the server's database, which an ordinary role owns."""

        async def make(connection: Any) -> None:
            await connection.execute(f"CREATE ROLE {ROLE} LOGIN")
            await connection.execute(f"CREATE DATABASE {ROLE} OWNER {ROLE}")

        await on_database(self.layout.dsn, make)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


ROLE: Final = "sightline"
REPLICATED: Final = {"wal_level": "replica", "max_wal_senders": "4"}
"""Settings of a database that can have a replica."""


async def _wait_for_replica(connection: Any) -> None:
    """Make commits wait for the replica, and return when it is connected and up to date."""
    await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    await connection.execute("SELECT pg_reload_conf()")
    while not await connection.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"):
        await connection.execute("SELECT pg_sleep(0.05)")


@dataclass
class ExternalChain:
    """The chain that comes with Sightline, run by the test independently of the servers that use it."""

    directory: Path
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = None
    facts: dict[str, Any] = field(default_factory=dict)
    is_escrow: bool = False

    def start(self) -> None:
        args = ["--data-dir", str(self.directory), "--chain-id", str(CHAIN_ID_DEFAULT), "--max-fee-bps", "5000"]
        args += ["--escrow"] if self.is_escrow else []
        args += ["--session-cap-micro", "1000000000000", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sightline.chain.embedded", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        word, _, report = self.process.stdout.readline().decode().partition(" ")
        assert word == "ready", "the chain did not start"
        self.facts = json.loads(report)
        self.port = self.facts["port"]

    @property
    def env(self) -> dict[str, str]:
        """Return the settings of a server that uses this chain."""
        url, keys = f"http://127.0.0.1:{self.port}", json.loads((self.directory / "keys.json").read_text())
        escrow = {"SIGHTLINE_FUNDS_POLICY": "escrow", "SIGHTLINE_CHAIN_METER_KEY": keys["meter"]}
        return (escrow if self.is_escrow else {}) | {
            "SIGHTLINE_CHAIN_RPC_URL": url,
            "SIGHTLINE_CHAIN_PUBLIC_RPC_URL": url,
            "SIGHTLINE_CHAIN_ID": str(self.facts["chainId"]),
            "SIGHTLINE_CHAIN_USDC_ADDRESS": self.facts["usdcAddress"],
            "SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS": self.facts["settlementAddress"],
            "SIGHTLINE_CHAIN_RELAYER_KEY": keys["relayer"],
            "SIGHTLINE_CHAIN_CONFIRMATIONS": "0",
        }

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                pipe.close()
            self.process = None
