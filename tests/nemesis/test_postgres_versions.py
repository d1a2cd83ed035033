"""An external Postgres of an earlier version: a session is paid, server and Postgres are killed, and the sums agree.

16 comes with the package that brings 18; 15 is the one of Debian 12.
"""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sightline.storage.embedded.postgres_account import choose_account
from sightline.storage.embedded.postgres_child import find_binaries, lay_out, prepare_socket_directory
from tests.e2e.server import Server
from tests.groups import rest_at_night
from tests.nemesis.parts import ROLE, on_database
from tests.nemesis.restored_money import FUNDS, consumer_has, end_and_settle, film_until
from tests.nemesis.test_clock_steps import a_pair

pytestmark = pytest.mark.interop

BINARIES = {16: find_binaries().parents[1] / "pginstall" / "bin", 15: Path("/usr/lib/postgresql/15/bin")}


class EarlierPostgres:
    """A cluster of an earlier version, which only its socket reaches."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self.layout = lay_out(directory, binaries)
        self._account = choose_account("nobody")
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        self.layout.cluster.parent.parent.chmod(0o711)
        self.layout.cluster.parent.mkdir(mode=0o700)
        self._account.own(self.layout.cluster.parent)
        prepare_socket_directory(self.layout, self._account)
        command = [str(self.layout.binaries / "initdb"), "--username=postgres", "--encoding=UTF8", "--locale=C"]
        command += ["--auth=trust", "-D", str(self.layout.cluster)]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **self._account.popen_options())

    def start(self) -> None:
        command = [str(self.layout.binaries / "postgres"), "-D", str(self.layout.cluster)]
        command += ["-c", f"unix_socket_directories={self.layout.socket_directory}", "-c", "listen_addresses="]
        self._process = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True, **self._account.popen_options()
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def server_dsn(self) -> str:
        return self.layout.dsn.replace("postgres@", f"{ROLE}@").replace("/postgres?", f"/{ROLE}?")


@asynccontextmanager
async def a_cluster(directory: Path, version: int) -> AsyncIterator[EarlierPostgres]:
    postgres = EarlierPostgres(directory / "postgres", BINARIES[version])
    postgres.make()
    postgres.start()
    try:
        await on_database(postgres.layout.dsn, lambda connection: connection.execute(f"CREATE ROLE {ROLE} LOGIN"))
        await on_database(
            postgres.layout.dsn, lambda connection: connection.execute(f"CREATE DATABASE {ROLE} OWNER {ROLE}")
        )
        yield postgres
    finally:
        postgres.kill()


@pytest.mark.parametrize("version", rest_at_night(sorted(BINARIES), gate=1))
async def test_money_is_moved_once_on_an_earlier_postgres(data_directory: Path, version: int) -> None:
    (home := data_directory / "server").mkdir()
    async with a_cluster(data_directory, version) as postgres:
        server = Server(home, env={"SIGHTLINE_DATABASE_URL": postgres.server_dsn})
        try:
            await server.start()
            pair = await a_pair(server)
            await pair.go_live()
            await film_until(pair, 2)
            postgres.kill()
            await server.kill()
            postgres.start()
            await server.start()
            await film_until(pair, await pair.clean_seconds() + 1)
            charged = sum(map(int, await end_and_settle(pair)))
            assert charged > 0
            await consumer_has(pair, FUNDS - charged)
        finally:
            server.end()
