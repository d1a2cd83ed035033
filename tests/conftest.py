"""Fixtures of all suites: one real Postgres for the whole run, and a new, migrated database per test."""

import asyncio
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import trio
from hypothesis import HealthCheck, settings

from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.migrate import migrate
from sightline.storage.database.pool import PoolOptions
from sightline.storage.embedded.server import EmbeddedPostgresOptions, child_command
from tests.e2e.server import Server

# On a busy machine an example, and drawing one, may take long.
settings.register_profile("sightline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sightline")

pytest_plugins = ["tests.groups"]

PAGE_ORIGIN = "https://app.example.com"
"""Origin of a page that the shared server lets call it."""
TEMPLATE = f"migrated_{os.getpid()}"
"""Names carry the process, so that several test runs can share a server."""
_numbers = itertools.count(1)
_MEMORY = Path("/dev/shm")
_MEMORY_FREE_MIN = 4 * 1024**3


def _directory_in_memory() -> Path | None:
    """Return where a file system in memory is, if it has space for the data of all servers of a test run.

    ext4 does not use an inode again soon after its deletion: it searches past it at every new file. Databases that are
    made and deleted one after the other take ten times the CPU there.
    """
    is_large = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_FREE_MIN
    return _MEMORY if is_large else None


@contextmanager
def open_data_directory() -> Iterator[Path]:
    """Create a directory for a server's data, in memory where possible, and delete it afterwards.

    Not pytest's tmp_path: pytest closes its base directory to other accounts, and Postgres runs under an account of its
    own when the tests run as root.
    """
    directory = Path(tempfile.mkdtemp(prefix="sightline-", dir=_directory_in_memory()))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def kept_umask() -> Iterator[None]:
    """Commands of a host make their files private, for the rest of their process: that of the tests is many of them."""
    before = os.umask(0)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def data_directory() -> Iterator[Path]:
    """A new directory for one server's data."""
    with open_data_directory() as directory:
        yield directory


@contextmanager
def run_server() -> Iterator[Server]:
    """Run a server on a directory of its own."""
    with open_data_directory() as directory:
        server = Server(directory, env={"SIGHTLINE_VIDEO_CLIP_SECONDS": "10", "SIGHTLINE_CORS_ORIGINS": PAGE_ORIGIN})
        try:
            trio.run(server.start)
            yield server
        finally:
            server.end()


@pytest.fixture(scope="session")
def running_server() -> Iterator[Server]:
    """A server that all tests of the process share. A test makes its own tenants at its own place; none stops it."""
    with run_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """Address of a Postgres that runs for the whole test run.

    SIGHTLINE_TEST_DSN names another server to use, by its database `postgres` (postgresql://USER@/postgres?host=...).
    """
    if given := os.environ.get("SIGHTLINE_TEST_DSN"):
        yield given
        return
    with run_postgres() as dsn:
        yield dsn


@contextmanager
def run_postgres() -> Iterator[str]:
    """Run a Postgres in a directory of its own; yields its address."""
    with open_data_directory() as directory:
        yield from _serve_postgres(directory)


def _serve_postgres(directory: Path) -> Iterator[str]:
    options = EmbeddedPostgresOptions(directory=directory / "data", log_path=directory / "log", durable=False)
    with options.log_path.open("wb") as log_file:
        process = subprocess.Popen(
            child_command(options).args,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            word, _, dsn = process.stdout.readline().decode().strip().partition(" ")
            assert word == "ready", options.log_path.read_text()
            yield dsn
        finally:
            process.stdin.close()
            process.wait(20)
            process.stdout.close()


def on_server(dsn: str, unit: Callable[[Any], Awaitable[object]]) -> None:
    """Run a function on a connection of its own, without the bridge.

    In a thread of its own: where the tests of this process drive a browser, this one has a loop that runs.
    """

    async def connected() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await unit(connection)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(connected())).result()


def dsn_of(postgres_dsn: str, name: str) -> str:
    """Return the address of another database on the same server."""
    return postgres_dsn.replace("/postgres?", f"/{name}?")


@pytest.fixture(scope="session")
def migrated_template(postgres_dsn: str) -> Iterator[str]:
    """Name of a migrated database without connections; new databases are copied from it.

    SIGHTLINE_TEST_TEMPLATE names one that exists, on the server of SIGHTLINE_TEST_DSN.
    """
    if given := os.environ.get("SIGHTLINE_TEST_TEMPLATE"):
        yield given
        return
    with create_template(postgres_dsn) as name:
        yield name


@contextmanager
def create_template(postgres_dsn: str) -> Iterator[str]:
    """Create a migrated database on a server, and drop it afterwards."""
    on_server(postgres_dsn, lambda connection: connection.execute(f"CREATE DATABASE {TEMPLATE}"))

    async def migrated() -> None:
        pool = PoolOptions(dsn=dsn_of(postgres_dsn, TEMPLATE), connections_min=1)
        async with open_database(DatabaseOptions(pool=pool)) as database:
            await migrate(database)

    trio.run(migrated)
    yield TEMPLATE
    on_server(postgres_dsn, lambda connection: connection.execute(f"DROP DATABASE {TEMPLATE} WITH (FORCE)"))


@pytest.fixture
def empty_database_dsn(postgres_dsn: str) -> Iterator[str]:
    """Address of a new database without a schema."""
    yield from _fresh(postgres_dsn, "template0")


@pytest.fixture
def database_dsn(postgres_dsn: str, migrated_template: str) -> Iterator[str]:
    """Address of a new, migrated database."""
    yield from _fresh(postgres_dsn, migrated_template)


def _fresh(postgres_dsn: str, template: str) -> Iterator[str]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    on_server(
        postgres_dsn,
        lambda connection: connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"),
    )
    yield dsn_of(postgres_dsn, name)
    on_server(postgres_dsn, lambda connection: connection.execute(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """An open bridge to a new, migrated database."""
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=database_dsn))) as opened:
        yield opened
